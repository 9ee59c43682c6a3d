"""Training: a Levanter language model from literals and a mixture."""

load("@marin//rules:common.bzl", "CheckpointInfo", "artifact_name")
load("@marin//rules:eval.bzl", "lm_eval", "prepared_tasks")
load("@marin//rules:mixture.bzl", "DEFAULT_SHUFFLE", "checked_components", "components_of", "validation_components")
load("@marin//rules:precision.bzl", "canonical_mp")
load("@marin//rules:resources.bzl", "cpu")

# Fields of a model that may differ between a training and what it starts from: no weight changes its place or shape.
_FREE_FIELDS = [
    "attn_backend",
    "flash_attention_block_size",
    "gradient_checkpointing",
    "initializer_range",
    "layer_norm_epsilon",
    "reference_checkpoint",
    "rope",
    "upcast_attn",
    "use_flash_attention",
]

# A model with learned positions has a weight for each of them.
_LEARNED_POSITIONS = ["gpt2"]

# Environment variables that change no weight: logs, trackers, transport, where memory comes from. All others are in
# the key.
_EXECUTION_ENV = [
    "GRPC_",
    "JAX_COMPILATION_CACHE_",
    "JAX_LOG",
    "JAX_PERSISTENT_CACHE_",
    "JAX_TRACEBACK_",
    "NCCL_DEBUG",
    "TF_CPP_",
    "TPU_",
    "WANDB_",
    "XLA_PYTHON_CLIENT_",
]
_OWNED_ENV = ["HF_HOME", "HF_HUB_OFFLINE", "HOME", "JAX_PLATFORMS", "NPROC", "PATH", "RUN_ID", "TMPDIR", "WANDB_RUN_ID"]
_SECRET_ENV = ["API_KEY", "PASSWORD", "SECRET", "TOKEN"]

def _check_at_least(ctx, name, least):
    value = getattr(ctx.attr, name)
    if value != None and value < least:
        fail("`%s` is %s: it must be at least %s" % (name, value, least))

def _mixture(ctx):
    """What is trained on: a mixture, or tokenized sets with weights; with the validation sets that are added to it."""
    datasets = ctx.attr.datasets
    if len(datasets) == 1 and hasattr(datasets[0][0], "MixtureInfo"):
        dep, weight = datasets[0]
        if weight != 1:
            fail("`datasets`: the mixture `%s` has a weight, and is all there is" % dep.label)
        info = dep.MixtureInfo
        components, shuffle, options = info.components, info.shuffle, info.options
        components = checked_components(components + validation_components(ctx.attr.validation))
        return struct(
            components = components,
            tokenizer = info.tokenizer,
            tokenizer_id = info.tokenizer_id,
            shuffle = info.shuffle,
            options = info.options,
        )
    for dep, _ in datasets:
        if not hasattr(dep, "TokenizedInfo"):
            fail("`datasets`: `%s` is neither a mixture nor a tokenized set" % dep.label)
        if dep.TokenizedInfo.validation:
            fail("`datasets`: `%s` is a validation set: it has nothing to train on" % dep.label)
    first = datasets[0][0].TokenizedInfo if datasets else None
    return struct(
        components = checked_components(components_of(datasets, ctx.attr.validation)),
        tokenizer = first.tokenizer,
        tokenizer_id = first.tokenizer_id,
        shuffle = DEFAULT_SHUFFLE,
        options = {},
    )

def _check_seq_len(ctx):
    longest = ctx.attr.model["max_seq_len"]
    if ctx.attr.seq_len > longest:
        fail("`seq_len` is %d, and the model's `max_seq_len` is %d" % (ctx.attr.seq_len, longest))

def _exports(ctx):
    """The steps before the last one that are exported too."""
    every, last = ctx.attr.export_every, ctx.attr.num_train_steps
    steps = list(range(every, last, every)) if every else []
    if len(steps) > 1000:
        fail("`export_every` = %d would export %d times in %d steps" % (every, len(steps), last))
    return steps

