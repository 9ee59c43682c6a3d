"""`siblings(x)`: `x` and every target declared in the packages of `x`."""

from __future__ import annotations

from marin_cas.query.verb import EXPRESSION, Nodes, Verb
from marin_cas.query.world import World


def answer(world: World, x: Nodes) -> Nodes:
    packages = {label.package for label in x.labels if not label.repo}
    declared = {d.label for name in sorted(packages) for d in world.package(name).declarations.values()}
    world.require(sorted(declared))
    return Nodes.of(x.labels | declared)


VERB = Verb("siblings", (("x", EXPRESSION),), answer)
