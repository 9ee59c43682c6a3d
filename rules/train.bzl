"""Training: a Levanter language model from literals and a mixture."""

load("@marin//rules:common.bzl", "CheckpointInfo")
load("@marin//rules:mixture.bzl", "DEFAULT_SHUFFLE")
load("@marin//rules:resources.bzl", "cpu")

# jmp's names of what a policy may hold; `half` depends on the machine, and float64 needs a switch that is off.
_DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "f16": "float16",
    "float16": "float16",
    "full": "float32",
    "f32": "float32",
    "float32": "float32",
}
_ROLES = {
    "p": "params",
    "params": "params",
    "c": "compute",
    "compute": "compute",
    "o": "output",
    "output": "output",
}

def _dtype(name, mp):
    if name not in _DTYPES:
        fail("`mp` is `%s`: `%s` is no dtype it may hold (one of %s)" % (mp, name, ", ".join(_DTYPES.keys())))
    return _DTYPES[name]

def canonical_mp(mp):
    """The one spelling of a precision policy: `p=f32,c=bf16` means output in bfloat16 too, as jmp reads it."""
    if "=" not in mp:
        dtype = _dtype(mp, mp)
        roles = {"params": dtype, "compute": dtype, "output": dtype}
    else:
        roles = {}
        for part in mp.split(","):
            role, _, name = part.partition("=")
            if role not in _ROLES:
                fail("`mp` is `%s`: `%s` is none of `p`, `c` and `o`" % (mp, role))
            roles[_ROLES[role]] = _dtype(name, mp)
        params = roles.get("params", "float32")
        compute = roles.get("compute", params)
        roles = {"params": params, "compute": compute, "output": roles.get("output", compute)}
    return "params=%s,compute=%s,output=%s" % (roles["params"], roles["compute"], roles["output"])

def _check_at_least(ctx, name, least):
    value = getattr(ctx.attr, name)
    if value != None and value < least:
        fail("`%s` is %s: it must be at least %s" % (name, value, least))

def _mixture(dep):
    """What a training reads: a mixture, or one tokenized set as a mixture of itself."""
    if hasattr(dep, "MixtureInfo"):
        return dep.MixtureInfo
    if not hasattr(dep, "TokenizedInfo"):
        fail("`datasets`: `%s` is neither a mixture nor a tokenized set" % dep.label)
    info = dep.TokenizedInfo
    if info.validation:
        fail("`datasets`: `%s` is a validation set: it has nothing to train on" % dep.label)
    return struct(
        components = [{"name": info.name, "cache": info.cache, "weight": 1.0, "validation": False}],
        tokenizer = info.tokenizer,
        tokenizer_id = info.tokenizer_id,
        shuffle = DEFAULT_SHUFFLE,
    )

def _seq_len(ctx):
    longest = ctx.attr.model["max_seq_len"]
    if ctx.attr.seq_len == None:
        return longest
    if ctx.attr.seq_len > longest:
        fail("`seq_len` is %d, and the model's `max_seq_len` is %d" % (ctx.attr.seq_len, longest))
    return ctx.attr.seq_len

def _exports(ctx):
    """The steps before the last one that are exported too."""
    every, last = ctx.attr.export_every, ctx.attr.num_train_steps
    steps = list(range(every, last, every)) if every else []
    if len(steps) > 1000:
        fail("`export_every` = %d would export %d times in %d steps" % (every, len(steps), last))
    return steps

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
    ]:
        _check_at_least(ctx, name, least)
    parallel = ctx.attr.trainer["per_device_parallelism"]
    if parallel > 0 and ctx.attr.batch_size % parallel:
        fail("`batch_size` %d is not a multiple of `per_device_parallelism` %d" % (ctx.attr.batch_size, parallel))
    mixture = _mixture(ctx.attr.datasets)
    inputs = {"tokenizer": mixture.tokenizer}
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
    start = ctx.attr.init_from
    if start != None:
        if start.CheckpointInfo.model != ctx.attr.model:
            fail("`init_from`: the model of `%s` is another one" % start.label)
        if start.CheckpointInfo.tokenizer_id != mixture.tokenizer_id:
            fail("`init_from`: `%s` was trained with another tokenizer" % start.label)
        inputs["init"] = start.CheckpointInfo.native

    outputs = {"native": "tree", "hf": "tree", "metrics": "file"}
    for step in _exports(ctx):
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
            "seq_len": _seq_len(ctx),
            "num_train_steps": ctx.attr.num_train_steps,
            "z_loss_weight": ctx.attr.z_loss_weight,
            "mp": canonical_mp(ctx.attr.mp),
            "seed": ctx.attr.seed,
            "data_seed": ctx.attr.data_seed,
            "nproc": ctx.attr.nproc,
            "export_every": ctx.attr.export_every,
        },
        inputs = inputs,
        outputs = outputs,
        reporting = ["metrics"],
        # File names in it are random: two equal runs write other bytes.
        opaque = ["native"],
        settings = {
            "steps_per_eval": ctx.attr.steps_per_eval,
            "max_eval_batches": ctx.attr.max_eval_batches,
            "checkpoint_minutes": ctx.attr.checkpoint_minutes,
            "checkpoint_every_steps": ctx.attr.checkpoint_every_steps,
        },
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
        ),
    ]

train_lm = rule(
    implementation = _train_lm,
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
        "datasets": attr.label(mandatory = True, doc = "a mixture, or one tokenized set"),
        "batch_size": attr.int(mandatory = True, doc = "sequences a step"),
        "seq_len": attr.int(doc = "tokens a sequence; left out, the model's `max_seq_len`"),
        "num_train_steps": attr.int(
            mandatory = True,
            doc = "steps of the run; with 0 the model is only initialised, as a longer run begins",
        ),
        "z_loss_weight": attr.float(default = 0.0, doc = "weight of the z-loss"),
        "mp": attr.string(default = "p=f32,c=bfloat16", doc = "precision of parameters, computation and output, as jmp writes it"),
        "seed": attr.int(default = 0, doc = "seed of the initial weights, and of the data where `data_seed` is left out"),
        "data_seed": attr.int(doc = "seed of the order of the data"),
        "nproc": attr.int(default = 1, doc = "cores that a CPU run computes with, which changes bits; ignored elsewhere"),
        "export_every": attr.int(
            default = 0,
            doc = "export `hf.<step>` every so many steps before the last too; with 0 only the last step's `hf`",
        ),
        "init_from": attr.label(
            providers = ["CheckpointInfo"],
            doc = "a training from whose last state (the optimizer's too) this one starts, at step 0",
        ),
        "steps_per_eval": attr.int(bears = "reporting", default = 1000, doc = "evaluate the validation sets so often"),
        "max_eval_batches": attr.int(bears = "reporting", doc = "at most so many batches of each validation set"),
        "checkpoint_minutes": attr.float(
            bears = "execution",
            default = 10.0,
            doc = "a rolling checkpoint so often, from which a killed run goes on; with 0 none by time",
        ),
        "checkpoint_every_steps": attr.int(bears = "execution", doc = "a rolling checkpoint every so many steps as well"),
        "resources": attr.dict(bears = "execution", default = cpu(ram = "3g"), doc = "what an attempt needs"),
    },
    toolchain = ["marin-levanter", "marin-haliax", "jax", "jaxlib", "optax"],
)
