"""What is left of a finished build: which results become roots, and which outputs are there to be linked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from marin_cas.action import Built
from marin_cas.analysis.analysis import AnalysedTarget, Analysis
from marin_cas.cache.cache import Cache
from marin_cas.digest import Digest
from marin_cas.label import Label
from marin_cas.result import Output
from marin_cas.scheduler.frontier import Node, Phase
from marin_cas.scheduler.lookup import Lookup
from marin_cas.scheduler.plan import closure, wanted_actions
from marin_cas.scheduler.report import ActionOutcome

type Keep = Callable[[Mapping[str, ActionOutcome]], bool]


def keep_nothing(outcomes: Mapping[str, ActionOutcome]) -> bool:
    """A Keep for caches that nobody deletes from."""
    return False


def registering(
    analysis: Analysis, roots: Iterable[Label], cache: Cache, workspace: str, named: Collection[Label]
) -> Keep:
    """Registers what was built of `roots` for a workspace; `named` were asked for one by one, not by a wildcard."""
    epoch = cache.epoch.now()

    def keep(outcomes: Mapping[str, ActionOutcome]) -> bool:
        for label, (keys, top) in kept_keys(analysis, roots, outcomes).items():
            # What a wildcard found below something else of the same request is not asked for by itself.
            if top or label in named or cache.roots.registered(workspace, str(label)):
                cache.roots.register(workspace, str(label), keys)
        return cache.epoch.now() != epoch

    return keep


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


def lost(wanted: Mapping[str, Iterable[str]], nodes: Mapping[str, Node], lookup: Lookup) -> bool:
    """Whether bytes of wanted outputs, by action, were there and are gone."""
    for id, outputs in wanted.items():
        node = nodes[id]
        if node.result is not None and lookup.missing(node.result, node.complete.intersection(outputs)) is not None:
            return True
    return False


def there(target: AnalysedTarget, nodes: Mapping[str, Node], lookup: Lookup) -> dict[str, Output]:
    """The target's outputs whose bytes are there."""
    found: dict[str, Output] = {}
    for name, artifact in target.outputs.items():
        node = nodes.get(artifact.action) if isinstance(artifact, Built) else None
        if node is None or node.result is None or not isinstance(artifact, Built):
            continue
        if node.phase not in (Phase.SERVED, Phase.DONE) or artifact.output not in node.result.outputs:
            continue
        if artifact.output in node.complete or lookup.missing(node.result, [artifact.output]) is None:
            found[name] = node.result.outputs[artifact.output]
    return found
