"""Which results a finished build makes roots of: those behind its requested targets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from marin_cas.analysis.analysis import Analysis
from marin_cas.digest import Digest
from marin_cas.label import Label
from marin_cas.scheduler.plan import closure, wanted_actions
from marin_cas.scheduler.report import ActionOutcome


def kept_keys(
    analysis: Analysis, roots: Iterable[Label], outcomes: Mapping[str, ActionOutcome]
) -> dict[Label, tuple[tuple[Digest, ...], bool]]:
    """For each requested target that has all its results now, their keys, and whether nothing else requested is made
    from it."""
    wanted = {label: wanted_actions(analysis, [label]) for label in roots}
    producers = {p for ids in wanted.values() for id in ids for p in analysis.actions[id].producers()}
    below = closure(analysis.actions, producers)
    found: dict[Label, tuple[tuple[Digest, ...], bool]] = {}
    for label, ids in wanted.items():
        results = [outcome.result if (outcome := outcomes.get(id)) else None for id in ids]
        keys = tuple(result.key for result in results if result is not None)
        if ids and len(keys) == len(ids):
            found[label] = (keys, not below.issuperset(ids))
    return found
