"""Providers that the rules of a pipeline hand to each other, and helpers that several of them use."""

TreeInfo = provider(fields = ["artifact"])
TokenizerInfo = provider(fields = ["files", "id"])
TokenizedInfo = provider(fields = ["cache", "tokenizer", "tokenizer_id", "name", "validation", "text_key"])
MixtureInfo = provider(fields = ["components", "tokenizer", "tokenizer_id", "shuffle"])
CheckpointInfo = provider(fields = ["native", "hf", "metrics", "tokenizer", "tokenizer_id", "model"])
EvalInfo = provider(fields = ["scores", "samples"])

# Attributes of every rule that runs a user's function.
FUNCTION_ATTRS = {
    "function": attr.string(
        mandatory = True,
        doc = "`path.py:name`, relative to the workspace: a function at the top level of that file",
    ),
    "params": attr.dict(default = {}, doc = "plain data, given to the function as `ctx.params`"),
    "toolchain": attr.string_list(
        default = ["python"],
        doc = "the distributions whose versions bear identity: every one that the function imports",
    ),
    "code": attr.string(
        default = "traced",
        values = ["traced", "declared"],
        doc = "what stands for the function's source in the key: its tokens, or with `declared` only `revision`",
    ),
    "revision": attr.int(doc = "with `code = \"declared\"`: bump it when the function's meaning changes"),
}

def code_revision(ctx):
    """What stands in the key for the function's source: None (its tokens), or with `code = "declared"` its revision."""
    revision = ctx.attr.revision
    if ctx.attr.code == "declared":
        if revision == None:
            fail("`code = \"declared\"` needs a `revision`: the only thing that then stands for the function's source")
    elif revision != None:
        fail("`revision` goes with `code = \"declared\"`: the code of `%s` is traced" % ctx.attr.function)
    return revision

def default_artifacts(deps):
    """All outputs of the targets or files in `deps`, in order."""
    found = []
    for dep in deps:
        outputs = dep.DefaultInfo.outputs
        found += [outputs[name] for name in outputs]
    return found

def artifact_name(ctx):
    """The artifact's name: the attribute, or `<package>/<name>`."""
    if ctx.attr.artifact:
        return ctx.attr.artifact
    return ctx.label.package + "/" + ctx.label.name if ctx.label.package else ctx.label.name
