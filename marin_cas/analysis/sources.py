"""Workspace files as inputs of actions: hashed where they lie, grouped into trees, remembered for the re-stat.

Nothing is copied here; a file enters the store when an action that reads it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marin_cas.action import Source
from marin_cas.cache.stats import StatCache
from marin_cas.errors import Location, RequestError
from marin_cas.recipe import FILE, TREE
from marin_cas.tree.sources import hash_file_source, tree_of


@dataclass(slots=True)
class Sources:
    """Hashes the files below `root`; `used` collects the workspace-relative paths of all that any input holds."""

    root: Path
    stats: StatCache
    used: set[str] = field(default_factory=set)
    _known: dict[str, Source] = field(default_factory=dict)

    def at(self, path: str, *, where: Location | None = None) -> Source:
        """The file or the whole folder at a workspace-relative path. Raises RequestError when it is neither."""
        if (known := self._known.get(path)) is not None:
            return known
        full = self.root / path
        try:
            if full.is_file():
                source = Source(FILE, hash_file_source(self.root, path, self.stats), (path,), (full.name,))
            elif full.is_dir():
                paths = tuple(sorted(_files_below(self.root, path), key=os.fsencode))
                source = self._tree(paths, tuple(p.removeprefix(path + "/") for p in paths))
            else:
                raise RequestError(f"`{path}` is not a file or a folder", where=where, hint="is it still there?")
        except OSError as error:
            raise RequestError(f"cannot read `{path}`: {error.strerror or error}", where=where) from None
        self._known[path] = source
        self.used.update(source.paths)
        return source

    def group(self, members: Iterable[Source], package: str) -> Source:
        """One tree of several sources. Inside it a file has its path below `package`, or else below the workspace."""
        prefix = f"{package}/" if package else ""
        names = {path: path.removeprefix(prefix) for member in members for path in member.paths}
        paths = tuple(sorted(names, key=os.fsencode))
        return self._tree(paths, tuple(names[path] for path in paths))

    def code(self, modules: Sequence[str]) -> Source:
        """A user function's modules, as the tree that a worker puts on the function's path."""
        paths = tuple(sorted(modules, key=os.fsencode))
        self.used.update(paths)
        return self._tree(paths, paths)

    def _tree(self, paths: tuple[str, ...], names: tuple[str, ...]) -> Source:
        return Source(TREE, tree_of(self.root, paths, names, self.stats), paths, names)


def _files_below(root: Path, folder: str) -> Iterable[str]:
    for base, folders, files in os.walk(root / folder):
        folders.sort()
        for name in files:
            yield os.path.relpath(os.path.join(base, name), root)
