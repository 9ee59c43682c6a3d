"""Evaluation: a checkpoint scored with lm-eval through Levanter's harness, and the task sets of Marin's experiments."""

load("@marin//rules:common.bzl", "EvalInfo", "default_artifacts")
load("@marin//rules:hub.bzl", "hub_tree")
load("@marin//rules:precision.bzl", "canonical_mp")
load("@marin//rules:resources.bzl", "cpu", "tpu")

_TASK_FIELDS = {
    "name": "string",
    "num_fewshot": "int",
    "task_alias": "string",
    "task_kwargs": "dict",
    "generation": "bool",
    "unsafe_code": "bool",
    "completion_only": "bool",
}

# What a recipe holds only where it is not so.
_FALSE_FIELDS = ["completion_only"]

def eval_task(name, num_fewshot = None, task_alias = None, task_kwargs = None, generation = False, unsafe_code = False, completion_only = False):
    """A task or a group of tasks of lm-eval. `task_alias` is the name under which it is stored; `task_kwargs` change its definition; `generation` says that the model writes text; `unsafe_code` allows to run code that it writes; `completion_only` leaves the chat template out."""
    fields = {
        "name": name,
        "num_fewshot": num_fewshot,
        "task_alias": task_alias,
        "task_kwargs": task_kwargs,
        "generation": generation,
        "unsafe_code": unsafe_code,
        "completion_only": completion_only,
    }
    return {field: value for field, value in fields.items() if value != None and value != False}

def eval_suite(tasks, every, **attrs):
    """Tasks to score a training's exports on, every `every` steps: for `evals` of `train_lm`. `attrs` are further attributes of the `lm_eval` that does it."""
    return attrs | {"tasks": tasks, "every": every}

CORE_TASKS = [
    eval_task("agieval_lsat_ar", 3),
    eval_task("arc_easy", 10),
    eval_task("arc_challenge", 10),
    eval_task("boolq", 10),
    eval_task("commonsense_qa", 10),
    eval_task("copa", 0),
    eval_task("hellaswag", 0, task_alias = "hellaswag_0shot"),
    eval_task("hellaswag", 10, task_alias = "hellaswag_10shot"),
    eval_task("lambada_openai", 0),
    eval_task("openbookqa", 0),
    eval_task("piqa", 10),
    eval_task("wsc273", 0),
    eval_task("winogrande", 0),
]

KEY_GENERATION_TASKS = [
    eval_task("ifeval", 0, generation = True),
    eval_task("gsm8k_cot", 8, generation = True),
    eval_task("drop", 0, generation = True),
    eval_task("humaneval", 10, generation = True, unsafe_code = True),
    eval_task("bbh_cot_fewshot", 3, task_alias = "bbh", generation = True),
    eval_task("minerva_math", 4, task_alias = "math_4shot", generation = True),
]

KEY_MULTIPLE_CHOICE_TASKS = [
    eval_task("mmlu", 0, task_alias = "mmlu_0shot"),
    eval_task("mmlu", 5, task_alias = "mmlu_5shot"),
    eval_task("truthfulqa_mc2", 6, task_alias = "truthqa"),
]

MMLU_0_SHOT = eval_task("mmlu", 0, task_alias = "mmlu_0shot")
MMLU_5_SHOT = eval_task("mmlu", 5, task_alias = "mmlu_5shot")
MMLU_PRO_5_SHOT = eval_task("leaderboard_mmlu_pro", 5, task_alias = "mmlu_pro_5shot")

CORE_TASKS_PLUS_LEADERBOARD = [
    eval_task("leaderboard_bbh", 3, task_alias = "bbh_3shot"),
    eval_task("leaderboard_gpqa", 0, task_alias = "gpqa_0shot"),
] + CORE_TASKS

BASE_GENERATION_TASKS = [
    eval_task("bbh_cot_fewshot", 3, generation = True),
    eval_task("gsm8k_cot", 8, generation = True),
    eval_task("nq_open", 0, generation = True),
    eval_task("triviaqa", 0, generation = True),
]

OPEN_LM_LEADERBOARD_MCQ = [
    eval_task("leaderboard_bbh", 3, task_alias = "lb_bbh_3shot"),
    eval_task("leaderboard_mmlu_pro", 5, task_alias = "lb_mmlu_pro_5shot"),
    eval_task("leaderboard_gpqa", 0, task_alias = "lb_gpqa_0shot"),
    eval_task("leaderboard_musr", 0, task_alias = "lb_musr_0shot"),
]

