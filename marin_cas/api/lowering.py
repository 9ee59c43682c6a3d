"""Steps to analysed targets, in a program that runs by itself: the same loader, graph and analysis as the commands."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_cas.api import workshop
from marin_cas.api.loading import ScriptLoader
from marin_cas.api.scripts import read
from marin_cas.api.step import ArtifactStep
from marin_cas.errors import RequestError
from marin_cas.label import Label
from marin_cas.workspace import Workspace

if TYPE_CHECKING:
    from marin_cas.analysis.analysis import Analysis
    from marin_cas.cache.cache import Cache
    from marin_cas.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A step as a target. `provisional`: marin.lock lacks what its fingerprint (hex) depends on."""

    step: ArtifactStep[Any]
    label: Label
    fingerprint: str
    provisional: bool

    @property
    def name(self) -> str:
        return self.step.name

    @property
    def version(self) -> str:
        return self.step.version


@dataclass(frozen=True, slots=True)
class Lowered:
    """Some steps with all that they need, analysed. `labels` are those of the steps, in their order."""

    workspace: Workspace
    loader: ScriptLoader
    labels: tuple[Label, ...]
    graph: Graph
    analysis: Analysis

    def spec(self, step: ArtifactStep[Any]) -> StepSpec:
        label = self.loader.label(step)
        action = self.analysis.actions.get(str(label))
        if action is None:
            raise RequestError(
                f"`{step}` runs nothing, so it has no fingerprint",
                where=step.location,
                hint="ask for that of what is made from it",
            )
        return StepSpec(step, label, action.fingerprint.hex(), action.provisional)


def lowered(steps: Iterable[ArtifactStep[Any]]) -> Lowered:
    """The steps as targets of the workspace at hand. Raises RequestError, located, for what cannot be."""
    from marin_cas.analysis.analysis import analyse
    from marin_cas.analysis.lock import read_lock
    from marin_cas.analysis.sources import Sources
    from marin_cas.graph.graph import load_graph

    steps = list(steps)
    workspace = workshop.open_here()
    loader = ScriptLoader(workshop.current().loader, read)
    labels = loader.add(steps)
    graph = load_graph(loader, labels, workspace.config.define, workspace.config.profile)
    sources = Sources(workspace.root, cache_of(workspace).stats)
    analysis = analyse(graph, loader, read_lock(workspace.root), sources)
    return Lowered(workspace, loader, labels, graph, analysis)


def lower(step: ArtifactStep[Any]) -> StepSpec:
    """The target that a step is, analysed: for `StepRunner`, or to look at. Raises RequestError for what cannot be."""
    return lowered([step]).spec(step)


def place(step: ArtifactStep[Any]) -> str:
    """Where a build puts the step's outputs for people: `out/` in the cache, then the label."""
    workspace = workshop.open_here()
    loader = ScriptLoader(workshop.current().loader, read)
    (label,) = loader.add([step])
    return str(workspace.cache / "out" / label.path)


_caches: dict[Path, Cache] = {}


def cache_of(workspace: Workspace) -> Cache:
    """The workspace's cache, open until the program ends."""
    cache = _caches.get(workspace.cache)
    if cache is None:
        from marin_cas.cache.cache import open_cache

        cache = _caches[workspace.cache] = open_cache(workspace.cache)
        atexit.register(cache.close)
    return cache