def _check_same_model(start, model):
    """The first field in which the model that `init_from` names is of another shape."""
    theirs = start.CheckpointInfo.model
    if theirs["type"] != model["type"]:
        fail("`init_from`: `%s` is a `%s`, and `model` is a `%s`" % (start.label, theirs["type"], model["type"]))
    for field in sorted(model.keys()):
        free = field in _FREE_FIELDS or (field == "max_seq_len" and model["type"] not in _LEARNED_POSITIONS)
        if not free and theirs.get(field) != model[field]:
            fail("`init_from`: `%s` of `%s` is %s, and that of `model` is %s" %
                 (field, start.label, json.encode(theirs.get(field)), json.encode(model[field])))

def _init(ctx, mixture):
    """The input that the training starts from, by the name that says what is taken of it."""
    start = ctx.attr.init_from
    if start == None:
        if ctx.attr.init_weights_only:
            fail("`init_weights_only` goes with `init_from`")
        return {}
    if not hasattr(start, "CheckpointInfo"):
        if not hasattr(start, "TreeInfo"):
            fail("`init_from`: `%s` is neither a training nor a tree with a Hugging Face model" % start.label)
        return {"init_hf": start.TreeInfo.artifact}
    _check_same_model(start, ctx.attr.model)
    info = start.CheckpointInfo
    if info.tokenizer_id != mixture.tokenizer_id:
        fail("`init_from`: `%s` was trained with another tokenizer" % start.label)
    if ctx.attr.init_weights_only:
        return {"init_weights": info.native}
    if info.optimizer["class"] != ctx.attr.optimizer["class"]:
        fail("`init_from`: `%s` was trained with `%s`, whose state is none for `%s`; with `init_weights_only = True` only its weights are taken" %
             (start.label, info.optimizer["type"], ctx.attr.optimizer["type"]))
    return {"init": info.native}

def _environment(ctx):
    """`env_vars` in two: those in the key, and those that change no weight."""
    identity, execution = {}, {}
    for name, value in ctx.attr.env_vars.items():
        if name in _OWNED_ENV:
            fail("`env_vars`: `%s` is set by `train_lm`" % name)
        if [end for end in _SECRET_ENV if name.endswith(end)]:
            fail("`env_vars`: `%s` looks like a secret, and would be stored; name it in `secrets`" % name)
        if [start for start in _EXECUTION_ENV if name.startswith(start)]:
            execution[name] = value
        else:
            identity[name] = value
    return identity, execution

def _secrets(secrets):
    """Where its key is set, Weights & Biases is told of the run."""
    return secrets if [name for name in secrets if name.startswith("WANDB_API_KEY")] else secrets + ["WANDB_API_KEY?"]

def _initialize(written):
    """With `evals`, declares `<name>.evals` beside, and exports what that scores."""
    suite = written.get("evals")
    if not suite:
        return written
    if type(suite) != "dict" or "tasks" not in suite or "every" not in suite:
        fail("`evals` are tasks and how often to score them: write it with `eval_suite(tasks, every)` or `core_tasks()`")
    if type(suite["every"]) != "int" or suite["every"] < 1:
        fail("`every` of `evals` must be a positive integer")
    attrs = {name: value for name, value in suite.items()}
    attrs |= {name: written[name] for name in ["visibility", "version"] if name in written}
    if "manual" in written.get("tags", []):
        attrs["tags"] = ["manual"]
    lm_eval(name = "%s.evals" % written["name"], checkpoint = ":%s" % written["name"], **attrs)
    changed = written | {"export_every": written.get("export_every", suite["every"])}
    if written.get("live_evals"):
        changed |= {"live_%s" % name: suite[name] for name in ["data", "task_files"] if name in suite}
    return changed

def _live(ctx):
    """What scores the tasks of `evals` during the training: the settings, and the inputs by the names they have here."""
    suite = ctx.attr.evals
    if not ctx.attr.live_evals:
        return None, {}
    if not suite:
        fail("`live_evals` goes with `evals`")
    prepared = prepared_tasks(ctx, suite["tasks"], ctx.attr.live_task_files, ctx.attr.live_data, suite.get("num_fewshot"))
    settings = {
        "tasks": prepared.tasks,
        "data": prepared.data,
        "hub": prepared.hub,
        "unsafe_code": prepared.unsafe,
        "every": suite["every"],
        "limit": suite.get("limit"),
    }
    return settings, {"live." + name: artifact for name, artifact in prepared.inputs.items()}