OPEN_LM_LEADERBOARD_GEN = [
    eval_task("leaderboard_ifeval", 0, task_alias = "lb_ifeval_0shot", generation = True),
    eval_task("leaderboard_math_hard", 4, task_alias = "lb_math_4shot", generation = True),
]

DEFAULT_VLLM_ENGINE_KWARGS = {"max_model_len": 4096}
DEFAULT_LM_EVAL_MODEL_KWARGS = {"max_model_len": 4096, "max_gen_toks": 4096}

def core_tasks(every = 10000, **attrs):
    """`CORE_TASKS` every `every` steps: for `evals` of `train_lm`."""
    return eval_suite(CORE_TASKS, every, **attrs)

def _task(task, num_fewshot):
    """A task as written, checked: every field that bears identity, `num_fewshot` None where the task's own holds."""
    if type(task) == "string":
        task = {"name": task}
    if type(task) != "dict":
        fail("`tasks` holds names, or what `eval_task()` gives: dicts with a `name`")
    for field in task:
        if field not in _TASK_FIELDS:
            fail("a task has no field `%s`: it takes %s" % (field, ", ".join(["`%s`" % known for known in _TASK_FIELDS])))
        if type(task[field]) != _TASK_FIELDS[field]:
            fail("`%s` of a task must be of type %s" % (field, _TASK_FIELDS[field]))
    if not task.get("name"):
        fail("a task needs a `name`")
    if task.get("num_fewshot", 0) < 0:
        fail("`num_fewshot` of `%s` is negative" % task["name"])
    return task | {"num_fewshot": task.get("num_fewshot", num_fewshot)}

def _recorded(task):
    """A task as the recipe holds it."""
    return {
        "name": task["name"],
        "num_fewshot": task["num_fewshot"],
        "task_alias": task.get("task_alias", ""),
        "task_kwargs": task.get("task_kwargs", {}),
    } | {field: True for field in _FALSE_FIELDS if task.get(field)}

def _check_at_least(ctx, name, least):
    value = getattr(ctx.attr, name)
    if value != None and value < least:
        fail("`%s` is %d: it must be at least %d" % (name, value, least))

def _check_known(task, known, task_files, data, backend):
    """What the committed table of lm-eval's tasks tells of a task before anything runs."""
    name = task["name"]
    if not known["tasks"]:
        if not task_files:
            fail("there is no task `%s` in the locked lm-eval%s" % (name, "; " + known["near"] if known["near"] else ", and no `task_files` that define one"))
        return
    for leaf in known["tasks"]:
        kind = known["kinds"][leaf]
        if backend == "levanter" and kind == "rolling":
            fail("`%s` scores whole documents, which Levanter's harness cannot; write it as the likelihood of a text after a context" % leaf)
        if kind == "python" and leaf not in data:
            fail("`%s` is a task in Python, and what data it reads only its code knows; write it as a YAML file in `task_files`" % leaf)
        if known["datasets"][leaf] == None and kind != "python" and leaf not in data and name not in data:
            fail("`%s` reads files that nothing pins; give them as an input: data = {\"%s\": \"//some:target\"}" % (leaf, leaf))
        if leaf in known["unsafe"] and not task.get("unsafe_code"):
            fail("`%s` runs code that the model writes; allow it with `eval_task(\"%s\", unsafe_code = True)`" % (leaf, name))
    if task.get("generation") and not [leaf for leaf in known["tasks"] if known["kinds"][leaf] == "generate"]:
        fail("`generation` of `%s`: its answers are chosen, not written" % name)

def _hub_data(ctx, tasks, described, data):
    """Hub id to artifact, for the datasets that the tasks read: given in `data`, or downloaded at the lock's commit."""
    found = {}
    for task in tasks:
        known = described[task["name"]]
        for leaf in known["tasks"]:
            dataset = known["datasets"][leaf]
            if dataset != None and leaf not in data and task["name"] not in data:
                found[dataset] = True
    trees = {}
    for dataset in sorted(found.keys()):
        repo, _, revision = dataset.partition("@")
        if repo in data:
            trees[repo] = data[repo].TreeInfo.artifact
        else:
            trees[repo] = hub_tree(ctx, repo, revision or "main", name = "data." + repo.replace("/", "."), resources = cpu(ram = "1g"))
    return trees

