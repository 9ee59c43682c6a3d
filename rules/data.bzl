"""Data: what a user's function makes or fetches, trained tokenizers, and tokenized corpora."""

load("@marin//rules:common.bzl", "FUNCTION_ATTRS", "TokenizedInfo", "TokenizerInfo", "TreeInfo", "artifact_name", "code_revision", "default_artifacts")
load("@marin//rules:hub.bzl", "hub_tree", "url_tree")
load("@marin//rules:resources.bzl", "cpu")

def _run_function(ctx, inputs, settings = {}):
    made = ctx.actions.run(
        tool = "function",
        revision = 1,
        params = {"function": ctx.attr.function, "params": ctx.attr.params},
        inputs = inputs,
        outputs = {"files": "tree"},
        settings = settings,
        code = ctx.attr.function,
        code_revision = code_revision(ctx),
    )
    return [DefaultInfo(outputs = made), TreeInfo(artifact = made["files"])]

def _raw_download(ctx):
    if bool(ctx.attr.function) == bool(ctx.attr.urls):
        fail("provide exactly one of `function` and `urls`")
    if ctx.attr.function:
        return _run_function(ctx, {}, settings = {"network": True})
    if ctx.attr.params:
        fail("`params` are for a `function`")
    files = url_tree(ctx, ctx.attr.urls)
    return [DefaultInfo(outputs = {"files": files}), TreeInfo(artifact = files)]

raw_download = rule(
    implementation = _raw_download,
    doc = "A tree of files from URLs, or that a user's function fetches or makes from nothing but its parameters.",
    attrs = FUNCTION_ATTRS | {
        "function": attr.string(doc = "`path.py:name`, relative to the workspace: a function at the top level of that file"),
        "urls": attr.string_list(
            default = [],
            doc = "instead of a function: `https://`, `http://`, `gs://`, `s3://` or `file://` URLs of files, or of folders " +
                  "(ending in `/`), whose content is in marin.lock and alone bears identity",
        ),
    },
)

def _hf_download(ctx):
    attrs = ctx.attr
    files = hub_tree(ctx, attrs.hf_id, attrs.revision, repo_type = attrs.repo_type, globs = attrs.urls_glob)
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

def _py_action(ctx):
    inputs = {}
    for name, dep in ctx.attr.inputs.items():
        artifacts = default_artifacts([dep])
        if hasattr(dep, "TreeInfo"):
            artifacts = [dep.TreeInfo.artifact]
        if len(artifacts) != 1:
            fail("input `%s`: `%s` has %d outputs, a function takes one" % (name, dep.label, len(artifacts)))
        inputs[name] = artifacts[0]
    return _run_function(ctx, inputs)

py_action = rule(
    implementation = _py_action,
    doc = "A tree of files that a user's function makes from inputs.",
    attrs = FUNCTION_ATTRS | {
        "inputs": attr.label_dict(default = {}, doc = "name to target or file, given as `ctx.inputs[name]`, a path"),
    },
)

_SOURCE_ATTRS = {
    "raw": attr.label(providers = ["TreeInfo"], doc = "the target whose tree holds the documents; goes with `glob`"),
    "glob": attr.string(doc = "which files of `raw`, such as `train/*.jsonl`; `**` spans folders"),
    "paths": attr.label_list(doc = "files of the workspace, or a `glob()` of them, instead of `raw` and `glob`"),
    "text_key": attr.string(default = "text", doc = "the key of a JSON document that holds its text"),
}

def _documents(ctx):
    """The documents' input and parameters, from exactly one of `raw` (with `glob`) and `paths`."""
    raw, pattern, paths = ctx.attr.raw, ctx.attr.glob, ctx.attr.paths
    if (raw == None) == (not paths):
        fail("provide exactly one of `raw` (with `glob`) or `paths`")
    if (raw == None) != (not pattern):
        fail("`raw` and `glob` must be given together")
    if not ctx.attr.text_key:
        fail("`text_key` is empty")
    params = {"text_key": ctx.attr.text_key, "glob": pattern if raw != None else "**"}
    return (raw.TreeInfo.artifact if raw != None else default_artifacts(paths)), params

