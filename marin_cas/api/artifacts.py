"""What a step makes, once it is built: where its outputs lie, and the numbers that are in them.

Reading is lazy and goes to the files that a build has laid out; nothing here builds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from marin_cas.errors import BuildError, did_you_mean


@dataclass(frozen=True)
class Artifact:
    """`name@version`, its fingerprint as hex, and the places of its outputs by name."""

    name: str
    version: str
    fingerprint: str
    outputs: Mapping[str, Path]

    @property
    def path(self) -> str:
        """The output where there is one, else the folder of them all."""
        places = list(self.outputs.values())
        return str(places[0] if len(places) == 1 else places[0].parent)

    def output(self, name: str) -> Path:
        """The place of one output. Raises BuildError when there is none of that name."""
        if name in self.outputs:
            return self.outputs[name]
        hint = did_you_mean(name, self.outputs) or f"its outputs: {', '.join(self.outputs)}"
        raise BuildError(f"`{self.name}@{self.version}` has no output `{name}`", hint=hint)

    def _json(self, path: Path) -> Any:
        return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class TokenizedCache(Artifact):
    """Token ids in Levanter's cache format."""

    @property
    def cache_dir(self) -> str:
        """The folder that holds `train/` or `validation/`."""
        return str(self.output("cache"))

    @cached_property
    def stats(self) -> Mapping[str, Any]:
        """The counts that were written beside the token ids: `documents`, `tokens`, `vocab_size`, ..."""
        return self._json(self.output("cache") / "stats.json")

    @property
    def tokenizer(self) -> str:
        """What identifies the tokenizer: equal for equal ones."""
        return self.stats["tokenizer"]

    @property
    def num_train_tokens(self) -> int:
        """Tokens in all; 0 for a validation set."""
        return self.stats["tokens"] if self.stats["split"] == "train" else 0


@dataclass(frozen=True)
class LevanterCheckpoint(Artifact):
    """A trained model."""

    @property
    def checkpoint_dir(self) -> str:
        """Levanter's own checkpoint after the last step; of what was adopted, all of it."""
        return str(self.output("native" if "files" not in self.outputs else "files"))

    @property
    def hf_dir(self) -> str:
        """The Hugging Face export after the last step."""
        return str(self.output("hf"))

    def training_metrics(self) -> Mapping[str, Any]:
        """The summary of the training: `train/loss`, `eval/loss`, ..."""
        lines = self.output("metrics").read_text(encoding="utf-8").splitlines()
        summaries = [line["summary"] for line in map(json.loads, lines) if "summary" in line]
        return summaries[-1] if summaries else {}


@dataclass(frozen=True)
class LevanterEvalResult(Artifact):
    """The scores of a model."""

    @cached_property
    def scores(self) -> Mapping[str, Any]:
        """The whole of what was written: `tasks`, `averages`, `n_samples`, ..."""
        return self._json(self.output("scores"))

    def task_metrics(self) -> dict[str, dict[str, float]]:
        """The numbers of each task."""
        return {task: dict(numbers) for task, numbers in self.scores["tasks"].items()}

    def averages(self) -> dict[str, float]:
        """`macro_avg_...` (each task counts once) and `micro_avg_...` (each question)."""
        return dict(self.scores["averages"])
