"""`allpaths(x, y)`: every target and file on a way from one of `x` down to one of `y`."""

from __future__ import annotations

from marin_cas.query.verb import EXPRESSION, Nodes, Verb
from marin_cas.query.walk import reach
from marin_cas.query.world import World


def answer(world: World, x: Nodes, y: Nodes) -> Nodes:
    below = world.closure(x.labels)
    users = world.users(below)
    return Nodes.of(reach(y.labels & below, lambda label: users.get(label, ())), topological=True)


VERB = Verb("allpaths", (("x", EXPRESSION), ("y", EXPRESSION)), answer, walks=True)
