"""How the actions of some targets stand in the cache: the key of each, as far as it is known, and its result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from marin_cas.action import Action, Built
from marin_cas.analysis.analysis import AnalysedTarget, Analysis
from marin_cas.cache.cache import Cache
from marin_cas.cli.session import Session
from marin_cas.digest import Digest
from marin_cas.label import Label
from marin_cas.recipe import Input
from marin_cas.result import Result
from marin_cas.scheduler.local import LocalCache


@dataclass(slots=True)
class Standings:
    """`keys` lacks what waits for an unbuilt input; `results` are the chosen ones. Only reads the cache."""

    analysis: Analysis
    cache: Cache
    keys: dict[str, Digest] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    lookup: LocalCache = field(init=False)

    def __post_init__(self) -> None:
        self.lookup = LocalCache(self.cache)

    @classmethod
    def of(cls, session: Session, labels: Iterable[Label]) -> Standings:
        """The standing of all that the labels need."""
        standings = cls(session.analyse(session.graph(labels)), session.cache)
        for action in standings.analysis.actions.values():
            standings._look_up(action)
        return standings

    def target(self, label: Label) -> AnalysedTarget:
        return self.analysis.targets[label]

    def _look_up(self, action: Action) -> None:
        if action.provisional:
            return  # its recipe lacks what marin.lock does not say yet
        published = self.lookup.published(action)
        result = published.result if published is not None else self.lookup.by_fingerprint(action.fingerprint)
        if result is not None:
            self.keys[action.id], self.results[action.id] = result.key, result
            return
        built = self.inputs(action)
        if all(name in built for name, source in action.inputs.items() if isinstance(source, Built)):
            key = action.recipe(built).key()
            self.keys[action.id] = key
            if (result := self.lookup.by_key(key)) is not None:
                self.results[action.id] = result

    def inputs(self, action: Action) -> dict[str, Input]:
        """The built inputs whose digests are known."""
        known: dict[str, Input] = {}
        for name, source in action.inputs.items():
            if isinstance(source, Built):
                result = self.results.get(source.action)
                if result is not None and source.output in result.outputs:
                    known[name] = Input(source.kind, result.outputs[source.output].digest)
        return known


def logs_of(cache: Cache, key: Digest) -> list[Path]:
    """The logs that are no part of a result, the newest last: the last failure's, and those in work folders (of the
    run under way, of killed runs and of those that `--keep-work` kept)."""
    found = [cache.root / "logs" / f"{key.hex}.log", *(cache.root / "work" / key.hex).glob("*/log")]
    return sorted((path for path in found if path.is_file()), key=lambda path: path.stat().st_mtime)
