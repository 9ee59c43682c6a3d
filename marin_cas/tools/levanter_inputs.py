"""The tokenized components of a training, checked before anything heavy is imported.

Levanter leaves out an incomplete component, or fails late with a traceback; here each such case has a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_cas.worker.context import ToolError

TRAIN, VALIDATION = "train", "validation"
_LEDGER = "shard_ledger.json"
# What Levanter opens besides the ledger; a cache whose copying was cut short may lack any of them.
_ARRAYS = ("input_ids/data/zarr.json", "input_ids/offsets/zarr.json")


@dataclass(frozen=True, slots=True)
class Component:
    """`folder` holds `train/` or `validation/`; `weight` is 0 for a validation set."""

    name: str
    folder: Path
    weight: float
    validation: bool
    documents: int
    tokens: int
    tokenizer: str


def read_components(described: Sequence[Mapping[str, Any]], inputs: Mapping[str, Path]) -> list[Component]:
    """Every component, training ones first, by name: Levanter hands out shuffle keys in the order it finds them in.

    ToolError naming the first that is not complete.
    """
    components = [_component(entry, inputs[entry["input"]]) for entry in described]
    return sorted(components, key=lambda component: (component.validation, component.name.encode()))


def check_components(components: Sequence[Component], *, tokenizer: str, seq_len: int) -> None:
    """ToolError unless all were made with `tokenizer` and each that is read has a whole sequence."""
    for component in components:
        if component.tokenizer != tokenizer:
            raise ToolError(
                f"component `{component.name}` was tokenized with another tokenizer than the mixture's "
                f"({component.tokenizer[:12]} instead of {tokenizer[:12]})",
                hint="tokenize all components of a mixture with one tokenizer",
            )
        if component.tokens < seq_len and (component.validation or component.weight > 0):
            raise ToolError(
                f"component `{component.name}` has {component.tokens} tokens, fewer than one sequence of {seq_len}",
                hint="give it more documents, or the training a smaller `seq_len`",
            )


def check_limits(components: Sequence[Component], params: Mapping[str, Any]) -> None:
    """ToolError when a component is too small for what `max_train_batches` takes of it."""
    limits = (params.get("mixture") or {}).get("max_train_batches") or {}
    for component in components:
        wanted = limits.get(component.name, 0) * params["batch_size"]
        held = component.tokens // params["seq_len"]
        if wanted > held:
            raise ToolError(
                f"component `{component.name}` has {held} sequences of {params['seq_len']} tokens, and "
                f"`max_train_batches` takes {limits[component.name]} batches of {params['batch_size']}",
                hint="take fewer batches of it",
            )


def _component(entry: Mapping[str, Any], folder: Path) -> Component:
    name = entry["name"]
    split = VALIDATION if entry["validation"] else TRAIN
    ledger = _ledger(name, folder / split)
    counts = ledger["field_counts"]
    return Component(
        name,
        folder,
        float(entry["weight"]),
        bool(entry["validation"]),
        ledger["total_num_rows"],
        counts.get("input_ids", 0),
        ledger["metadata"]["preprocessor_metadata"].get("tokenizer", ""),
    )


def _ledger(name: str, folder: Path) -> Mapping[str, Any]:
    path = folder / _LEDGER
    try:
        ledger = json.loads(path.read_text(encoding="utf-8"))
        finished = ledger["is_finished"] and ledger["field_counts"] is not None and ledger["metadata"] is not None
    except FileNotFoundError:
        raise _incomplete(name, f"it has no `{folder.name}/{_LEDGER}`") from None
    except (ValueError, KeyError, TypeError) as error:
        raise _incomplete(name, f"its `{folder.name}/{_LEDGER}` cannot be read ({error})") from None
    if not finished:
        raise _incomplete(name, f"its `{folder.name}/{_LEDGER}` says that it is not finished")
    for array in _ARRAYS:
        if not (folder / array).is_file():
            raise _incomplete(name, f"it has no `{folder.name}/{array}`")
    return ledger


def _incomplete(name: str, why: str) -> ToolError:
    return ToolError(
        f"component `{name}` is incomplete: {why}", hint="`marin cache verify` finds damage in what is stored"
    )
