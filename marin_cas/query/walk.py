"""Walking a graph breadth first, to a depth; no recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from marin_cas.label import Label


def reach(starts: Iterable[Label], step: Callable[[Label], Sequence[Label]], depth: int | None = None) -> set[Label]:
    """What is reached from `starts`, these included, in at most `depth` steps."""
    seen = set(starts)
    front = list(seen)
    steps = 0
    while front and (depth is None or steps < depth):
        following: list[Label] = []
        for label in front:
            for other in step(label):
                if other not in seen:
                    seen.add(other)
                    following.append(other)
        front = following
        steps += 1
    return seen
