"""Providers that the rules of a pipeline hand to each other, and helpers that several of them use."""

TreeInfo = provider(fields = ["artifact"])
TokenizerInfo = provider(fields = ["files", "id"])
TokenizedInfo = provider(fields = {
    "cache": "a tree with Levanter's cache",
    "tokenizer": "the tokenizer's tree",
    "tokenizer_id": "text that is equal for equal tokenizers",
    "name": "its name in a mixture",
    "validation": "whether it is a validation set",
    "text_key": "the key of a document that holds its text",
    "documents": "texts, each equal for equal documents: what it was made from",
})
MixtureInfo = provider(fields = {
    "components": "dicts of `name`, `cache`, `weight`, `validation` and `documents`, in Levanter's order",
    "tokenizer": "the tokenizer's tree",
    "tokenizer_id": "text that is equal for equal tokenizers",
    "shuffle": "True, False or the fields of a block shuffle",
    "options": "what else is not as Levanter has it by default",
})
CheckpointInfo = provider(fields = {
    "native": "a tree with Levanter's own checkpoint after the last step",
    "hf": "a tree with the Hugging Face export after the last step",
    "metrics": "a file for people",
    "tokenizer": "the tokenizer's tree",
    "tokenizer_id": "text that is equal for equal tokenizers",
    "model": "the model's config with all its fields",
    "optimizer": "the optimizer's config with all its fields",
    "exports": "the step, as text, to the tree of each export before the last",
    "steps": "how many steps the training takes",
    "tokens": "how many tokens it is trained on",
    "export_every": "the distance of the exports, 0 for none",
})
EvalInfo = provider(fields = {
    "scores": "a JSON file of the last step's scores",
    "samples": "a tree with each question and answer",
    "steps": "the step, as text, to the scores of each export before the last",
})

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
