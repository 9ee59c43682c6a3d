"""Counts of holders against a set of reachable blobs; choices against the plain rule."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from marin_cas.cache.choice import Candidate, choose, full_price
from marin_cas.cache.claims import Claims


@dataclass
class Graph:
    """Stands for Nodes: `children[n]` are smaller than `n`."""

    children: list[list[int]]
    sizes: list[int]
    gone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.files = bytearray(0 if n in self.gone else 1 for n in range(len(self.sizes)))
        self.is_tree = bytearray(bool(below) for below in self.children)
        self.folders = array("I", [n for n, below in enumerate(self.children) if below])

    def __len__(self) -> int:
        return len(self.sizes)

    def below(self, n: int) -> array[int]:
        return array("I", self.children[n])

    def all_taken(self) -> list[int]:
        return [size * files for size, files in zip(self.sizes, self.files, strict=True)]

    def reach(self, tops: list[int]) -> set[int]:
        found, stack = set(tops), list(tops)
        while stack:
            new = set(self.children[stack.pop()]) - found
            found |= new
            stack += new
        return found


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 25))
    children = [
        draw(st.lists(st.integers(0, n - 1), max_size=4)) if n and draw(st.booleans()) else [] for n in range(count)
    ]
    gone = {n for n in draw(st.sets(st.integers(0, count - 1), max_size=3)) if not children[n]}
    return Graph(children, draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)), gone)


def claims_of(graph: Graph, kept: set[int], young: set[int] = frozenset()) -> Claims:  # type: ignore[assignment]
    marks = bytearray(n in graph.reach(sorted(kept)) for n in range(len(graph)))
    return Claims(graph, marks, lambda n: None if n in young else graph.sizes[n])  # type: ignore[arg-type]


@given(graphs(), st.data())
def test_what_is_freed_is_what_nobody_else_holds(graph: Graph, data: st.DataObject) -> None:
    some = st.lists(st.integers(0, len(graph) - 1), max_size=4)
    kept, holders = set(data.draw(some)), data.draw(st.lists(some, max_size=5))
    claims = claims_of(graph, kept)
    for tops in holders:
        claims.claim(tops)
    order = data.draw(st.permutations(range(len(holders))))
    left = set(range(len(holders)))
    total = 0
    for i in order:
        before = graph.reach([n for j in left for n in holders[j]] + sorted(kept))
        left.discard(i)
        after = graph.reach([n for j in left for n in holders[j]] + sorted(kept))
        freed = claims.release(holders[i])
        assert sorted(freed) == sorted(n for n in before - after if n not in graph.gone)
        place = {n: at for at, n in enumerate(freed)}
        assert all(place[n] < place[c] for n in freed for c in graph.children[n] if c in place), "a tree goes first"
        total += sum(graph.sizes[n] for n in freed)
        assert claims.freed == total
        if data.draw(st.booleans()):
            regained = claims.take_back(holders[i])
            assert regained == sum(graph.sizes[n] for n in freed)
            assert sorted(claims.release(holders[i])) == sorted(freed)


@given(graphs(), st.data())
def test_what_is_young_stays_with_all_below_it(graph: Graph, data: st.DataObject) -> None:
    some = st.lists(st.integers(0, len(graph) - 1), max_size=4)
    holders, young = data.draw(st.lists(some, max_size=5)), set(data.draw(some))
    claims = claims_of(graph, set(), young)
    for tops in holders:
        claims.claim(tops)
    freed = [n for tops in holders for n in claims.release(tops)]
    held = graph.reach([n for tops in holders for n in tops])
    stay = graph.reach(sorted(n for n in young & held if n not in graph.gone))
    assert sorted(freed) == sorted(n for n in held - stay if n not in graph.gone)


@given(graphs(), st.data())
def test_shares_add_up(graph: Graph, data: st.DataObject) -> None:
    """What several hold is divided among them: all shares together are all the bytes."""
    some = st.lists(st.integers(0, len(graph) - 1), min_size=1, max_size=4)
    holders = data.draw(st.lists(some, min_size=1, max_size=5))
    claims = claims_of(graph, set())
    for tops in holders:
        claims.claim(tops)
    share = claims.shares()
    total = sum(claims.share_of(tops, share) for tops in holders)
    held = graph.reach([n for tops in holders for n in tops])
    assert abs(total - sum(graph.sizes[n] for n in held if n not in graph.gone)) < 1e-6


def test_the_price_of_a_diamond_counts_each_below_once() -> None:
    made = [
        Candidate(1.0),
        Candidate(10.0, producers=(0,)),
        Candidate(100.0, producers=(0,)),
        Candidate(1000.0, producers=(1, 2)),
    ]
    assert full_price(3, made, {0, 1, 2}) == 1111.0
    assert full_price(3, made, {1}) == 1010.0
    # Nobody needs what is below something that is there.
    assert full_price(3, made, {0}) == 1000.0


@given(st.data())
def test_enough_is_chosen_or_everything(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    sizes = data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    graph = Graph([[] for _ in range(count)], sizes)
    claims = claims_of(graph, set())
    candidates = [
        Candidate(
            float(data.draw(st.integers(0, 20))),
            (i,),
            producers=tuple(data.draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else ()),
            free=data.draw(st.booleans()),
        )
        for i in range(count)
    ]
    for candidate in candidates:
        if candidate.free:
            claims.claim(candidate.tops)
    wanted = data.draw(st.integers(1, 200))
    chosen, _ = choose(candidates, claims, wanted)
    picked = [each.index for each in chosen]
    freed = sum(sizes[i] for i in picked)
    possible = sum(sizes[i] for i, candidate in enumerate(candidates) if candidate.free)
    assert all(candidates[i].free for i in picked)
    assert freed == claims.freed >= min(wanted, possible)
    # None of them could have stayed.
    assert all(freed - sizes[i] < wanted for i in picked)
