"""Who holds which blob: a count for each, and what is freed when a holder lets go.

A blob is held by runs and by trees that are held; a tree holds each blob as often as it names it. So the bytes that are
freed are exactly those that nobody else holds, whatever is shared.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable, Sequence

from marin_cas.cache.nodes import Nodes


class Claims:
    """`kept` marks blobs that stay in any case, with all below them: they are not counted. `probe(n)` is the number of
    bytes that deleting a blob gives back, None when it may not be deleted; `leaves(n)` is told before that for those of
    `copied`. `freed` is the sum so far."""

    def __init__(
        self,
        nodes: Nodes,
        kept: bytearray,
        probe: Callable[[int], int | None],
        leaves: Callable[[int], object] = lambda n: None,
        copied: Container[int] = (),
    ) -> None:
        self.nodes, self.kept, self._probe = nodes, kept, probe
        self._leaves, self._copied = leaves, copied
        self.counts = array("I", bytes(4 * len(nodes)))
        self.freed = 0

    def claim(self, tops: Iterable[int]) -> None:
        """A holder more of each of these blobs."""
        counts, kept, is_tree = self.counts, self.kept, self.nodes.is_tree
        stack: list[Sequence[int]] = [list(tops)]
        while stack:
            for n in stack.pop():
                if not kept[n]:
                    counts[n] += 1
                    if is_tree[n] and counts[n] == 1:
                        stack.append(self.nodes.below(n))

    def release(self, tops: Iterable[int]) -> array[int]:
        """A holder less: the blobs that nobody holds now, a tree before what it names.

        One that may not be deleted stays held, and so does what it names.
        """
        counts, kept, nodes, probe = self.counts, self.kept, self.nodes, self._probe
        copied = self._copied
        files, is_tree = nodes.files, nodes.is_tree
        freed = array("I")
        stack: list[Sequence[int]] = [list(tops)]
        while stack:
            for n in stack.pop():
                if kept[n]:
                    continue
                if counts[n] > 1:
                    counts[n] -= 1
                    continue
                if n in copied:  # as an output of its own, also when it goes as a part of another
                    self._leaves(n)
                if files[n]:
                    size = probe(n)
                    if size is None:
                        continue
                    freed.append(n)
                    self.freed += size
                counts[n] = 0
                if is_tree[n]:
                    stack.append(nodes.below(n))
        return freed

    def take_back(self, tops: Iterable[int]) -> int:
        """As `claim`, after a `release`; returns the bytes that are not freed any more."""
        counts, kept, nodes = self.counts, self.kept, self.nodes
        regained = 0
        stack = list(tops)
        while stack:
            n = stack.pop()
            if kept[n]:
                continue
            counts[n] += 1
            if counts[n] == 1:
                regained += (self._probe(n) or 0) if nodes.files[n] else 0
                stack.extend(nodes.below(n) if nodes.is_tree[n] else ())
        self.freed -= regained
        return regained

    def shares(self) -> array[float]:
        """For each blob its bytes and a part of those below it: what several hold is divided among them evenly."""
        nodes, counts, kept = self.nodes, self.counts, self.kept
        share = array("d", nodes.all_taken())
        for n in nodes.folders:
            if counts[n] and not kept[n]:
                share[n] += sum([share[c] / counts[c] for c in nodes.below(n) if not kept[c]])
        return share

    def share_of(self, tops: Iterable[int], share: array[float]) -> float:
        return sum(share[n] / self.counts[n] for n in tops if not self.kept[n] and self.counts[n])
