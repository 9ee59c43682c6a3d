"""`tests(x)`: the test targets of `x`; a `test_suite` stands for its tests, an empty one for those of its package."""

from __future__ import annotations

from marin_cas.graph.target import SourceFile
from marin_cas.label import Label
from marin_cas.query.verb import EXPRESSION, Nodes, Verb
from marin_cas.query.world import World

SUITE = "test_suite"


def answer(world: World, x: Nodes) -> Nodes:
    found: set[Label] = set()
    seen = set(x.labels)
    front = sorted(x.labels)
    while front:
        following: list[Label] = []
        for label in front:
            node = world.node(label)
            if isinstance(node, SourceFile):
                continue
            if node.kind != SUITE:
                if node.rule.test:
                    found.add(label)
                continue
            members = node.attrs.get("tests") or [
                d.label
                for d in world.package(label.package).declarations.values()
                if d.rule.test and d.rule.name != SUITE
            ]
            following += [member for member in members if member not in seen]
            seen.update(following)
        world.require(following)
        front = following
    return Nodes.of(found)


VERB = Verb("tests", (("x", EXPRESSION),), answer)
