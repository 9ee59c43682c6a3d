"""`somepath(x, y)`: one shortest way from one of `x` down to one of `y`, the same one each time; nothing if none."""

from __future__ import annotations

from collections import deque

from marin_cas.label import Label
from marin_cas.query.verb import EXPRESSION, Nodes, Verb
from marin_cas.query.world import World


def answer(world: World, x: Nodes, y: Nodes) -> Nodes:
    came: dict[Label, Label | None] = dict.fromkeys(sorted(x.labels))
    queue = deque(came)
    while queue:
        label: Label | None = queue.popleft()
        if label in y.labels:
            path = []
            while label is not None:
                path.append(label)
                label = came[label]
            return Nodes.of(path, topological=True)
        for other in world.dependencies(label):
            if other not in came:
                came[other] = label
                queue.append(other)
    return Nodes.of((), topological=True)


VERB = Verb("somepath", (("x", EXPRESSION), ("y", EXPRESSION)), answer, walks=True)