def _train_lm(ctx):
    for name, least in [
        ("batch_size", 1),
        ("seq_len", 2),
        ("num_train_steps", 0),
        ("nproc", 1),
        ("export_every", 0),
        ("steps_per_eval", 1),
        ("max_eval_batches", 1),
        ("checkpoint_every_steps", 1),
        ("checkpoint_minutes", 0.0),
        ("z_loss_weight", 0.0),
        ("seed", 0),
        ("data_seed", 0),
        ("tensor_parallel_size", 1),
    ]:
        _check_at_least(ctx, name, least)
    parallel = ctx.attr.trainer["per_device_parallelism"]
    if parallel > 0 and ctx.attr.batch_size % parallel:
        fail("`batch_size` %d is not a multiple of `per_device_parallelism` %d" % (ctx.attr.batch_size, parallel))
    _check_seq_len(ctx)
    mixture = _mixture(ctx)
    live, live_inputs = _live(ctx)
    inputs = {"tokenizer": mixture.tokenizer} | _init(ctx, mixture) | live_inputs
    components = []
    for index, component in enumerate(mixture.components):
        name = "data.%d" % index
        inputs[name] = component["cache"]
        components.append({
            "name": component["name"],
            "input": name,
            "weight": component["weight"],
            "validation": component["validation"],
        })

    identity_env, execution_env = _environment(ctx)
    exports = _exports(ctx)
    outputs = {"native": "tree", "hf": "tree", "metrics": "file"}
    for step in exports:
        outputs["hf.%d" % step] = "tree"
    made = ctx.actions.run(
        tool = "train_lm",
        revision = 1,
        params = {
            "model": ctx.attr.model,
            "optimizer": ctx.attr.optimizer,
            "trainer": ctx.attr.trainer,
            "components": components,
            "shuffle": mixture.shuffle,
            "batch_size": ctx.attr.batch_size,
            "seq_len": ctx.attr.seq_len,
            "num_train_steps": ctx.attr.num_train_steps,
            "z_loss_weight": ctx.attr.z_loss_weight,
            "mp": canonical_mp(ctx.attr.mp),
            "seed": ctx.attr.seed,
            "data_seed": ctx.attr.data_seed,
            "nproc": ctx.attr.nproc,
            "export_every": ctx.attr.export_every,
        } | ({"mixture": mixture.options} if mixture.options else {}),
        inputs = inputs,
        outputs = outputs,
        env = identity_env,
        reporting = ["metrics"],
        # File names in it are random: two equal runs write other bytes.
        opaque = ["native"],
        settings = {
            "steps_per_eval": ctx.attr.steps_per_eval,
            "max_eval_batches": ctx.attr.max_eval_batches,
            "checkpoint_minutes": ctx.attr.checkpoint_minutes,
            "checkpoint_every_steps": ctx.attr.checkpoint_every_steps,
            "tensor_parallel_size": ctx.attr.tensor_parallel_size,
            "wandb_project": ctx.attr.wandb_project,
            "wandb_group": ctx.attr.wandb_group,
            "run_id": ctx.attr.run_id or artifact_name(ctx),
            # That one is for patterns of targets, not for people who look for runs.
            "tags": [tag for tag in ctx.attr.tags if tag != "manual"],
            "env_vars": execution_env,
            "evals": ctx.attr.evals,
            "live": live,
        },
        secrets = _secrets(ctx.attr.secrets),
        outcome = "sampled",
        heavy = True,
    )
    return [
        DefaultInfo(outputs = made),
        CheckpointInfo(
            native = made["native"],
            hf = made["hf"],
            metrics = made["metrics"],
            tokenizer = mixture.tokenizer,
            tokenizer_id = mixture.tokenizer_id,
            model = ctx.attr.model,
            optimizer = ctx.attr.optimizer,
            exports = {"%d" % step: made["hf.%d" % step] for step in exports},
            steps = ctx.attr.num_train_steps,
            tokens = ctx.attr.num_train_steps * ctx.attr.batch_size * ctx.attr.seq_len,
            export_every = ctx.attr.export_every,
        ),
    ]

