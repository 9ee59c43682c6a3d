"""Asks a query of a workspace: text in, nodes and the edges among them out.

Order: where dependencies were walked (`deps`, `rdeps`, `allpaths`, `somepath`, and what is picked from their answers),
a target stands before what it depends on, by falling height and then label; anything else is in order of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from marin_cas.graph.loading import PackageLoader
from marin_cas.graph.target import Node
from marin_cas.label import Label
from marin_cas.query.evaluate import Evaluator, walks
from marin_cas.query.parser import parse
from marin_cas.query.shorthand import shorthand as shorthand
from marin_cas.query.world import World


@dataclass(frozen=True, slots=True)
class QueryResult:
    """`edges` are the direct dependencies (from, to) between two of `nodes`."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[Label, Label], ...]

    @property
    def labels(self) -> tuple[Label, ...]:
        return tuple(node.label for node in self.nodes)


def run(
    expression: str,
    loader: PackageLoader,
    cwd_package: str = "",
    defines: Mapping[str, str] | None = None,
    profile: str | None = None,
    *,
    tainted: Callable[[], Iterable[Label]] = tuple,
) -> QueryResult:
    """The answer to `expression`. Raises RequestError, with a caret where the expression is wrong.

    `tainted` is called when the expression asks for it, and gives the labels whose results are not to be trusted.
    """
    parsed = parse(expression)
    world = World(loader, cwd_package, defines or {}, profile, walks(parsed), tainted)
    evaluator = Evaluator(world, expression)
    evaluator.load(parsed)
    found = evaluator.evaluate(parsed, {})
    if found.topological:
        keys = sorted((-world.height(label), label.repo, label.package, label.name, label) for label in found.labels)
    else:
        keys = sorted((0, label.repo, label.package, label.name, label) for label in found.labels)
    order = [key[-1] for key in keys]
    edges = tuple((label, other) for label in order for other in world.dependencies(label) if other in found.labels)
    return QueryResult(tuple(world.node(label) for label in order), edges)
