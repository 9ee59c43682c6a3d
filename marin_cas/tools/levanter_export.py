"""Hugging Face folders of a training's weights, byte for byte the same for the same weights.

This Levanter asks jax to gather each tensor in a way that jax ignores for its meshes, and would then write the first
device's part as the whole: so tensors are gathered here, and one that is not whole stops the export.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import jax
from jax.sharding import NamedSharding, PartitionSpec
from levanter.compat import hf_checkpoints

from marin_cas.tools import levanter_rolling as rolling
from marin_cas.worker.context import ToolError


class Exporter:
    """Writes the folder that `folder_of` names for a step, and seals it."""

    def __init__(self, folder_of: Callable[[int], Path], tokenizer: Path, model: Any) -> None:
        self._folder_of = folder_of
        self._tokenizer = tokenizer
        self._model = model
        self._converter: Any = None

    def export(self, weights: Any, step: int) -> None:
        from levanter.tokenizers import load_tokenizer

        folder = self._folder_of(step)
        rolling.discard(folder)
        if self._converter is None:
            tokenizer = load_tokenizer(str(self._tokenizer))
            self._converter = self._model.hf_checkpoint_converter().replaced(tokenizer=tokenizer)
        with _gathering():
            self._converter.save_pretrained(weights, str(folder), save_reference_code=False)
        if jax.process_index() == 0:
            settle(folder)
            rolling.seal(folder, step)


@contextlib.contextmanager
def _gathering() -> Iterator[None]:
    save = hf_checkpoints.save_hf_shards

    def saving(shards: Any, load: Callable[[Any], Mapping[str, jax.Array]], *args: Any, **kwargs: Any) -> Any:
        return save(shards, lambda keys: Gathered(load(keys)), *args, **kwargs)

    with mock.patch.object(hf_checkpoints, "save_hf_shards", saving):
        yield


class Gathered(Mapping[str, jax.Array]):
    """Tensors that are whole on every device when they are asked for, and not before: a model may not fit there."""

    def __init__(self, tensors: Mapping[str, jax.Array]) -> None:
        self._tensors = tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, name: str) -> jax.Array:
        tensor = self._tensors[name]
        if isinstance(tensor.sharding, NamedSharding):
            whole = NamedSharding(tensor.sharding.mesh, PartitionSpec())
            tensor = jax.jit(lambda x: x, out_shardings=whole)(tensor)
        if (part := tensor.addressable_data(0).shape) != tensor.shape:
            raise ToolError(f"the tensor `{name}` of shape {tensor.shape} could not be gathered: a device has {part}")
        return tensor


def settle(folder: Path) -> None:
    """Takes out of an export what does not come from its weights: the version of a library that read them.

    Names the architecture that goes with the model's type: for some, Levanter names that of a sibling with images.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("transformers_version", None)
    config.pop("_name_or_path", None)
    if architecture := MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.get("model_type")):
        config["architectures"] = [architecture]
    path.write_text(json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
