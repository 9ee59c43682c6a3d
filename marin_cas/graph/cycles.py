"""Finding cycles among targets, without recursion: every node that lies on a cycle is on one that is reported."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from marin_cas.errors import RequestError
from marin_cas.graph.target import Target
from marin_cas.label import Label

_MOST_REPORTED = 20
_MOST_NAMED = 12
_MOST_EDGES = 500


def components(nodes: Iterable[Label], successors: Mapping[Label, Sequence[Label]]) -> list[list[Label]]:
    """The strongly connected components that hold a cycle (Tarjan, with an explicit stack)."""
    index: dict[Label, int] = {}
    low: dict[Label, int] = {}
    on_path: set[Label] = set()
    path: list[Label] = []
    found: list[list[Label]] = []
    for start in nodes:
        if start in index:
            continue
        work = [(start, iter(successors.get(start, ())))]
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    path.append(other)
                    on_path.add(other)
                    work.append((other, iter(successors.get(other, ()))))
                    break
                if other in on_path:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = path.pop()
                        on_path.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1 or node in successors.get(node, ()):
                        found.append(component)
    return found


def _shortest_cycle(start: Label, members: set[Label], successors: Mapping[Label, Sequence[Label]]) -> list[Label]:
    """A shortest way from `start` back to it inside one component, `start` at both ends."""
    came: dict[Label, Label] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for other in successors[node]:
            if other == start:
                cycle = [start]
                while node != start:
                    cycle.append(node)
                    node = came[node]
                return [start, *reversed(cycle[1:]), start]
            if other in members and other not in came:
                came[other] = node
                queue.append(other)
    raise AssertionError(f"{start} lies on no cycle")


def find_cycles(nodes: Iterable[Label], successors: Mapping[Label, Sequence[Label]]) -> list[list[Label]]:
    """Cycles in a fixed order, first node repeated at the end; at most some, so that one tangle does not flood."""
    cycles: list[list[Label]] = []
    for component in sorted((sorted(c) for c in components(nodes, successors)), key=lambda c: c[0]):
        members, covered = set(component), set[Label]()
        for node in component:
            if node not in covered and len(cycles) < _MOST_REPORTED:
                cycle = _shortest_cycle(node, members, successors)
                covered.update(cycle)
                cycles.append(cycle)
    return cycles


def cycle_error(
    cycles: Sequence[Sequence[Label]], targets: Mapping[Label, Target], is_source: Callable[[Label], bool]
) -> RequestError:
    """The message for at least one cycle: each way round, then each edge with its file and line."""
    first = cycles[0]
    notes: list[str] = []
    for cycle in cycles:
        if len(cycles) > 1:
            notes.append(f"`{_way(cycle)}`")
        for node, other in pairwise(cycle[: _MOST_EDGES + 1]):
            edge = next(edge for edge in targets[node].deps if edge.label == other)
            notes.append(f"{edge.location}: `{node}` needs `{other}` (attribute `{edge.attr}`)")
        if len(cycle) > _MOST_EDGES + 1:
            notes.append(f"and {len(cycle) - 1 - _MOST_EDGES} more edges")
    message = (
        f"a dependency cycle: `{_way(first)}`"
        if len(cycles) == 1
        else f"{len(cycles)} dependency cycles, the first: `{_way(first)}`"
    )
    hint = "remove one edge of each cycle"
    # Perhaps the file was meant: a target hides one of its name, and nothing else tells of it.
    if hidden := next((label for cycle in cycles for label in cycle[1:] if is_source(label)), None):
        hint = f"`{hidden}` means the target, not the file or folder `{hidden.path}`: give one of them another name"
    return RequestError(message, where=targets[first[0]].location, notes=notes, hint=hint)


def _way(cycle: Sequence[Label]) -> str:
    labels = [str(label) for label in cycle]
    if len(labels) > _MOST_NAMED:
        middle = len(labels) - 7
        labels = [*labels[:5], f"({middle} more)", *labels[-2:]]
    return " -> ".join(labels)
