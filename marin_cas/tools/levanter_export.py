"""Hugging Face folders of a training's weights, byte for byte the same for the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from marin_cas.tools import levanter_rolling as rolling


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
        self._converter.save_pretrained(weights, str(folder), save_reference_code=False)
        if jax.process_index() == 0:
            settle(folder)
            rolling.seal(folder, step)


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