def _trained_tokenizer(ctx):
    documents, params = _documents(ctx)
    special = [ctx.attr.eos, ctx.attr.bos] + ctx.attr.special_tokens
    special = [token for token in special if token]
    for index, token in enumerate(special):
        if token in special[:index] and token != ctx.attr.eos:
            fail("the special token `%s` is given twice" % token)
    least = 256 + len(special)
    if ctx.attr.vocab_size < least:
        fail("`vocab_size` is %d: a byte-level tokenizer with these special tokens has at least %d" % (ctx.attr.vocab_size, least))
    made = ctx.actions.run(
        tool = "trained_tokenizer",
        revision = 1,
        params = params | {
            "vocab_size": ctx.attr.vocab_size,
            "min_frequency": ctx.attr.min_frequency,
            "eos": ctx.attr.eos,
            "bos": ctx.attr.bos,
            "special_tokens": ctx.attr.special_tokens,
        },
        inputs = {"documents": documents},
        outputs = {"tokenizer": "tree"},
    )
    files = made["tokenizer"]
    return [DefaultInfo(outputs = made), TreeInfo(artifact = files), TokenizerInfo(files = files, id = identity(files))]

trained_tokenizer = rule(
    implementation = _trained_tokenizer,
    doc = "A byte-level BPE tokenizer trained on documents, as a Hugging Face tokenizer folder.",
    attrs = _SOURCE_ATTRS | {
        "vocab_size": attr.int(mandatory = True, doc = "how many tokens, the special ones included"),
        "min_frequency": attr.int(default = 2, doc = "a pair seen less often is not merged"),
        "eos": attr.string(default = "<|endoftext|>", doc = "the token after each document; `\"\"`: none"),
        "bos": attr.string(default = "", doc = "the token before each document; may be the same as `eos`; `\"\"`: none"),
        "special_tokens": attr.string_list(default = [], doc = "further special tokens"),
    },
    toolchain = ["tokenizers", "transformers"],
)

def _tokenizer(ctx):
    artifact = ctx.attr.files.TreeInfo.artifact
    return [
        DefaultInfo(outputs = {"tokenizer": artifact}),
        TreeInfo(artifact = artifact),
        TokenizerInfo(files = artifact, id = identity(artifact)),
    ]

tokenizer = rule(
    implementation = _tokenizer,
    doc = "A Hugging Face tokenizer folder that another target makes, to be used as a tokenizer. Runs nothing.",
    attrs = {
        "files": attr.label(mandatory = True, providers = ["TreeInfo"], doc = "the target that makes the folder"),
    },
)

def _tokenized(ctx):
    documents, params = _documents(ctx)
    sample_count = ctx.attr.sample_count
    if sample_count != None and sample_count < 1:
        fail("`sample_count` is %d: it is the number of documents taken of each file, at least 1" % sample_count)
    tokenizer = ctx.attr.tokenizer.TokenizerInfo
    made = ctx.actions.run(
        tool = "tokenize",
        revision = 1,
        params = params | {
            "split": "validation" if ctx.attr.validation else "train",
            "sample_count": sample_count,
        },
        inputs = {"documents": documents, "tokenizer": tokenizer.files},
        outputs = {"cache": "tree"},
        heavy = True,
    )
    return [
        DefaultInfo(outputs = made),
        TreeInfo(artifact = made["cache"]),
        TokenizedInfo(
            cache = made["cache"],
            tokenizer = tokenizer.files,
            tokenizer_id = tokenizer.id,
            name = ctx.attr.component or artifact_name(ctx),
            validation = ctx.attr.validation,
            text_key = ctx.attr.text_key,
        ),
    ]

tokenized = rule(
    implementation = _tokenized,
    doc = "A corpus as token ids in Levanter's cache format, with `stats.json` beside it.",
    attrs = _SOURCE_ATTRS | {
        "tokenizer": attr.label(mandatory = True, providers = ["TokenizerInfo"], doc = "the tokenizer's target"),
        "validation": attr.bool(default = False, doc = "written as a validation set instead of a training set"),
        "sample_count": attr.int(doc = "take at most this many documents of each file"),
        "resources": attr.dict(bears = "execution", default = cpu(ram = "2g"), doc = "what an attempt needs"),
        "component": attr.string(default = "", doc = "its name in a mixture; the artifact's name where left out"),
    },
    toolchain = ["tokenizers", "marin-levanter", "tensorstore"],
)
