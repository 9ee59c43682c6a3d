"""Analysis of a mini workspace inside the test's own process: every action with all that is in its key."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from marin_cas.action import Built
from marin_cas.analysis.analysis import Analysis, analyse
from marin_cas.analysis.lock import Lock, read_lock
from marin_cas.analysis.sources import Sources
from marin_cas.cache.stats import StatCache
from marin_cas.digest import Digest
from marin_cas.graph.graph import load_graph
from marin_cas.graph.pattern import expand
from marin_cas.lang.loader import Loader
from tests.identity.space import RULES


def analysed(root: Path, *, lock: Lock | None = None, patterns: Iterable[str] = ("//...",)) -> Analysis:
    loader = Loader(root, RULES)
    graph = load_graph(loader, expand(loader, list(patterns), ""), {}, None)
    stats = StatCache(root.parent / f"{root.name}-stats.db")
    try:
        return analyse(graph, loader, read_lock(root) if lock is None else lock, Sources(root, stats))
    finally:
        stats.close()


def fingerprint(analysis: Analysis, label: str) -> bytes:
    """Of a target's own action, not of further ones."""
    return analysis.actions[label].fingerprint


def key(analysis: Analysis, label: str) -> Digest | None:
    """The key, where no input has to be built first."""
    action = analysis.actions[label]
    if any(isinstance(source, Built) for source in action.inputs.values()):
        return None
    return action.recipe({}).key()
