"""The numbers that people look for at the end of a build: scores of evaluations, last losses of trainings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marin_cas.action import Built
from marin_cas.analysis.analysis import AnalysedTarget
from marin_cas.errors import MarinError
from marin_cas.result import Result
from marin_cas.store.base import Store
from marin_cas.ui.state import number

EVAL, CHECKPOINT = "EvalInfo", "CheckpointInfo"


@dataclass(frozen=True, slots=True)
class Numbers:
    """`scores` maps tasks to metrics; `losses` are the last values of a training, `step` where they were taken."""

    scores: Mapping[str, Mapping[str, float]]
    losses: Mapping[str, float]
    step: int | None = None

    def lines(self) -> Iterator[str]:
        """`topics  acc 0.4317 ± 0.022`, and `step 1,000  train/loss 4.2, eval/loss 4.5`."""
        for task, metrics in self.scores.items():
            yield f"{task}  {', '.join(_with_error(metrics))}"
        if self.losses:
            shown = ", ".join(f"{name} {number(value)}" for name, value in self.losses.items())
            yield f"step {self.step:,}  {shown}" if self.step is not None else shown

    def to_json(self) -> dict[str, object]:
        found: dict[str, object] = {}
        if self.scores:
            found["scores"] = self.scores
        if self.losses:
            found |= {"losses": self.losses, "step": self.step}
        return found


def numbers(target: AnalysedTarget, results: Callable[[str], Result | None], store: Store) -> Numbers | None:
    """The numbers of an evaluation or a training that has a result; None for anything else, or when they are gone."""
    scores: Mapping[str, Mapping[str, float]] = {}
    losses: dict[str, float] = {}
    step = None
    if (text := _text(target, EVAL, "scores", results, store)) is not None:
        scores = _scores(text)
    if (text := _text(target, CHECKPOINT, "metrics", results, store)) is not None:
        step, losses = _losses(text)
    return Numbers(scores, losses, step) if scores or losses else None


def _text(
    target: AnalysedTarget, provider: str, field: str, results: Callable[[str], Result | None], store: Store
) -> str | None:
    handle = target.providers.get(provider, {}).get(field)
    artifact = getattr(handle, "artifact", None)
    if not isinstance(artifact, Built) or artifact.action not in target.actions:
        return None  # a provider that is handed on: its own target shows it
    result = results(artifact.action)
    output = result.outputs.get(artifact.output) if result else None
    if output is None or output.kind != "file":
        return None
    try:
        data = store.read(output.digest)
    except MarinError:
        return None  # it is only shown; whoever needs the bytes says what is wrong with them
    return None if data is None else data.decode("utf-8", "replace")


def _scores(text: str) -> dict[str, dict[str, float]]:
    try:
        tasks = json.loads(text)["tasks"]
        return {
            str(task): {str(name): value for name, value in metrics.items() if _is_number(value)}
            for task, metrics in tasks.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _losses(text: str) -> tuple[int | None, dict[str, float]]:
    step: int | None = None
    losses: dict[str, float] = {}
    for line in text.splitlines():
        try:
            fields: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        if not isinstance(fields, dict):
            continue
        if isinstance(fields.get("step"), int):
            step = fields["step"]
        for name, value in fields.items():
            if name.rsplit("/", 1)[-1] == "loss" and _is_number(value):
                losses[name] = value
    return step, losses


def _with_error(metrics: Mapping[str, float]) -> Iterator[str]:
    for name, value in metrics.items():
        if name.endswith("_stderr") and name.removesuffix("_stderr") in metrics:
            continue
        error = metrics.get(f"{name}_stderr", 0.0)
        # An error that is only rounding says nothing.
        yield f"{name} {number(value)}" + (f" ± {error:.2g}" if error > 1e-9 * abs(value) else "")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