train_lm = rule(
    implementation = _train_lm,
    initializer = _initialize,
    doc = "A language model trained with Levanter: `native` (to go on from), `hf` (to read), `metrics`.",
    attrs = {
        "model": attr.dict(
            mandatory = True,
            schema = "levanter.LmConfig",
            doc = "the model, with `llama()` and others of models.bzl",
        ),
        "optimizer": attr.dict(
            mandatory = True,
            schema = "levanter.OptimizerConfig",
            doc = "the optimizer, with `adam()` of models.bzl, or another `type`",
        ),
        "trainer": attr.dict(
            default = {},
            schema = "levanter.TrainerConfig",
            doc = "further fields of Levanter's trainer that change weights",
        ),
        "datasets": attr.label_keyed_float_dict(
            mandatory = True,
            doc = "a mixture; or tokenized sets with their weights, or one of them",
        ),
        "validation": attr.label_list(
            default = [],
            providers = ["TokenizedInfo"],
            doc = "validation sets, besides those of the mixture",
        ),
        "batch_size": attr.int(mandatory = True, doc = "sequences a step"),
        "seq_len": attr.int(mandatory = True, doc = "tokens a sequence, at most the model's `max_seq_len`"),
        "num_train_steps": attr.int(
            mandatory = True,
            doc = "steps of the run; with 0 the model is only initialised, as a longer run begins",
        ),
        "z_loss_weight": attr.float(mandatory = True, doc = "weight of the z-loss; 0 for none"),
        "mp": attr.string(default = "p=f32,c=bfloat16", doc = "precision of parameters, computation and output, as jmp writes it"),
        "seed": attr.int(default = 0, doc = "seed of the initial weights, and of the data where `data_seed` is left out"),
        "data_seed": attr.int(doc = "seed of the order of the data"),
        "nproc": attr.int(default = 1, doc = "cores that a CPU run computes with, which changes bits; ignored elsewhere"),
        "export_every": attr.int(
            default = 0,
            doc = "export `hf.<step>` every so many steps before the last too, with `evals` by default as often as these; with 0 only the last step's `hf`",
        ),
        "evals": attr.dict(
            bears = "reporting",
            default = {},
            doc = "tasks to score exports on, from `core_tasks()` or `eval_suite()`: declares the target `<name>.evals`",
        ),
        "live_evals": attr.bool(
            default = False,
            doc = "score the tasks of `evals` during the training too, for its metrics; what data they read is then in the key",
        ),
        "live_data": attr.label_dict(default = {}, providers = ["TreeInfo"], doc = "set by `live_evals`: `data` of `evals`"),
        "live_task_files": attr.label_list(default = [], doc = "set by `live_evals`: `task_files` of `evals`"),
        "init_from": attr.label(
            doc = "a training from whose last state (the optimizer's too) this one starts, at step 0; or a tree with a Hugging Face model, whose weights it starts from",
        ),
        "init_weights_only": attr.bool(
            default = False,
            doc = "take only the weights of the training that `init_from` names, and begin with a new optimizer state",
        ),
        "env_vars": attr.string_dict(
            default = {},
            doc = "environment variables; those that only bear on logs, trackers or memory (`WANDB_`, `XLA_PYTHON_CLIENT_`, `TPU_`, ...) stay out of the key",
        ),
        "steps_per_eval": attr.int(bears = "reporting", default = 1000, doc = "evaluate the validation sets so often"),
        "max_eval_batches": attr.int(bears = "reporting", doc = "at most so many batches of each validation set"),
        "checkpoint_minutes": attr.float(
            bears = "execution",
            default = 10.0,
            doc = "a rolling checkpoint so often, from which a killed run goes on; with 0 none by time",
        ),
        "checkpoint_every_steps": attr.int(bears = "execution", doc = "a rolling checkpoint every so many steps as well"),
        "tensor_parallel_size": attr.int(
            bears = "execution",
            default = 1,
            doc = "devices that share each layer; as the number of devices, it changes the order of sums and no more",
        ),
        "wandb_project": attr.string(bears = "reporting", default = "marin", doc = "the project in Weights & Biases"),
        "wandb_group": attr.string(bears = "reporting", doc = "the group in Weights & Biases"),
        "run_id": attr.string(
            bears = "reporting",
            doc = "the run's name in Weights & Biases, left out the artifact's; its id is from the key",
        ),
        "resources": attr.dict(bears = "execution", default = cpu(ram = "3g"), doc = "what an attempt needs"),
    },
    toolchain = ["marin-levanter", "marin-haliax", "jax", "jaxlib", "optax"],
)
