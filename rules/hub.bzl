"""Files of the Hugging Face Hub: repos at one commit, and what is implied where a rule takes a Hub id."""

load("@marin//rules:common.bzl", "TreeInfo")
load("@marin//rules:resources.bzl", "cpu")

# What a fast tokenizer is made of; a repo has the first two, and some of the others.
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json"]
MORE_TOKENIZER_FILES = ["added_tokens.json", "chat_template.jinja", "chat_template.json", "special_tokens_map.json"]

def hub_secrets(secrets):
    """The token goes along where it is set: public repos need none, and with HF_TOKEN in `secrets` it must be there."""
    return secrets if "HF_TOKEN" in secrets or "HF_TOKEN?" in secrets else secrets + ["HF_TOKEN?"]

def hub_tree(ctx, repo_id, revision, repo_type = "dataset", globs = [], optional = [], name = "", resources = None):
    """The tree of a repo's files that match: the commit is the lock's, and each of `globs` must match."""
    for pattern in globs + optional:
        if not pattern or pattern.startswith("/"):
            fail("`%s` is not a pattern of files in a repo: write it as they are called there, `data/*.parquet`" % pattern)
    made = ctx.actions.run(
        name = name,
        tool = "hf_download",
        revision = 1,
        params = {
            "repo_type": repo_type,
            "repo_id": repo_id,
            "commit": ctx.lock.hub(repo_type, repo_id, revision),
            "globs": sorted({pattern: True for pattern in globs}.keys()),
            "optional": sorted({pattern: True for pattern in optional}.keys()),
        },
        outputs = {"files": "tree"},
        settings = {"network": "fetch"},
        secrets = hub_secrets(ctx.attr.secrets),
        resources = resources,
        # The commit says what the bytes are, whatever fetches them.
        toolchain = [],
    )
    return made["files"]

def _hf_download(ctx):
    files = hub_tree(
        ctx,
        ctx.attr.hf_id,
        ctx.attr.revision,
        repo_type = ctx.attr.repo_type,
        globs = ctx.attr.urls_glob,
    )
    return [DefaultInfo(outputs = {"files": files}), TreeInfo(artifact = files)]

hf_download = rule(
    implementation = _hf_download,
    doc = "Files of a Hugging Face Hub repo at one commit, each checked against the hash that the commit has for it.",
    attrs = {
        "hf_id": attr.string(mandatory = True, doc = "the repo, `owner/name`"),
        "revision": attr.string(
            mandatory = True,
            doc = "a commit's 40 digits; or the first 7 or more of them, a branch or a tag, which `marin lock` turns into one",
        ),
        "repo_type": attr.string(default = "dataset", values = ["dataset", "model", "space"], doc = "the type of repo"),
        "urls_glob": attr.string_list(
            default = [],
            doc = "which files, such as `data/*.parquet` (`**` spans folders): each pattern must match; none: all files",
        ),
        "resources": attr.dict(bears = "execution", default = cpu(ram = "1g"), doc = "what an attempt needs"),
    },
)
