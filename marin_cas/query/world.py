"""What a query is asked about: the graph loaded so far, grown when a verb names more; reads the workspace only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from marin_cas.graph.graph import Graph, load_graph
from marin_cas.graph.loading import PackageLoader
from marin_cas.graph.pattern import expand
from marin_cas.graph.target import Node, SourceFile
from marin_cas.label import Label
from marin_cas.lang.values import Package

_NOTHING: tuple[Label, ...] = ()


class World:
    """`closure` says whether the dependencies of what is named are loaded too. `tainted` tells the labels whose
    results are not to be trusted."""

    def __init__(
        self,
        loader: PackageLoader,
        package: str,
        defines: Mapping[str, str],
        profile: str | None,
        closure: bool,
        tainted: Callable[[], Iterable[Label]] = tuple,
    ) -> None:
        self.loader = loader
        self._cwd = package
        self._defines = defines
        self._profile = profile
        self._closure = closure
        self.tainted = tainted
        self._graph = Graph((), {}, {}, {}, {}, {})
        self._patterns: dict[str, tuple[Label, ...]] = {}
        self._loose: dict[Label, SourceFile] = {}

    def expand(self, pattern: str) -> tuple[Label, ...]:
        """The labels of a pattern, `manual` targets and source files among them. Raises RequestError."""
        labels = self._patterns.get(pattern)
        if labels is None:
            labels = self._patterns[pattern] = expand(self.loader, [pattern], self._cwd, manual=True, files=True)
        return labels

    def require(self, labels: Iterable[Label]) -> None:
        """Make the graph hold these labels as well."""
        missing = [label for label in labels if label not in self]
        if missing:
            roots = (*self._graph.roots, *missing)
            self._graph = load_graph(
                self.loader, roots, self._defines, self._profile, closure=self._closure, strict=False
            )

    def add_files(self, files: Iterable[SourceFile]) -> None:
        """Make files known that no target names, such as BUILD files."""
        self._loose.update((file.label, file) for file in files)

    def __contains__(self, label: Label) -> bool:
        return label in self._graph or label in self._loose

    def node(self, label: Label) -> Node:
        return self._graph.node(label) if label in self._graph else self._loose[label]

    def package(self, name: str) -> Package:
        return self._graph.packages.get(name) or self.loader.package(name)

    def dependencies(self, label: Label) -> tuple[Label, ...]:
        return self._graph.dependencies.get(label, _NOTHING)

    def users(self, universe: Iterable[Label]) -> dict[Label, list[Label]]:
        """The edges among and below `universe`, turned round."""
        users: dict[Label, list[Label]] = {}
        for label in universe:
            for other in self.dependencies(label):
                users.setdefault(other, []).append(label)
        return users

    def closure(self, labels: Iterable[Label]) -> set[Label]:
        return set(self._graph.closure(labels))

    def height(self, label: Label) -> int:
        """The longest way down from a label: greater than that of anything below it."""
        return self._graph.heights.get(label, 0)
