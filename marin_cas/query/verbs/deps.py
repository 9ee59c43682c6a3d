"""`deps(x[, depth])`: the targets and files of `x` and all that they depend on, to a depth in steps."""

from __future__ import annotations

from marin_cas.query.verb import EXPRESSION, NUMBER, Nodes, Verb
from marin_cas.query.walk import reach
from marin_cas.query.world import World


def answer(world: World, x: Nodes, depth: int | None = None) -> Nodes:
    return Nodes.of(reach(x.labels, world.dependencies, depth), topological=True)


VERB = Verb("deps", (("x", EXPRESSION), ("depth", NUMBER)), answer, optional=1, walks=True)