def prepared_tasks(ctx, tasks, task_files, data, num_fewshot = None, backend = "levanter"):
    """Tasks as a recipe holds them (`tasks`, `data`, `hub`), the `inputs` that they read, and which of them are `unsafe`."""
    if not tasks:
        fail("`tasks` is empty: name at least one task")
    tasks = [_task(task, num_fewshot) for task in tasks]
    described = ctx.expand("lm_eval.tasks", [task["name"] for task in tasks])
    seen = {}
    for task in tasks:
        shown = task.get("task_alias") or task["name"]
        if shown in seen:
            fail("two tasks would be stored as `%s`: give one of them a `task_alias`" % shown)
        seen[shown] = True
    for task in tasks:
        _check_known(task, described[task["name"]], task_files, data, backend)
    inputs = {"task_files": default_artifacts(task_files)} if task_files else {}
    hub = _hub_data(ctx, tasks, described, data)
    names = {}
    for index, repo in enumerate(sorted(hub.keys())):
        names[repo] = "hub.%d" % index
        inputs["hub.%d" % index] = hub[repo]
    named = [name for name in data if name not in hub]
    for name in named:
        if "/" in name:
            fail("`data`: no task here reads the dataset `%s`" % name)
        inputs["data." + name] = data[name].TreeInfo.artifact
    return struct(
        tasks = [_recorded(task) for task in tasks],
        data = sorted(named),
        hub = names,
        inputs = inputs,
        unsafe = [task["name"] for task in tasks if task.get("unsafe_code")],
    )

def _checkpoints(ctx):
    """The trees to score, by step as text, and last the one without a step."""
    source = ctx.attr.checkpoint
    every = ctx.attr.every
    if not hasattr(source, "CheckpointInfo"):
        if not hasattr(source, "TreeInfo"):
            fail("`checkpoint`: `%s` is neither a training nor a tree with a Hugging Face model" % source.label)
        if every:
            fail("`every`: `%s` is one model, not a training with exports" % source.label)
        return {"": source.TreeInfo.artifact}
    info = source.CheckpointInfo
    steps = {}
    if every:
        if info.export_every == 0 and every < info.steps or info.export_every and every % info.export_every:
            fail("`every` = %d: `%s` exports %s; to export other steps it would be trained again, %d steps and %d tokens; take a multiple of its `export_every`" %
                 (every, source.label, "every %d steps" % info.export_every if info.export_every else "its last step only", info.steps, info.tokens))
        steps = {step: tree for step, tree in info.exports.items() if int(step) % every == 0}
    return steps | {"": info.hf}

def _lm_eval(ctx):
    for name, least in [
        ("num_fewshot", 0),
        ("limit", 1),
        ("nproc", 1),
        ("batch_size", 1),
        ("max_seq_len", 1),
        ("max_gen_toks", 1),
        ("every", 0),
    ]:
        _check_at_least(ctx, name, least)
    if ctx.attr.engine_kwargs and ctx.attr.backend != "vllm":
        fail("`engine_kwargs` are for the backend `vllm`; `max_seq_len` and `max_gen_toks` are what Levanter takes")
    prepared = prepared_tasks(
        ctx,
        ctx.attr.tasks,
        ctx.attr.task_files,
        ctx.attr.data,
        ctx.attr.num_fewshot,
        ctx.attr.backend,
    )
    params = {
        "tasks": prepared.tasks,
        "data": prepared.data,
        "limit": ctx.attr.limit,
        "batch_size": ctx.attr.batch_size,
        "max_seq_len": ctx.attr.max_seq_len,
        "mp": canonical_mp(ctx.attr.mp),
        "nproc": ctx.attr.nproc,
        "apply_chat_template": ctx.attr.apply_chat_template,
    }

    # Only what is not so by default: the others have the keys that they had before there was a choice.
    if prepared.hub:
        params["hub"] = prepared.hub
    if ctx.attr.max_gen_toks != None:
        params["max_gen_toks"] = ctx.attr.max_gen_toks
    if ctx.attr.backend != "levanter":
        params |= {"backend": ctx.attr.backend, "engine_kwargs": ctx.attr.engine_kwargs}
    if not ctx.attr.discover_latest_checkpoint:
        params["discover_latest_checkpoint"] = False

    outputs = {}
    steps = {}
    for step, tree in _checkpoints(ctx).items():
        made = ctx.actions.run(
            name = step,
            tool = "lm_eval",
            revision = 1,
            params = params,
            inputs = {"hf": tree} | prepared.inputs,
            outputs = {"scores": "file", "samples": "tree"},
            settings = {"unsafe_code": prepared.unsafe} if prepared.unsafe else {},
            outcome = "sampled",
            heavy = True,
        )
        for output in ["scores", "samples"]:
            outputs[output + ("." + step if step else "")] = made[output]
        if step:
            steps[step] = made["scores"]
    return [
        DefaultInfo(outputs = outputs),
        EvalInfo(scores = outputs["scores"], samples = outputs["samples"], steps = steps),
    ]

