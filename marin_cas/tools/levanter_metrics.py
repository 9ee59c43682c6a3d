"""Metrics of a training as JSON lines: one line a step, then one with a summary. No host, path or date gets in.

Levanter swallows what a tracker raises, so a failure to write is kept and raised again by `close`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levanter.tracker import Tracker, TrackerConfig

# Names that say on which machine it was, or how a library counts what `step` says already.
_SCORES = "lm_eval/"
_LEFT_OUT = ("global_step", "run_progress", "throughput/device_kind", "hardware_topology")


class MetricsFile:
    """Appends to a file that may hold the lines of an earlier attempt. `step` counts completed steps."""

    def __init__(self, path: Path, on_step: Callable[[int, Mapping[str, float]], None]) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._on_step = on_step
        self.last_step: int | None = None
        self._line: dict[str, float | None] = {}
        self.last: dict[str, float | None] = {}
        self.totals: dict[str, float | None] = {}
        self.problem: Exception | None = None

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        if step != self.last_step:
            self.flush()
            self.last_step = step
        values = _numbers(metrics)
        if not step:
            values.pop("train/loss", None)  # nothing was trained on yet, and Levanter says 0
        self._line.update(values)
        self.last.update(values)
        if "train/loss" in values:
            self._on_step(step, {"loss": values["train/loss"] or math.nan})

    def total(self, metrics: Mapping[str, Any]) -> None:
        self.totals.update(_numbers(metrics))

    def flush(self) -> None:
        if self._line and self.problem is None:
            try:
                self._file.write(_json({"step": self.last_step, **self._line}))
            except OSError as error:
                self.problem = error
        self._line = {}

    def close(self, summary: Mapping[str, Any]) -> None:
        self.flush()
        if self.problem is not None:
            raise self.problem
        self._file.write(_json({"summary": summary}))
        self._file.close()


class _FileTracker(Tracker):
    name = "marin_cas"

    def __init__(self, metrics: MetricsFile) -> None:
        self._metrics = metrics

    def log_hyperparameters(self, hparams: dict[str, Any]) -> None:
        pass

    def log(self, metrics: Mapping[str, Any], *, step: int | None, commit: bool | None = None) -> None:
        prepared = self._prepare_log(metrics)
        if step is None and any(name.startswith(_SCORES) for name in prepared):
            self._metrics.log(prepared, self._metrics.last_step or 0)  # Levanter does not say of which step they are
        elif step is None:
            self._metrics.total(prepared)
        else:
            self._metrics.log(prepared, int(step) + 1)

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        self._metrics.total(self._prepare_log(metrics))

    def log_artifact(self, artifact_path: Any, *, name: str | None = None, type: str | None = None) -> None:
        pass

    def finish(self) -> None:
        self._metrics.flush()


@TrackerConfig.register_subclass("marin_cas")
@dataclass(init=False)
class MetricsTracker(TrackerConfig):
    """A dataclass without fields: Levanter copies and prints those of its config, and this holds an open file."""

    def __init__(self, metrics: MetricsFile) -> None:
        self._metrics = metrics

    def init(self, run_id: str | None) -> Tracker:
        return _FileTracker(self._metrics)


def _numbers(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float | None]:
    """The scalars, by flat name; what is not finite is None, for JSON has no word for it."""
    found: dict[str, float | None] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if name in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            found |= _numbers(value, f"{name}/")
        elif not isinstance(value, str) and getattr(value, "ndim", 0) == 0:
            try:
                number = float(value)
            except (TypeError, ValueError):
                continue
            found[name] = (int(number) if isinstance(value, int) else number) if math.isfinite(number) else None
    return found


def _json(line: Mapping[str, Any]) -> str:
    return json.dumps(line, sort_keys=False, ensure_ascii=False) + "\n"
