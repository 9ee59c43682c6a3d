"""What a config's types do not say: values that the library would refuse late, or read in a way nobody means.

`problem` returns the first finding as plain data; it never raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Where to state what `train_lm` sets itself.
OWNED = {
    "tokenizer": "it is the tokenizer of the datasets",
    "seed": "use the attribute `seed`",
    "mp": "use the attribute `mp`",
    "train_batch_size": "use the attribute `batch_size`",
    "num_train_steps": "use the attribute `num_train_steps`",
    "steps_per_eval": "use the attribute `steps_per_eval`",
    "max_eval_batches": "use the attribute `max_eval_batches`",
    "checkpointer": "use the attributes `checkpoint_minutes` and `checkpoint_every_steps`",
    "initialize_from": "use the attribute `init_from`",
    "load_checkpoint": "a training resumes by itself",
    "load_checkpoint_path": "a training resumes by itself; to start from another's weights use `init_from`",
    "tracker": "metrics are an output of the target, and Weights & Biases has `wandb_project`",
    "wandb": "use the attributes `wandb_project` and `wandb_group`",
    "id": "use the attribute `run_id`",
    "mesh": "use the attribute `tensor_parallel_size`",
    "require_accelerator": "use the attribute `resources`",
    "distributed": "use the attribute `resources`",
}

type Finding = tuple[str, str, str | None]  # field, message, hint

_POSITIVE = ("max_seq_len", "hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "head_dim")
_FRACTIONS = ("warmup", "decay", "rewarmup", "cooldown", "cycle_length")
_NOT_NEGATIVE = ("learning_rate", "weight_decay", "min_lr_ratio", "max_grad_norm", "epsilon", "initializer_range")
# Switches of LlamaConfig that its Hugging Face form cannot state: its export fails after the last step.
_LLAMA = "levanter.models.llama.LlamaConfig"
_NOT_IN_HF_LLAMA = ("hybrid_norm", "use_qk_norm", "input_embedding_norm")


def problem(cls: str, config: Mapping[str, Any], stated: Mapping[str, Any]) -> Finding | None:
    """The first finding about an expanded config of class `cls`; `stated` is the literal as written."""
    for check in (_signs, _fractions, _heads, _cycles, _export):
        for finding in check(cls, config, stated):
            return finding
    return None


def skip_steps(value: Any) -> Any:
    """`skip_bad_steps` in one spelling: a window of N steps is the object that N stands for, True the default one."""
    if value is True:
        return {}
    if type(value) is int:
        return {"rolling_interval_length": value}
    return value


def _signs(cls: str, config: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Finding]:
    for field in _POSITIVE:
        if type(value := config.get(field)) is int and value < 1:
            yield field, f"`{value}` is not positive", None
    for field in _NOT_NEGATIVE:
        if type(value := config.get(field)) is float and value < 0:
            yield field, f"`{value}` is negative", None
    for field in ("beta1", "beta2", "momentum"):
        if type(value := config.get(field)) is float and not 0 <= value < 1:
            yield field, f"`{value}` is not in [0, 1)", None
    parallel = config.get("per_device_parallelism", -1)
    if parallel != -1 and parallel < 1:
        yield "per_device_parallelism", f"`{parallel}` is neither positive nor -1 (the whole batch)", None


def _fractions(cls: str, config: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Finding]:
    if "lr_schedule" not in config:
        return
    for field in _FRACTIONS:
        value = config.get(field)
        if type(value) is not float:
            continue
        if value < 0 or (value > 1 and value % 1):
            yield field, f"`{value}` is neither a fraction (at most 1.0) nor a whole number of steps", None
        if type(stated.get(field)) is int and value == 1:
            # Levanter reads 1 as all of the steps, and 2 as two steps.
            yield field, "`1` would mean all of the steps, not one", "write `1.0` for all, or at least 2 steps"


def _heads(cls: str, config: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Finding]:
    heads, kv_heads, hidden = config.get("num_heads"), config.get("num_kv_heads"), config.get("hidden_dim")
    if type(heads) is not int or type(hidden) is not int:
        return
    if type(kv_heads) is int and heads % kv_heads:
        hint = None if "num_kv_heads" in stated else f"its default is {kv_heads}; state it"
        yield "num_kv_heads", f"`num_heads` {heads} is not a multiple of `num_kv_heads` {kv_heads}", hint
    head_dim = config.get("head_dim")
    if head_dim is None and hidden % heads:
        yield "hidden_dim", f"`hidden_dim` {hidden} is not a multiple of `num_heads` {heads}", None
    if "rope" in config and (head_dim or hidden // heads) % 2:
        yield (
            "num_heads",
            f"a head of size {head_dim or hidden // heads} is odd, and rotary embeddings need even ones",
            None,
        )


def _cycles(cls: str, config: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Finding]:
    given = [field for field in ("cycle_length", "cycles", "haps") if config.get(field) is not None]
    if len(given) > 1:
        yield given[1], f"it excludes `{given[0]}`", "state one of them"


def _export(cls: str, config: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Finding]:
    if cls == _LLAMA:
        for field in _NOT_IN_HF_LLAMA:
            if config[field]:
                yield field, "a Llama with it has no Hugging Face form, so it could not be exported", None
