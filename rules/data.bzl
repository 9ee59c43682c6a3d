"""Data: what a user's function makes or fetches, trained tokenizers, and tokenized corpora."""

load("@marin//rules:common.bzl", "FUNCTION_ATTRS", "TokenizedInfo", "TokenizerInfo", "TreeInfo", "artifact_name", "code_revision", "default_artifacts")
load("@marin//rules:hub.bzl", "PIN_ATTRS", "hub_id", "hub_secrets", "hub_tokenizer", "hub_tree", "located", "pinned_tree", "url_tree")
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
    if bool(ctx.attr.function) == bool(ctx.attr.urls) and (ctx.attr.function or not ctx.attr.pin):
        fail("provide exactly one of `function` and `urls`")
    if ctx.attr.pin:
        files = pinned_tree(ctx)
        return [DefaultInfo(outputs = {"files": files}), TreeInfo(artifact = files)]
    if ctx.attr.function:
        return _run_function(ctx, {}, settings = {"network": True})
    if ctx.attr.params:
        fail("`params` are for a `function`")
    files = url_tree(ctx, ctx.attr.urls)
    return [DefaultInfo(outputs = {"files": files}), TreeInfo(artifact = files)]

raw_download = rule(
    implementation = _raw_download,
    doc = "A tree of files from URLs, or that a user's function fetches or makes from nothing but its parameters.",
    attrs = FUNCTION_ATTRS | PIN_ATTRS | {
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
    if attrs.pin:
        files = pinned_tree(ctx)
    else:
        files = hub_tree(ctx, attrs.hf_id, attrs.revision, repo_type = attrs.repo_type, globs = attrs.urls_glob)
    return [DefaultInfo(outputs = {"files": files}), TreeInfo(artifact = files)]

hf_download = rule(
    implementation = _hf_download,
    doc = "Files of a Hugging Face Hub repo at one commit, each checked against the hash that the commit has for it.",
    attrs = PIN_ATTRS | {
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

def _tokenizer_providers(files):
    return [
        DefaultInfo(outputs = {"tokenizer": files}),
        TreeInfo(artifact = files),
        TokenizerInfo(files = files, id = identity(files)),
    ]

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
    return _tokenizer_providers(made["tokenizer"])

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

def _tokenizer_files(ctx, given, name = "tokenizer"):
    """The files of a tokenizer and the identity of what they are: of a target, or of what a Hub id names."""
    if type(given) == "string":
        files = hub_tokenizer(ctx, given, name)
        return files, identity(files)
    return given.TokenizerInfo.files, given.TokenizerInfo.id

def _tokenizer(ctx):
    given = ctx.attr.files
    files = hub_tokenizer(ctx, given, "") if type(given) == "string" else given.TreeInfo.artifact
    return _tokenizer_providers(files)

tokenizer = rule(
    implementation = _tokenizer,
    doc = "A Hugging Face tokenizer folder that another target makes, or a model repo of the Hub holds, as a tokenizer.",
    attrs = {
        "files": attr.label(
            mandatory = True,
            hub = True,
            providers = ["TreeInfo"],
            doc = "the target that makes the folder",
        ),
    },
)

def _words(text):
    """The words of letters in a path."""
    return "".join([char if char.isalpha() else " " for char in text.elems()]).split(" ")

def _refuse_test_sets(ctx, texts):
    if ctx.attr.validation or ctx.attr.allow_test_in_train:
        return
    for text in texts:
        if "test" in _words(text) or "validation" in text:
            fail("`%s` looks like a test or a validation set, and this target is a training set: " % text +
                 "`validation = True` makes it a validation set, `allow_test_in_train = True` takes it as it is")

def _hub_source(ctx):
    """The documents of a dataset's split, downloaded as far as it needs them."""
    attrs = ctx.attr
    repo_id, revision = hub_id(attrs.source)
    if attrs.glob and (attrs.split or attrs.subset):
        fail("`glob` says which files of `%s` to take: leave `split` and `subset` out" % attrs.source)
    split = None if attrs.glob else attrs.split or ("validation" if attrs.validation else "train")
    return hub_tree(
        ctx,
        repo_id,
        revision,
        globs = [attrs.glob] if attrs.glob else [],
        subset = None if attrs.glob else attrs.subset,
        split = split,
        name = "source",
        resources = cpu(ram = "1g"),
    )

def _corpus(ctx):
    """The documents' input and parameters, from exactly one of `source`, `paths` and `raw` (with `glob`)."""
    attrs = ctx.attr
    if len([given for given in (attrs.source, attrs.paths, attrs.raw) if given]) != 1:
        fail("provide exactly one of `source`, `paths` or `raw` (with `glob`)")
    is_hub = attrs.source and "://" not in attrs.source and attrs.source.partition("@")[0].count("/") == 1 and attrs.source[0] != "/"
    if (attrs.split or attrs.subset) and not is_hub:
        fail("`split` and `subset` are of a dataset on the Hub: give its id as `source`")
    files = [dep.label for dep in attrs.paths if dep.kind == "source file"]
    # Of a URL the last name: what the folders and buckets around it are called says little.
    called = "" if is_hub or not attrs.source else attrs.source.removesuffix("/").split("/")[-1]
    _refuse_test_sets(ctx, [text for text in [attrs.glob, attrs.split, called] if text] + files)
    if not attrs.source:
        return _documents(ctx)
    if not attrs.text_key:
        fail("`text_key` is empty")
    if is_hub:
        return _hub_source(ctx), {"text_key": attrs.text_key, "glob": "**"}
    url = "file://" + attrs.source if attrs.source[0] == "/" else attrs.source
    if "://" not in url:
        fail("`source` is `%s`, neither a Hub id (`owner/name`) nor a URL nor an absolute path: " % attrs.source +
             "name files of the workspace in `paths`")
    files = url_tree(ctx, [url], name = "source", resources = cpu(ram = "1g"))
    return files, {"text_key": attrs.text_key, "glob": attrs.glob or "**"}

def _made_from(documents, glob):
    """A text for each of the documents' artifacts, equal where they are the same files."""
    return [identity(each) + " " + glob for each in (documents if type(documents) == "list" else [documents])]

def _tokenized_providers(ctx, made, tokenizer, tokenizer_id, text_key, documents):
    return [
        DefaultInfo(outputs = made),
        TreeInfo(artifact = made["cache"]),
        TokenizedInfo(
            cache = made["cache"],
            tokenizer = tokenizer,
            tokenizer_id = tokenizer_id,
            name = ctx.attr.component or artifact_name(ctx),
            validation = ctx.attr.validation,
            text_key = text_key,
            documents = documents,
        ),
    ]

def _checked_cache(ctx, files, where, tokenizer):
    """The cache that lies in a tree, looked through before it is believed."""
    return ctx.actions.run(
        tool = "pretokenized",
        revision = 1,
        params = {"split": "validation" if ctx.attr.validation else "train"},
        inputs = {"files": files, "tokenizer": tokenizer},
        outputs = {"cache": "tree"},
        settings = {"where": where},
        heavy = True,
        # As of what a Hub repo holds: the bytes are there, and nothing installed here changes them.
        toolchain = [],
    )

def _adopted_cache(ctx, files, where):
    tokenizer, tokenizer_id = _tokenizer_files(ctx, ctx.attr.tokenizer)
    made = _checked_cache(ctx, files, where, tokenizer)
    split = "validation" if ctx.attr.validation else "train"
    return _tokenized_providers(ctx, made, tokenizer, tokenizer_id, "", _made_from(files, split))

def _tokenized(ctx):
    if ctx.attr.pin:
        if len([given for given in (ctx.attr.source, ctx.attr.paths, ctx.attr.raw) if given]) > 1:
            fail("provide at most one of `source`, `paths` or `raw` beside `pin`")
        return _adopted_cache(ctx, pinned_tree(ctx, name = "pin"), ctx.attr.pin)
    documents, params = _corpus(ctx)
    sample_count = ctx.attr.sample_count
    if sample_count != None and sample_count < 1:
        fail("`sample_count` is %d: it is the number of documents taken of each file, at least 1" % sample_count)
    tokenizer, tokenizer_id = _tokenizer_files(ctx, ctx.attr.tokenizer)
    made = ctx.actions.run(
        tool = "tokenize",
        revision = 1,
        params = params | {
            "split": "validation" if ctx.attr.validation else "train",
            "sample_count": sample_count,
        },
        inputs = {"documents": documents, "tokenizer": tokenizer},
        outputs = {"cache": "tree"},
        settings = {
            "processes": max(1, int(ctx.attr.resources.get("cpu") or 1)),
            "allow_test_in_train": ctx.attr.allow_test_in_train,
        },
        heavy = True,
    )
    return _tokenized_providers(ctx, made, tokenizer, tokenizer_id, ctx.attr.text_key, _made_from(documents, params["glob"]))

_CACHE_ATTRS = PIN_ATTRS | {
    "tokenizer": attr.label(mandatory = True, hub = True, providers = ["TokenizerInfo"], doc = "the tokenizer's target"),
    "validation": attr.bool(default = False, doc = "a validation set instead of a training set"),
    "component": attr.string(default = "", doc = "its name in a mixture; the artifact's name where left out"),
}

tokenized = rule(
    implementation = _tokenized,
    doc = "A corpus as token ids in Levanter's cache format, with `stats.json` beside it.",
    attrs = _SOURCE_ATTRS | _CACHE_ATTRS | {
        "glob": attr.string(
            doc = "which files of `raw`, such as `train/*.jsonl` (`**` spans folders); of a `source` too, where not all or " +
                  "not what its `split` says",
        ),
        "source": attr.string(
            doc = "instead of `raw` or `paths`: a dataset on the Hub, `owner/name` or `owner/name@revision`; or the URL or " +
                  "the absolute path of a file or a folder (ending in `/`)",
        ),
        "subset": attr.string(default = "", doc = "of a dataset on the Hub: the config in its README, or the folder"),
        "split": attr.string(
            default = "",
            doc = "of a dataset on the Hub; left out, `train`, or with `validation` `validation`",
        ),
        "sample_count": attr.int(doc = "take at most this many documents of each file"),
        "allow_test_in_train": attr.bool(
            bears = "execution",
            default = False,
            doc = "take files that are called after a test or validation set into a training set",
        ),
        "resources": attr.dict(
            bears = "execution",
            default = cpu(ram = "2g"),
            doc = "what an attempt needs; long inputs are spread over so many processes as it has `cpu`",
        ),
    },
    toolchain = ["tokenizers", "marin-levanter", "tensorstore"],
)

def _pretokenized(ctx):
    if ctx.attr.pin:
        return _adopted_cache(ctx, pinned_tree(ctx, name = "pin"), ctx.attr.pin)
    tokenizer, tokenizer_id = _tokenizer_files(ctx, ctx.attr.tokenizer)
    commit = ctx.lock.hub(ctx.attr.repo_type, ctx.attr.repo_id, ctx.attr.revision)
    made = ctx.actions.run(
        tool = "pretokenized",
        revision = 1,
        params = {
            "repo_type": ctx.attr.repo_type,
            "repo_id": ctx.attr.repo_id,
            "commit": commit,
            "folder": ctx.attr.folder,
            "split": "validation" if ctx.attr.validation else "train",
        },
        inputs = {"tokenizer": tokenizer},
        outputs = {"cache": "tree"},
        settings = {"network": "fetch"},
        secrets = hub_secrets(ctx.attr.secrets),
        heavy = True,
    )
    params = (ctx.attr.repo_id, commit or ctx.attr.revision, ctx.attr.folder, ctx.attr.validation)
    return _tokenized_providers(ctx, made, tokenizer, tokenizer_id, "", ["cache %s@%s %s %s" % params])

pretokenized = rule(
    implementation = _pretokenized,
    doc = "Token ids that a Hub repo holds in Levanter's cache format, looked through before they are believed.",
    attrs = _CACHE_ATTRS | {
        "repo_id": attr.string(mandatory = True, doc = "the repo, `owner/name`"),
        "revision": attr.string(default = "main", doc = "as of `hf_download`"),
        "repo_type": attr.string(default = "dataset", values = ["dataset", "model"], doc = "the type of repo"),
        "folder": attr.string(default = "", doc = "where in the repo `train/` or `validation/` is; left out, at its top"),
        "resources": attr.dict(bears = "execution", default = cpu(ram = "2g"), doc = "what an attempt needs"),
    },
)

def _adopted(ctx):
    attrs = ctx.attr
    if attrs.kind != "tokenized":
        for name in ["tokenizer", "validation", "component"]:
            if getattr(attrs, name):
                fail("`%s` goes with `kind = \"tokenized\"`" % name)
    elif not attrs.tokenizer:
        fail("`kind = \"tokenized\"` needs the `tokenizer` that it was made with")
    if not attrs.source:
        fail("`source` is empty")
    url = located(attrs.source, "source")
    if attrs.kind != "tree" and not url.endswith("/"):
        url += "/"
    if attrs.kind == "tokenized":
        return _adopted_cache(ctx, url_tree(ctx, [url], name = "pin", resources = cpu(ram = "1g")), attrs.source)
    files = url_tree(ctx, [url])
    if attrs.kind == "tree":
        return [DefaultInfo(outputs = {"files": files}), TreeInfo(artifact = files)]
    return _tokenizer_providers(files)

adopted = rule(
    implementation = _adopted,
    doc = "What somebody else has made and lies elsewhere, taken as it is: what marin.lock says of it is all that it is.",
    attrs = {
        "source": attr.string(
            mandatory = True,
            doc = "the URL (`gs://`, `s3://`, `https://`, `file://`) or the absolute path of a folder (ending in `/`) or a file",
        ),
        "kind": attr.string(
            default = "tree",
            values = ["tree", "tokenized", "tokenizer"],
            doc = "what it is: files; a folder with a Levanter cache, which is looked through before it is believed; or a " +
                  "Hugging Face tokenizer folder",
        ),
        "tokenizer": attr.label(hub = True, providers = ["TokenizerInfo"], doc = "of a cache: what it was made with"),
        "validation": attr.bool(default = False, doc = "of a cache: it is a validation set, in `validation/`"),
        "component": attr.string(default = "", doc = "of a cache: its name in a mixture; the artifact's name where left out"),
        "resources": attr.dict(bears = "execution", default = cpu(ram = "2g"), doc = "what an attempt needs"),
    },
)
