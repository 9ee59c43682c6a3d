"""`labels(attr, x)`: what the targets of `x` name in that attribute."""

from __future__ import annotations

from marin_cas.graph.target import SourceFile
from marin_cas.query.verb import EXPRESSION, WORD, Nodes, Verb
from marin_cas.query.world import World


def answer(world: World, attr: str, x: Nodes) -> Nodes:
    found = {
        edge.label
        for label in x.labels
        if not isinstance(node := world.node(label), SourceFile)
        for edge in node.deps
        if edge.attr == attr
    }
    world.require(sorted(found))
    return Nodes.of(found)


VERB = Verb("labels", (("attr", WORD), ("x", EXPRESSION)), answer)
