"""What rules fetch from elsewhere: files of the Hugging Face Hub at one commit, and files behind URLs."""

load("@marin//rules:resources.bzl", "cpu")

# What a fast tokenizer is made of; a repo has the first two, and some of the others.
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json"]
MORE_TOKENIZER_FILES = ["added_tokens.json", "chat_template.jinja", "chat_template.json", "special_tokens_map.json"]

def hub_secrets(secrets):
    """The token goes along where it is set: public repos need none, and with HF_TOKEN in `secrets` it must be there."""
    return secrets if "HF_TOKEN" in secrets or "HF_TOKEN?" in secrets else secrets + ["HF_TOKEN?"]

def hub_tree(ctx, repo_id, revision, repo_type = "dataset", globs = [], optional = [], subset = None, split = None, name = "", resources = None):
    """The tree of a repo's files at the lock's commit: those that match (each of `globs` must), or those of a split."""
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
            "subset": subset,
            "split": split,
        },
        outputs = {"files": "tree"},
        settings = {"network": "fetch"},
        secrets = hub_secrets(ctx.attr.secrets),
        resources = resources,
        # The commit says what the bytes are, whatever fetches them.
        toolchain = [],
    )
    return made["files"]

def hub_id(text):
    """The repo and the revision that `owner/name` or `owner/name@revision` means."""
    repo_id, _, revision = text.partition("@")
    return repo_id, revision or "main"

def hub_tokenizer(ctx, text, name = "tokenizer"):
    """The tree of a tokenizer's files in the model repo that a Hub id names."""
    repo_id, revision = hub_id(text)
    return hub_tree(
        ctx,
        repo_id,
        revision,
        repo_type = "model",
        globs = TOKENIZER_FILES,
        optional = MORE_TOKENIZER_FILES,
        name = name,
        resources = cpu(ram = "1g"),
    )

# An account is used where the environment has one; what everybody may read needs none.
_BUCKET_SECRETS = ["AWS_ACCESS_KEY_ID?", "AWS_SECRET_ACCESS_KEY?", "AWS_SESSION_TOKEN?"]

def located(text, what):
    """The URL that a URL or an absolute path means."""
    url = "file://" + text if text[0] == "/" else text
    if "://" not in url:
        fail("`%s` is `%s`, neither a URL nor an absolute path" % (what, text))
    return url

def pinned_tree(ctx, name = ""):
    """The tree that lies where `pin` says, a folder: what marin.lock says of it is all that it is."""
    url = located(ctx.attr.pin, "pin")

    # The target's resources are for its own action; one beside it only copies.
    resources = cpu(ram = "1g") if name else None
    return url_tree(ctx, [url if url.endswith("/") else url + "/"], name = name, resources = resources)

# Of rules whose data may lie elsewhere.
PIN_ATTRS = {
    "pin": attr.string(
        default = "",
        doc = "the URL or the absolute path of a folder where it lies already: it is taken from there, and is what " +
              "marin.lock says of it, whatever else is declared",
    ),
}

def url_tree(ctx, urls, name = "", resources = None):
    """The tree of what URLs hold: files under their last name, and what lies under a prefix (it ends in `/`)."""
    sources = {}
    for url in urls:
        if url.endswith("/"):
            key, source = "prefix " + url, {"name": "", "manifest": ctx.lock.prefix(url)}
        else:
            content = ctx.lock.url(url)
            key = url.split("?")[0].split("/")[-1]
            if not key:
                fail("`%s` does not say what its file is called" % url)
            source = {"name": key, "content": content}
        if key in sources:
            fail("`%s` and `%s` would both be stored as `%s`" % (sources[key][0], url, key.removeprefix("prefix ")))
        sources[key] = (url, source)
    order = sorted(sources.keys())
    made = ctx.actions.run(
        name = name,
        tool = "url_download",
        revision = 1,
        # Not the URLs: the same bytes from elsewhere are the same files.
        params = {"sources": [sources[key][1] for key in order]},
        outputs = {"files": "tree"},
        settings = {"network": "fetch", "urls": [sources[key][0] for key in order]},
        secrets = ctx.attr.secrets + [secret for secret in _BUCKET_SECRETS if secret.removesuffix("?") not in ctx.attr.secrets],
        resources = resources,
        toolchain = [],
    )
    return made["files"]
