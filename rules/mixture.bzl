"""Mixtures of tokenized corpora: weights and order, for a training to read. They run nothing."""

load("@marin//rules:common.bzl", "MixtureInfo")

# Marin's default: blocks of 256 sequences, shuffled in windows of 512 blocks.
DEFAULT_SHUFFLE = {"io_block_size": 256, "window_blocks": 512, "perm_type": "feistel"}

# What Levanter does where a mixture says nothing else.
_BLOCK_SIZE = 2048
_STOP = "restart"

def _component(dep, weight, validation):
    info = dep.TokenizedInfo
    if info.validation and not validation:
        fail("`%s` is a validation set: it has no training split to put into `train`" % dep.label)
    if validation and not info.validation:
        fail("`%s` is a training set: give it `validation = True` to use it in `validation`" % dep.label)
    return {
        "name": info.name,
        "cache": info.cache,
        "weight": weight,
        "validation": validation,
        "documents": info.documents or [],
        "label": dep.label,
        "tokenizer_id": info.tokenizer_id,
    }

def _check_names(components):
    seen = {}
    for component in components:
        name = component["name"]
        if name in seen:
            fail("two components are named `%s`: `%s` and `%s`; give one of them another `component`" %
                 (name, seen[name], component["label"]))
        seen[name] = component["label"]

def _check_tokenizers(components):
    first = components[0]
    for component in components:
        if component["tokenizer_id"] != first["tokenizer_id"]:
            fail("a mixture has one tokenizer: `%s` and `%s` were tokenized with different ones" %
                 (first["label"], component["label"]))

def _check_held_out(components):
    """No validation set is made from what some training set with a weight is made from too."""
    trained = {}
    for component in components:
        if not component["validation"] and component["weight"] > 0:
            for document in component["documents"]:
                trained[document] = component["label"]
    for component in components:
        if component["validation"]:
            for document in component["documents"]:
                if document in trained:
                    fail("the validation set `%s` is also trained on: `%s` is made from the same documents; hold some out, or leave one of them out" %
                         (component["label"], trained[document]))

def _check_weights(train):
    if not train:
        fail("`train` is empty: a mixture needs at least one component")
    total = 0.0
    for dep, weight in train:
        if weight < 0:
            fail("the weight of `%s` is negative" % dep.label)
        total += weight
    if total <= 0:
        fail("the weights in `train` add up to 0: at least one must be positive")

def checked_components(components):
    """Components of one mixture in Levanter's order, which must not be that of a file: shuffle keys depend on it."""
    _check_names(components)
    _check_tokenizers(components)
    _check_held_out(components)
    training = [component for component in components if not component["validation"]]
    held_out = [component for component in components if component["validation"]]
    name = lambda component: component["name"]
    return sorted(training, key = name) + sorted(held_out, key = name)

def components_of(train, validation):
    """Components of training sets with weights, as `(dep, weight)`, and of validation sets."""
    _check_weights(train)
    return [_component(dep, weight, False) for dep, weight in train] + validation_components(validation)

def validation_components(deps):
    """Components of validation sets, evaluated during a training and not trained on."""
    return [_component(dep, 0.0, True) for dep in deps]

def _check_shuffle(shuffle):
    if type(shuffle) == "bool":
        return shuffle
    if type(shuffle) != "dict":
        fail("`shuffle` is True (everything), False (nothing), or the fields of a block shuffle")
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

def _options(ctx):
    """What is not Levanter's default: a mixture that says nothing of it has the keys it had without these."""
    options = {}
    if ctx.attr.mixture_block_size < 1:
        fail("`mixture_block_size` is %d: it must be at least 1" % ctx.attr.mixture_block_size)
    if ctx.attr.mixture_block_size != _BLOCK_SIZE:
        options["mixture_block_size"] = ctx.attr.mixture_block_size
    if ctx.attr.stop_strategy != _STOP:
        options["stop_strategy"] = ctx.attr.stop_strategy
    trained = [dep.label for dep, _ in ctx.attr.train]
    limits = {}
    for dep, batches in ctx.attr.max_train_batches or []:
        if dep.label not in trained:
            fail("`max_train_batches`: `%s` is not in `train`" % dep.label)
        if batches < 1 or batches != int(batches):
            fail("`max_train_batches` of `%s` must be a positive integer" % dep.label)
        limits[dep.TokenizedInfo.name] = int(batches)
    if limits:
        options["max_train_batches"] = limits
    return options

def _mixture(ctx):
    components = checked_components(components_of(ctx.attr.train, ctx.attr.validation))
    info = ctx.attr.train[0][0].TokenizedInfo
    return [
        DefaultInfo(outputs = {}),
        MixtureInfo(
            components = components,
            tokenizer = info.tokenizer,
            tokenizer_id = info.tokenizer_id,
            shuffle = _check_shuffle(ctx.attr.shuffle),
            options = _options(ctx),
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
        "shuffle": attr.value(
            default = DEFAULT_SHUFFLE,
            doc = "True: every sequence of a component may come anywhere; False: none is moved; or a block shuffle: `io_block_size` sequences a block, `window_blocks` blocks a window, `perm_type`",
        ),
        "max_train_batches": attr.label_keyed_float_dict(
            providers = ["TokenizedInfo"],
            doc = "training set to batches: draw on no more of it than makes so many batches of its own",
        ),
        "mixture_block_size": attr.int(
            default = _BLOCK_SIZE,
            doc = "in every block of so many sequences the components have their weights",
        ),
        "stop_strategy": attr.string(
            default = _STOP,
            values = ["restart", "first_exhausted", "all_exhausted"],
            doc = "when a component is used up: begin it again; stop at the first; or go on until all are",
        ),
    },
)
