"""Evaluation: a checkpoint scored with lm-eval through Levanter's harness."""

load("@marin//rules:common.bzl", "CheckpointInfo", "EvalInfo", "default_artifacts")
load("@marin//rules:resources.bzl", "cpu")
load("@marin//rules:precision.bzl", "canonical_mp")

_TASK_FIELDS = {"name": "string", "num_fewshot": "int", "task_alias": "string", "task_kwargs": "dict"}

def _task(task, num_fewshot):
    """A task as the recipe holds it: every field present, `num_fewshot` None where the task's own default holds."""
    if type(task) == "string":
        task = {"name": task}
    if type(task) != "dict":
        fail("`tasks` holds names, or dicts with a `name`")
    for field in task:
        if field not in _TASK_FIELDS:
            fail("a task has no field `%s`: it takes `name`, `num_fewshot`, `task_alias` and `task_kwargs`" % field)
        if type(task[field]) != _TASK_FIELDS[field]:
            fail("`%s` of a task must be of type %s" % (field, _TASK_FIELDS[field]))
    if not task.get("name"):
        fail("a task needs a `name`")
    return {
        "name": task["name"],
        "num_fewshot": task.get("num_fewshot", num_fewshot),
        "task_alias": task.get("task_alias", ""),
        "task_kwargs": task.get("task_kwargs", {}),
    }

def _check_at_least(ctx, name, least):
    value = getattr(ctx.attr, name)
    if value != None and value < least:
        fail("`%s` is %d: it must be at least %d" % (name, value, least))

def _lm_eval(ctx):
    if not ctx.attr.tasks:
        fail("`tasks` is empty: name at least one task")
    for name, least in [("num_fewshot", 0), ("limit", 1), ("nproc", 1), ("batch_size", 1), ("max_seq_len", 1)]:
        _check_at_least(ctx, name, least)
    tasks = [_task(task, ctx.attr.num_fewshot) for task in ctx.attr.tasks]
    seen = {}
    for task in tasks:
        shown = task["task_alias"] or task["name"]
        if shown in seen:
            fail("two tasks would be stored as `%s`: give one of them a `task_alias`" % shown)
        seen[shown] = True

    inputs = {"hf": ctx.attr.checkpoint.CheckpointInfo.hf}
    if ctx.attr.task_files:
        inputs["task_files"] = default_artifacts(ctx.attr.task_files)
    for name, dep in ctx.attr.data.items():
        inputs["data." + name] = dep.TreeInfo.artifact
    made = ctx.actions.run(
        tool = "lm_eval",
        revision = 1,
        params = {
            "tasks": tasks,
            "data": sorted(ctx.attr.data.keys()),
            "limit": ctx.attr.limit,
            "batch_size": ctx.attr.batch_size,
            "max_seq_len": ctx.attr.max_seq_len,
            "mp": canonical_mp(ctx.attr.mp),
            "nproc": ctx.attr.nproc,
            "apply_chat_template": ctx.attr.apply_chat_template,
        },
        inputs = inputs,
        outputs = {"scores": "file", "samples": "tree"},
        outcome = "sampled",
        heavy = True,
    )
    return [DefaultInfo(outputs = made), EvalInfo(scores = made["scores"], samples = made["samples"])]

lm_eval = rule(
    implementation = _lm_eval,
    doc = "The scores of a checkpoint on lm-eval tasks: a small JSON, and the samples.",
    attrs = {
        "checkpoint": attr.label(
            mandatory = True,
            providers = ["CheckpointInfo"],
            doc = "what is scored; its `hf` output is read",
        ),
        "tasks": attr.list(
            mandatory = True,
            doc = "names of tasks, or dicts of `name`, `num_fewshot`, `task_alias` and `task_kwargs`",
        ),
        "task_files": attr.label_list(
            default = [],
            doc = "YAML files of the workspace that define tasks; a relative path in `data_files` starts with a name in `data`",
        ),
        "data": attr.label_dict(
            default = {},
            providers = ["TreeInfo"],
            doc = "name to target: the data that task files refer to, or with a task's own name that task's dataset",
        ),
        "num_fewshot": attr.int(doc = "for tasks that do not say; left out, the task's own default"),
        "limit": attr.int(doc = "at most this many documents of each task"),
        "batch_size": attr.int(default = 32, doc = "sequences scored at once"),
        "max_seq_len": attr.int(doc = "tokens of context; left out, the model's own"),
        "mp": attr.string(default = "f32", doc = "precision, as jmp writes it"),
        "nproc": attr.int(default = 1, doc = "cores that a CPU run computes with; ignored elsewhere"),
        "resources": attr.dict(bears = "execution", default = cpu(ram = "3g"), doc = "what an attempt needs"),
        "apply_chat_template": attr.bool(default = False, doc = "wrap requests in the tokenizer's chat template"),
    },
    toolchain = ["lm-eval", "marin-levanter", "marin-haliax", "jax", "jaxlib", "optax", "tokenizers", "transformers", "datasets"],
)