lm_eval = rule(
    implementation = _lm_eval,
    doc = "The scores of a checkpoint on lm-eval tasks: a small JSON, and the samples. With `every`, of a training's exports too.",
    attrs = {
        "checkpoint": attr.label(
            mandatory = True,
            doc = "what is scored: a training, of which the `hf` output is read; or a tree with a Hugging Face model",
        ),
        "tasks": attr.list(
            mandatory = True,
            doc = "names of tasks and of groups of tasks, or what `eval_task()` gives",
        ),
        "task_files": attr.label_list(
            default = [],
            doc = "YAML files of the workspace that define tasks; a relative path in `data_files` starts with a name in `data`",
        ),
        "data": attr.label_dict(
            default = {},
            providers = ["TreeInfo"],
            doc = "name to target: the data that task files refer to; with the name of a task or a group, its dataset; with the Hub id of a dataset, that dataset. What tasks read from the Hub and is not here is downloaded at the commit that marin.lock has",
        ),
        "num_fewshot": attr.int(doc = "for tasks that do not say; left out, the task's own default"),
        "limit": attr.int(doc = "at most this many documents of each task"),
        "batch_size": attr.int(default = 32, doc = "sequences scored at once"),
        "max_seq_len": attr.int(doc = "tokens of context; left out, the model's own"),
        "max_gen_toks": attr.int(doc = "tokens that a model may write for an answer; left out, 256"),
        "mp": attr.string(default = "f32", doc = "precision, as jmp writes it"),
        "nproc": attr.int(default = 1, doc = "cores that a CPU run computes with; ignored elsewhere"),
        "resources": attr.dict(bears = "execution", default = cpu(ram = "3g"), doc = "what an attempt needs"),
        "apply_chat_template": attr.bool(default = False, doc = "wrap requests in the tokenizer's chat template"),
        "every": attr.int(
            default = 0,
            doc = "score the exports of every so many steps too, as `scores.<step>`; a multiple of the training's `export_every`",
        ),
        "backend": attr.string(
            default = "levanter",
            values = ["levanter", "vllm"],
            doc = "what runs the model; one that is not installed is refused when it is to run",
        ),
        "engine_kwargs": attr.dict(default = {}, doc = "for the backend `vllm`: what its engine is given"),
        "discover_latest_checkpoint": attr.bool(
            default = True,
            doc = "of a tree that holds no model itself but `step-N` folders, take that of the last step",
        ),
    },
    toolchain = ["lm-eval", "marin-levanter", "marin-haliax", "jax", "jaxlib", "optax", "tokenizers", "transformers", "datasets"],
)

def default_eval(name, step, resource_config = tpu("v4-8"), evals = None, max_eval_instances = None, apply_chat_template = False, discover_latest_checkpoint = True, **attrs):
    """Scores the training or model `step` on `evals`, by default `CORE_TASKS`, through Levanter."""
    limit = {} if max_eval_instances == None else {"limit": max_eval_instances}
    lm_eval(
        name = name,
        checkpoint = step,
        tasks = CORE_TASKS if evals == None else evals,
        apply_chat_template = apply_chat_template,
        discover_latest_checkpoint = discover_latest_checkpoint,
        resources = resource_config,
        **(limit | attrs)
    )

def default_key_evals(name, step, resource_config, model_name = None, max_eval_instances = None, engine_kwargs = DEFAULT_LM_EVAL_MODEL_KWARGS, **attrs):
    """Two targets: `<name>_generation`, with vLLM, and `<name>_multiple_choice`, through Levanter. `model_name` is said in their artifacts' names."""
    limit = {} if max_eval_instances == None else {"limit": max_eval_instances}
    model = model_name or name
    lm_eval(
        name = name + "_generation",
        artifact = "evaluation/lm_evaluation_harness/%s/key_generation" % model,
        checkpoint = step,
        tasks = KEY_GENERATION_TASKS,
        backend = "vllm",
        engine_kwargs = engine_kwargs,
        resources = resource_config,
        **(limit | attrs)
    )
    lm_eval(
        name = name + "_multiple_choice",
        artifact = "evaluation/lm_evaluation_harness_levanter/%s/key_multiple_choice" % model,
        checkpoint = step,
        tasks = KEY_MULTIPLE_CHOICE_TASKS,
        resources = resource_config,
        **(limit | attrs)
    )
