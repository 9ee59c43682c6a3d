"""A build in progress, folded from its events: what runs, since when and how far, and the counts so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from marin_cas.scheduler import events
from marin_cas.scheduler.events import Event
from marin_cas.ui import words


@dataclass(slots=True)
class Running:
    """An action that runs or waits. `total` is 0 while unknown; `fields` are the tool's own numbers (loss, ...)."""

    name: str
    rule: str
    since: float
    done: float = 0.0
    total: float = 0.0
    unit: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    waits_for: str = ""

    def how_far(self) -> str:
        """`120/1000 steps, loss 4.21` or `1.5 MiB of 3.0 MiB`; empty when the tool told nothing."""
        if self.waits_for:
            return f"waits for {self.waits_for}"
        if self.unit == "bytes":
            parts = [words.size(int(self.done)) + (f" of {words.size(int(self.total))}" if self.total else "")]
            return ", ".join([*parts, *(f"{name} {number(value)}" for name, value in self.fields.items())])
        unit = f" {self.unit}" if self.unit else ""
        parts = [f"{number(self.done)}/{number(self.total)}{unit}"] if self.total else []
        if not parts and self.done:
            parts = [f"{number(self.done)}{unit}"]
        return ", ".join([*parts, *(f"{name} {number(value)}" for name, value in self.fields.items())])


@dataclass(slots=True)
class State:
    """`total` is the number of actions that the plan wants to run; `hits` counts what was served."""

    started: float = 0.0
    total: int = 0
    running: dict[str, Running] = field(default_factory=dict)
    executed: int = 0
    hits: int = 0
    failed: int = 0
    skipped: int = 0
    warnings: list[str] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        name = str(event.get("action") or event.get("label") or "")
        match event.event:
            case events.BUILD_STARTED:
                self.started = event.time
            case events.ACTION_STARTED:
                self.running[name] = Running(name, str(event.get("rule", "")), event.time)
            case events.ACTION_WAITING:
                entry = self.running.setdefault(name, Running(name, str(event.get("rule", "")), event.time))
                since = event.get("since")
                at = f", since {words.clock(since)}" if isinstance(since, int | float) else ""
                entry.waits_for = f"{event.get('holder', 'another build')}{at}"
            case events.PROGRESS:
                self._progress(name, event)
            case events.ACTION_FINISHED:
                self.running.pop(name, None)
                self._finished(event)
            case events.WARNING:
                self.warnings.append(str(event.get("message", "")))

    def _progress(self, name: str, event: Event) -> None:
        if (entry := self.running.get(name)) is None:
            return
        entry.done, entry.total = _float(event.get("done")), _float(event.get("total"))
        entry.unit = str(event.get("unit") or "")
        fields = event.get("fields")
        entry.fields = fields if isinstance(fields, Mapping) else {}

    def _finished(self, event: Event) -> None:
        if event.get("status") == "skipped":
            self.skipped += 1
        elif event.get("status") != "succeeded":
            self.failed += 1
        elif event.get("source") == events.EXECUTED:
            self.executed += 1
        else:
            self.hits += 1

    def line(self, now: float) -> str:
        """`3 run, 12 executed, 40 served, 1 failed, 2 min 05 s`."""
        parts = [
            f"{count:,} {word}"
            for count, word in (
                (len(self.running), "running"),
                (self.executed, "executed"),
                (self.hits, "served"),
                (self.failed, "failed"),
                (self.skipped, "skipped"),
            )
            if count
        ]
        return ", ".join([*parts, words.seconds(max(0.0, now - self.started))])


def number(value: object) -> str:
    """A number in few digits: whole ones as they are, others with four."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return str(value)
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
