"""Mixtures of tokenized corpora: weights and order, for a training to read. They run nothing."""

load("@marin//rules:common.bzl", "MixtureInfo")

# Marin's default: blocks of 256 sequences, shuffled in windows of 512 blocks.
DEFAULT_SHUFFLE = {"io_block_size": 256, "window_blocks": 512, "perm_type": "feistel"}

def _component(dep, weight, validation):
    info = dep.TokenizedInfo
    if info.validation and not validation:
        fail("`%s` is a validation set: it has no training split to put into `train`" % dep.label)
    if validation and not info.validation:
        fail("`%s` is a training set: give it `validation = True` to use it in `validation`" % dep.label)
    return {"name": info.name, "cache": info.cache, "weight": weight, "validation": validation}

def _check_names(deps):
    seen = {}
    for dep in deps:
        name = dep.TokenizedInfo.name
        if name in seen:
            fail("two components are named `%s`: `%s` and `%s`; give one of them another `component`" %
                 (name, seen[name], dep.label))
        seen[name] = dep.label

def _check_tokenizers(deps):
    first = deps[0]
    for dep in deps:
        if dep.TokenizedInfo.tokenizer_id != first.TokenizedInfo.tokenizer_id:
            fail("a mixture has one tokenizer: `%s` and `%s` were tokenized with different ones" % (first.label, dep.label))

def _check_weights(train):
    if not train:
        fail("`train` is empty: a mixture needs at least one component")
    total = 0.0
    for dep, weight in train:
        if weight == None:
            fail("the weight of `%s` is not a finite number" % dep.label)
        if weight < 0:
            fail("the weight of `%s` is negative" % dep.label)
        total += weight
    if total <= 0:
        fail("the weights in `train` add up to 0: at least one must be positive")

def _check_shuffle(shuffle):
    for key in shuffle:
        if key not in DEFAULT_SHUFFLE:
            fail("`shuffle` has no key `%s`: it takes `io_block_size`, `window_blocks` and `perm_type`" % key)
    whole = DEFAULT_SHUFFLE | shuffle
    for key in ["io_block_size", "window_blocks"]:
        if type(whole[key]) != "int" or whole[key] < 1:
            fail("`%s` of `shuffle` must be a positive integer" % key)
    if whole["perm_type"] not in ["feistel", "linear"]:
        fail("`perm_type` of `shuffle` must be `feistel` or `linear`")
    return whole

def _mixture(ctx):
    train, validation = ctx.attr.train, ctx.attr.validation
    _check_weights(train)
    deps = [dep for dep, _ in train] + validation
    _check_names(deps)
    _check_tokenizers(deps)

    # Levanter hands out shuffle keys in the order of components, so the order must not be that of a file.
    name = lambda component: component["name"]
    components = sorted([_component(dep, weight, False) for dep, weight in train], key = name)
    components += sorted([_component(dep, 0.0, True) for dep in validation], key = name)
    info = deps[0].TokenizedInfo
    return [
        DefaultInfo(outputs = {}),
        MixtureInfo(
            components = components,
            tokenizer = info.tokenizer,
            tokenizer_id = info.tokenizer_id,
            shuffle = _check_shuffle(ctx.attr.shuffle),
        ),
    ]

mixture = rule(
    implementation = _mixture,
    doc = "Tokenized corpora with the weights at which a training draws from them. Runs nothing.",
    attrs = {
        "train": attr.label_keyed_float_dict(
            mandatory = True,
            providers = ["TokenizedInfo"],
            doc = "training set to weight; only the proportions matter",
        ),
        "validation": attr.label_list(
            default = [],
            providers = ["TokenizedInfo"],
            doc = "validation sets: weight 0, evaluated during training",
        ),
        "shuffle": attr.dict(
            default = DEFAULT_SHUFFLE,
            doc = "block shuffle: `io_block_size` sequences a block, `window_blocks` blocks a window, `perm_type`",
        ),
    },
)
