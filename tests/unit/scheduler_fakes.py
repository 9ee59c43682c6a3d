"""A world in memory for the scheduler's tests: actions in a few words, a cache of dicts, tools that are functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from marin_cas.action import EXACT, Action, Built, OutputSpec, Resources
from marin_cas.analysis.analysis import AnalysedTarget, Analysis
from marin_cas.digest import Digest
from marin_cas.errors import BuildError, Location, MarinError
from marin_cas.label import Label
from marin_cas.recipe import Recipe
from marin_cas.result import Output, Producer, Result
from marin_cas.scheduler.build import Build
from marin_cas.scheduler.events import EventLog
from marin_cas.scheduler.frontier import Mode
from marin_cas.scheduler.lookup import Publication
from marin_cas.scheduler.plan import Options, plan
from marin_cas.scheduler.task import Control, End, Outcome, Task

NOBODY = Producer("somebody", "somewhere")


def label_of(name: str) -> Label:
    return Label("x", name)


class Declared:
    """Actions in the order they are declared: `add("b", ["a"], lr=0.1)` is `//x:b`, which reads `//x:a`."""

    def __init__(self) -> None:
        self.actions: dict[str, Action] = {}
        self.targets: dict[Label, AnalysedTarget] = {}

    def add(
        self,
        name: str,
        needs: Iterable[str] = (),
        *,
        outcome: str = EXACT,
        resources: Resources | None = None,
        outputs: Iterable[str] = ("data",),
        tool: str = "tool",
        same_as: str = "",
        **params: Any,
    ) -> str:
        label = label_of(name)
        params.setdefault("what", same_as or name)
        inputs = {}
        for number, need in enumerate(needs):
            producer, _, output = need.partition(".")
            inputs[f"in{number}"] = Built(str(label_of(producer)), output or "data", "file")
        action = Action(
            id=str(label),
            label=label,
            rule="rule",
            location=Location("x/BUILD.marin", len(self.actions) + 1),
            tool=tool,
            revision=1,
            params=params,
            inputs=inputs,
            outputs={output: OutputSpec("file", output == "metrics") for output in outputs},
            fingerprint=b"",
            outcome=outcome,
            resources=resources or Resources(ram=1),
            artifact=f"{name}@dev",
        )
        # Not the real one, which takes half the time of a test with a long chain.
        below = [self.actions[source.action].fingerprint.hex() for source in inputs.values()]
        fingerprint = Digest.of(repr([outcome, list(outputs), tool, params, below]).encode()).hash
        self.actions[action.id] = replace(action, fingerprint=fingerprint)
        built = {output: Built(action.id, output, "file", output == "metrics") for output in outputs}
        target: Any = SimpleNamespace(label=label, kind="rule")
        self.targets[label] = AnalysedTarget(target, {}, (action.id,), built)
        return action.id

    def analysis(self) -> Analysis:
        return Analysis(self.actions, self.targets)


@dataclass
class World:
    """A cache (Lookup and Ledger) and a runner. `blobs` are what the store has; `failing` ids whose tool fails."""

    results: dict[Digest, Result] = field(default_factory=dict)
    attempts: list[Result] = field(default_factory=list)
    recipes: dict[Digest, Recipe] = field(default_factory=dict)
    fingerprints: dict[bytes, Digest] = field(default_factory=dict)
    history: dict[str, list[Digest]] = field(default_factory=dict)
    tainted: dict[Digest, str] = field(default_factory=dict)
    refused: dict[str, MarinError] = field(default_factory=dict)
    publications: dict[str, Publication] = field(default_factory=dict)
    changed: set[bytes] = field(default_factory=set)
    blobs: set[Digest] = field(default_factory=set)
    linked: dict[Label, Mapping[str, Output]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    content: dict[str, Callable[[Task], bytes]] = field(default_factory=dict)
    before_run: Callable[[Task, Control], None] | None = None
    running: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    # Lookup

    def by_fingerprint(self, fingerprint: bytes) -> Result | None:
        self.asked.append(fingerprint)
        key = self.fingerprints.get(fingerprint)
        result = None if key is None else self.by_key(key)
        return result if result and self.changed.isdisjoint(result.producer_keys) else None

    def by_key(self, key: Digest) -> Result | None:
        return None if key in self.tainted else self.results.get(key)

    def missing(self, result: Result, outputs: Iterable[str]) -> Digest | None:
        return next((d for name in outputs if (d := result.outputs[name].digest) not in self.blobs), None)

    def taint(self, key: Digest) -> str | None:
        return self.tainted.get(key)

    def blame(self, action: Action) -> tuple[str, str] | None:
        key = self.fingerprints.get(action.fingerprint)
        below = () if key is None else self.results[key].producer_keys
        labels = {keys[-1]: label for label, keys in self.history.items()}
        return next(((f"`{labels[k]}`", why) for k, why in self.tainted.items() if k.hash in below), None)

    def refusal(self, action: Action) -> MarinError | None:
        return self.refused.get(action.id)

    def published(self, action: Action) -> Publication | None:
        return self.publications.get(action.id)

    def latest(self, label: str) -> Recipe | None:
        return self.recipes[self.history[label][-1]] if label in self.history else None

    # Ledger

    def record(
        self, action: Action, result: Result, also: frozenset[bytes] = frozenset(), *, filed: bool = True
    ) -> None:
        if filed:
            self.fingerprints[action.fingerprint] = result.key
        if self.history.get(action.id, [None])[-1] != result.key:
            self.history.setdefault(action.id, []).append(result.key)

    def link(self, label: Label, outputs: Mapping[str, Output]) -> Mapping[str, Path]:
        self.linked[label] = outputs
        return {name: Path(f"out/{label.path}/{name}") for name in outputs}

    def consumers(self, key: Digest) -> tuple[str, ...]:
        latest = ((label, self.by_key(keys[-1])) for label, keys in self.history.items())
        return tuple(label for label, result in latest if result and key.hash in result.producer_keys)

    # Runner

    def run(self, task: Task, control: Control) -> Outcome:
        with self.lock:
            self.ran.append(task.action.id)
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            if self.before_run is not None:
                self.before_run(task, control)
            if control.cancelled():
                return Outcome(End.CANCELLED, status="cancelled")
            return self._run(task)
        finally:
            with self.lock:
                self.running -= 1

    def _run(self, task: Task) -> Outcome:
        if any(source.digest not in self.blobs for source in task.recipe.inputs.values()):
            return Outcome(End.VANISHED, status="infra")
        if task.action.id in self.failing:
            return Outcome(End.FAILED, error=BuildError(f"`{task.action.id}` failed"), status="failed")
        data = self.content.get(task.action.id, _default)(task)
        made = self.result(task, data)
        chosen = self.by_key(task.key)
        with self.lock:
            self.blobs.update(output.digest for output in made.outputs.values())
            self.recipes[task.key] = task.recipe
            if chosen is None:
                self.results[task.key] = made
                self.tainted.pop(task.key, None)
                return Outcome(End.COMPARED if task.mode is Mode.CHECK else End.RAN, made)
            if task.mode is Mode.BUILD:
                return Outcome(End.SERVED, chosen, holder="somebody")
            differences = tuple(f"out/{n}" for n, o in made.outputs.items() if chosen.outputs[n] != o)
            if task.mode is Mode.CHECK:
                self.attempts += [made] if differences else []
                return Outcome(End.COMPARED, chosen, differences=differences)
            if not differences:
                return Outcome(End.RAN, chosen)
            if task.mode is Mode.AGAIN or task.replace:
                self.changed.add(task.key.hash)
                self.attempts.append(chosen)
                self.results[task.key] = made
                return Outcome(End.RAN, made, differences=differences, replaced=True)
            self.attempts.append(made)
            return Outcome(End.DIFFERS, chosen, differences=differences)

    def result(self, task: Task, data: bytes) -> Result:
        outputs = {
            name: Output("file", Digest.of(data + name.encode()), spec.reporting)
            for name, spec in task.action.outputs.items()
        }
        return Result(
            task.key,
            task.action.fingerprint,
            task.action.outcome,
            outputs,
            NOBODY,
            0.0,
            0.0,
            producer_keys=task.producer_keys,
        )

    # Shorthands

    def build(self, declared: Declared, *roots: str, log: EventLog | None = None, **options: Any):
        self.ran.clear()
        options.setdefault("jobs", 4)
        labels = [label_of(root) for root in roots]
        return Build(declared.analysis(), labels, self, self, self, Options(**options), log).run()

    def plan(self, declared: Declared, *roots: str, **options: Any):
        return plan(declared.analysis(), [label_of(root) for root in roots], self, Options(**options))

    def drop(self, *names: str) -> None:
        """The bytes of these targets' latest results are gone."""
        for name in names:
            result = self.results[self.history[str(label_of(name))][-1]]
            self.blobs -= {output.digest for output in result.outputs.values()}

    def key(self, name: str) -> Digest:
        return self.history[str(label_of(name))][-1]


def _default(task: Task) -> bytes:
    return b"made by " + task.key.hash


def names(ids: Iterable[str]) -> list[str]:
    return [id.rpartition(":")[2] for id in ids]
