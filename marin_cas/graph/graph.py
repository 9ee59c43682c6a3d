"""The graph of targets below some roots: loaded on demand, checked, in topological order; no recursion anywhere.

Its order is canonical: by height (the longest way down to a leaf), then label, so dependencies come first and a
target's place among its dependencies does not depend on what else was asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from marin_cas.errors import RequestError
from marin_cas.graph.attributes import Coercer
from marin_cas.graph.checks import check_refs, check_visibility, raise_all
from marin_cas.graph.cycles import cycle_error, find_cycles
from marin_cas.graph.loading import PackageLoader
from marin_cas.graph.missing import unknown_package, unknown_target
from marin_cas.graph.sources import SourceFinder
from marin_cas.graph.target import Edge, Node, SourceFile, Target
from marin_cas.label import Label
from marin_cas.lang.values import Declaration, Package

ALIAS = "alias"


@dataclass(frozen=True, slots=True)
class Graph:
    """`targets` has dependencies first; `dependencies` the distinct direct ones of each target, in attribute order.

    `heights` covers files (0) too. `packages` are all that were loaded on the way.
    """

    roots: tuple[Label, ...]
    targets: dict[Label, Target]
    files: dict[Label, SourceFile]
    dependencies: dict[Label, tuple[Label, ...]]
    heights: dict[Label, int]
    packages: dict[str, Package]

    def node(self, label: Label) -> Node:
        """The target or file of a label that is in the graph. KeyError otherwise."""
        return self.targets.get(label) or self.files[label]

    def __contains__(self, label: Label) -> bool:
        return label in self.targets or label in self.files

    def actual(self, label: Label) -> Label:
        """What a label means once aliases are followed: a target that is no alias, or a source file."""
        target = self.targets.get(label)
        while target is not None and target.kind == ALIAS and target.rule.native:
            label = target.attrs["actual"]
            target = self.targets.get(label)
        return label

    def closure(self, roots: Iterable[Label]) -> Iterator[Label]:
        """The targets and files reachable from `roots`, these included, in no particular order."""
        seen = dict.fromkeys(roots)
        stack = list(seen)
        while stack:
            label = stack.pop()
            yield label
            for other in self.dependencies.get(label, ()):
                if other not in seen:
                    seen[other] = None
                    stack.append(other)


def load_graph(
    loader: PackageLoader,
    roots: Iterable[Label],
    defines: Mapping[str, str] | None = None,
    profile: str | None = None,
    *,
    closure: bool = True,
    strict: bool = True,
) -> Graph:
    """Load what the roots need. Raises one RequestError that lists every problem found.

    With `closure=False` only the roots themselves; what they name need not exist, and is not checked. With
    `strict=False` visibility and clashing `name@version` are let pass, as a query must show where they are wrong.
    """
    builder = _Builder(loader, Coercer(defines or {}, profile))
    roots = tuple(dict.fromkeys(roots))
    builder.load(roots, closure)
    raise_all(builder.errors)
    heights = builder.heights(closure)
    if strict and closure:
        raise_all(
            [
                *check_visibility(builder.targets.values(), builder.targets, builder.packages),
                *check_refs(builder.targets.values(), builder.packages),
            ]
        )
    order = sorted((heights[label], label.package, label.name, label) for label in builder.targets)
    return Graph(
        roots,
        {label: builder.targets[label] for _, _, _, label in order},
        {label: builder.files[label] for label in sorted(builder.files)},
        builder.dependencies,
        heights,
        builder.packages,
    )


class _Builder:
    """Breadth-first loading; problems collect in `errors` in the order in which they are met."""

    def __init__(self, loader: PackageLoader, coercer: Coercer) -> None:
        self._loader = loader
        self._coercer = coercer
        self._sources = SourceFinder(loader)
        self.targets: dict[Label, Target] = {}
        self.files: dict[Label, SourceFile] = {}
        self.dependencies: dict[Label, tuple[Label, ...]] = {}
        self.packages: dict[str, Package] = {}
        self.errors: list[RequestError] = []
        self._broken: set[str] = set()

    def load(self, roots: Iterable[Label], closure: bool) -> None:
        queue: deque[tuple[Label, Target | None, Edge | None]] = deque((root, None, None) for root in roots)
        seen = set(roots)
        while queue:
            label, user, edge = queue.popleft()
            target = self._resolve(label, user, edge)
            if target is None:
                continue
            self.targets[label] = target
            edges = target.deps
            self.dependencies[label] = (
                tuple(dict.fromkeys(edge.label for edge in edges)) if len(edges) > 1 else tuple(e.label for e in edges)
            )
            if not closure:
                continue
            for edge in target.deps:
                if edge.label not in seen:
                    seen.add(edge.label)
                    queue.append((edge.label, target, edge))

    def _resolve(self, label: Label, user: Target | None, edge: Edge | None) -> Target | None:
        """The target of a label; a file, or an error, is put where it belongs and gives None."""
        where = edge.location if edge else None
        notes = (f"named by `{user.label}` (attribute `{edge.attr}`)", *user.chain) if user and edge else ()
        if label.repo:
            message = f"`{label}` cannot be a dependency: `@{label.repo}` holds rule files, no targets"
            self.errors.append(RequestError(message, where=where, notes=notes))
            return None
        try:
            package = self._package(label)
            if package is None:
                if label.package not in self._broken:
                    self.errors.append(unknown_package(self._loader, label, where, notes))
                return None
            declaration = package.declarations.get(label.name)
            if declaration is not None:
                return self._target(package, declaration)
            file = self._file(label, where, notes)
            if file is None:
                raise unknown_target(self._loader, package, label, where, notes)
            self.files[label] = file
        except RequestError as error:
            self.errors.append(error)
        return None

    def _package(self, label: Label) -> Package | None:
        name = label.package
        package = self.packages.get(name)
        if package is None and name not in self._broken and self._loader.has_package(name):
            try:
                package = self.packages[name] = self._loader.package(name)
            except RequestError:
                self._broken.add(name)
                raise
        return package

    def _file(self, label: Label, where: object, notes: tuple[str, ...]) -> SourceFile | None:
        try:
            return self._sources.find(label)
        except RequestError as error:
            error.where = error.where or where  # type: ignore[assignment]
            error.notes = error.notes or notes
            raise

    def _target(self, package: Package, declaration: Declaration) -> Target:
        coerced = self._coercer.coerce(declaration)
        location = declaration.location
        visibility = declaration.visibility
        return Target(
            declaration.label,
            declaration.rule.name,
            declaration.rule,
            coerced.attrs,
            location,
            declaration.chain,
            package.default_visibility if visibility is None else visibility,
            tuple(Edge(attr, label, location) for attr, label in coerced.labels),
            tuple(declaration.attrs),
            package.home,
        )

    def _is_source(self, label: Label) -> bool:
        try:
            return self._sources.find(label) is not None
        except RequestError:
            return False

    def heights(self, closure: bool) -> dict[Label, int]:
        """The longest way down from each node. Raises the error of the cycles when there is no order."""
        heights: dict[Label, int] = dict.fromkeys(self.files, 0)
        if not closure:
            return heights | dict.fromkeys(self.targets, 1)
        # Numbers in place of labels: hashing a label costs more than all else that is done here.
        labels = list(self.dependencies)
        number = {label: index for index, label in enumerate(labels)}
        levels: list[int] = []
        waiting: list[int] = []
        users: list[list[int]] = [[] for _ in labels]
        for index, dependencies in enumerate(self.dependencies.values()):
            levels.append(1 if dependencies else 0)
            needed = [other for label in dependencies if (other := number.get(label)) is not None]
            waiting.append(len(needed))
            for other in needed:
                users[other].append(index)
        ready = [index for index, count in enumerate(waiting) if not count]
        done = 0
        while ready:
            index = ready.pop()
            done += 1
            level = levels[index] + 1
            for user in users[index]:
                if levels[user] < level:
                    levels[user] = level
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        if done < len(labels):
            stuck = {label: None for label, count in zip(labels, waiting, strict=True) if count}
            successors = {label: [d for d in self.dependencies[label] if d in stuck] for label in stuck}
            raise cycle_error(find_cycles(stuck, successors), self.targets, self._is_source)
        heights.update(zip(labels, levels, strict=True))
        return heights
