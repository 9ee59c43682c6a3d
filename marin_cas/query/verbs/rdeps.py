"""`rdeps(universe, x[, depth])`: `x` and what depends on it, among `universe` and its dependencies."""

from __future__ import annotations

from marin_cas.query.verb import EXPRESSION, NUMBER, Nodes, Verb
from marin_cas.query.walk import reach
from marin_cas.query.world import World


def answer(world: World, universe: Nodes, x: Nodes, depth: int | None = None) -> Nodes:
    within = world.closure(universe.labels)
    users = world.users(within)
    found = reach(x.labels & within, lambda label: users.get(label, ()), depth)
    return Nodes.of(found, topological=True)


VERB = Verb("rdeps", (("universe", EXPRESSION), ("x", EXPRESSION), ("depth", NUMBER)), answer, optional=1, walks=True)
