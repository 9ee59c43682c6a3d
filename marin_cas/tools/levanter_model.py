"""Levanter's model configs bound to local files: none of them asks a hub for a tokenizer or a reference."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from marin_cas.tools import levanter_schema
from marin_cas.worker.context import ToolError

# Model types of transformers whose config in Levanter has another name.
_NAMES = {"qwen2": "qwen", "gemma3_text": "gemma3"}
# Fields of a model that its Hugging Face form does not hold, or that change no shape.
_NOT_IN_HF = frozenset(
    {
        *("attn_backend", "class", "flash_attention_block_size", "gradient_checkpointing", "initializer_range"),
        *("layer_norm_epsilon", "max_seq_len", "reference_checkpoint", "rope", "scan_layers", "tokenizer", "type"),
        *("upcast_attn", "use_flash_attention", "vocab_size"),
    }
)


def at_home(config: Any, folder: Path) -> Any:
    """The config with its tokenizer and its reference in `folder`.

    Where a config has no field for that, its converter is told: it would else ask a hub for those of the model that
    made the architecture known.
    """
    fields = {field.name for field in dataclasses.fields(config)}
    if "tokenizer" in fields:
        return dataclasses.replace(config, tokenizer=str(folder))
    base: Any = type(config)
    if not hasattr(base, "hf_checkpoint_converter"):
        return config

    class AtHome(base):
        def hf_checkpoint_converter(self, ref_checkpoint: str | None = None) -> Any:
            return super().hf_checkpoint_converter(ref_checkpoint or str(folder))

    AtHome.__name__, AtHome.__qualname__ = base.__name__, base.__qualname__
    bound = object.__new__(AtHome)
    bound.__dict__.update(config.__dict__)
    return bound


def build_model(expanded: Mapping[str, Any], tokenizer: Path) -> Any:
    """The config object of an expanded model config, with the tokenizer of a training."""
    return at_home(levanter_schema.build(expanded), tokenizer)


def from_hf(folder: Path) -> Any:
    """Levanter's config of the model in a Hugging Face folder, bound to it. ToolError when it does not hold one."""
    from levanter.models.lm_model import LmConfig

    hf_config = _hf_config(folder)
    name = _NAMES.get(hf_config.model_type, hf_config.model_type)
    choices = levanter_schema.choices_of(LmConfig)
    if name not in choices:
        raise ToolError(
            f"Levanter has no model of the type `{hf_config.model_type}`", where=f"{folder.name}/config.json"
        )
    config = choices[name].from_hf_config(hf_config)  # type: ignore[attr-defined]
    if hasattr(config, "reference_checkpoint"):
        config = dataclasses.replace(config, reference_checkpoint=str(folder))
    return at_home(config, folder)


def check_start(folder: Path, model: Mapping[str, Any], vocabulary: int) -> int:
    """The vocabulary of the model in a Hugging Face folder, which may have been made larger than its tokenizer's.

    ToolError unless it is of the architecture and has the vocabulary asked for.
    """
    from levanter.models.lm_model import LmConfig

    theirs = levanter_schema.expand_instance(from_hf(folder), LmConfig)
    if theirs["type"] != model["type"]:
        raise ToolError(f"`init_from` holds a `{theirs['type']}`, and `model` is a `{model['type']}`")
    for field, left, right in _differences(theirs, model):
        raise ToolError(
            f"`{field}` of the model in `init_from` is {json.dumps(left)}, and that of `model` is {json.dumps(right)}",
            hint="state the model as it was trained",
        )
    size = _hf_config(folder).vocab_size
    if size < vocabulary:
        raise ToolError(
            f"the tokenizer has {vocabulary:,} tokens, and the model in `init_from` only {size:,}",
            hint="tokenize with the tokenizer that the model was trained with",
        )
    return size


def padded(tokenizer: Any, size: int) -> Any:
    """The tokenizer with a length that counts what a model has embeddings for."""
    return dataclasses.replace(tokenizer, _vocab_size=size) if size > len(tokenizer) else tokenizer


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for field in sorted(ours.keys() - _NOT_IN_HF):
        left, right = theirs.get(field), ours[field]
        if field == "head_dim" and None in (left, right):  # left out, it is what heads share
            left, right = (value or config["hidden_dim"] // config["num_heads"]
                           for value, config in ((left, theirs), (right, ours)))  # fmt: skip
        if left != right:
            yield field, left, right


def _hf_config(folder: Path) -> Any:
    import levanter.config  # noqa: F401  (registers what a config may name)
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise ToolError("there is no `config.json` of a Hugging Face model", where=folder.name)
    return AutoConfig.from_pretrained(str(folder))
