"""Which results to give up so that enough bytes are freed: the cheapest to make again for what they free, first. Pure.

What a result costs grows when what it is made from is given up, and so its turn comes later: prices are looked at
again when a result's turn comes, and only ever rise.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from marin_cas.cache.claims import Claims


@dataclass(frozen=True, slots=True)
class Candidate:
    """`price` is that of making it alone; `weight` is what that counts for when its turn is decided (0: what is left of
    it is of no use). `producers` are indices of what it is made from directly. `tops` are its blobs, `bytes` those that
    are in no blob. `gone`: not all of it is there now. `free`: it may be given up."""

    price: float
    tops: tuple[int, ...] = ()
    bytes: int = 0
    producers: tuple[int, ...] = ()
    weight: float = 1.0
    used: float = 0.0
    gone: bool = False
    free: bool = True


def full_price(at: int, candidates: Sequence[Candidate], gone: Iterable[int]) -> float:
    """What making it again takes, with all below it that is gone and would have to be made first."""
    gone = gone if isinstance(gone, set) else set(gone)
    total, seen = 0.0, {at}
    stack = [at]
    while stack:
        candidate = candidates[stack.pop()]
        total += candidate.price
        for producer in candidate.producers:
            if producer in gone and producer not in seen:
                seen.add(producer)
                stack.append(producer)
    return total


@dataclass(frozen=True, slots=True)
class Chosen:
    """Candidate `index` is given up; the blobs that this frees, and all bytes."""

    index: int
    blobs: array[int]
    bytes: int


def choose(candidates: Sequence[Candidate], claims: Claims, wanted: int) -> tuple[list[Chosen], bool]:
    """What to give up, in that order, so that at least `wanted` bytes are freed if that is possible.

    `claims` holds the tops of every candidate that is free, and has let go of those of the chosen ones afterwards. True
    stands for "the blobs of each are as they were when its turn came, and may be others now".
    """
    gone = {i for i, candidate in enumerate(candidates) if candidate.gone}
    share = claims.shares()
    heap: list[tuple[float, float, int]] = []
    parts: dict[int, float] = {}
    for i, candidate in enumerate(candidates):
        if candidate.free and (part := candidate.bytes + claims.share_of(candidate.tops, share)) > 0:
            parts[i] = part
            heap.append((candidate.weight * full_price(i, candidates, gone) / part, candidate.used, i))
    heapq.heapify(heap)
    chosen: list[Chosen] = []
    freed = 0
    while heap and freed < wanted:
        score, used, i = heapq.heappop(heap)
        now = candidates[i].weight * full_price(i, candidates, gone) / parts[i]
        if heap and now > score and now > heap[0][0]:
            heapq.heappush(heap, (now, used, i))
            continue
        before = claims.freed
        blobs = claims.release(candidates[i].tops)
        chosen.append(Chosen(i, blobs, claims.freed - before + candidates[i].bytes))
        freed += chosen[-1].bytes
        gone.add(i)
    return _without_needless(chosen, candidates, claims, freed - wanted)


def _without_needless(
    chosen: list[Chosen], candidates: Sequence[Candidate], claims: Claims, spare: int
) -> tuple[list[Chosen], bool]:
    """A large one that came last may free enough for dearer ones before it to stay."""
    kept: set[int] = set()
    for each in sorted(chosen, key=lambda each: -candidates[each.index].weight * candidates[each.index].price):
        candidate = candidates[each.index]
        if each.bytes > max(0, spare):
            continue  # it would give back at least what it freed
        regained = claims.take_back(candidate.tops) + candidate.bytes
        if regained <= max(0, spare):
            spare -= regained
            kept.add(each.index)
        else:
            claims.release(candidate.tops)
    return [each for each in chosen if each.index not in kept], bool(kept)
