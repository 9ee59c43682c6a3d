"""Workspace files that an action was given: are they still what they were when it was started?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from marin_cas.action import Action, Source
from marin_cas.errors import BuildError, RequestError
from marin_cas.recipe import TREE
from marin_cas.tree.sources import hash_file_source, tree_of

type Stamp = tuple[int, int, int, int] | None


def sources_of(action: Action) -> tuple[Source, ...]:
    """The workspace files that a run reads: its inputs and the modules of a user's function."""
    found = [source for source in action.inputs.values() if isinstance(source, Source)]
    return (*found, action.code) if action.code else tuple(found)


@dataclass(frozen=True, slots=True)
class Watched:
    """Make it before the sources are copied; `recheck` afterwards."""

    root: Path
    action: Action
    before: Mapping[str, Stamp] = field(default_factory=dict)

    @classmethod
    def now(cls, root: Path, action: Action) -> Watched:
        return cls(root, action, {path: _stamp(root, path) for path in _paths(sources_of(action))})

    def recheck(self) -> None:
        """Raises BuildError naming the files that are not what the key says any more."""
        touched = {path for path, stamp in self.before.items() if _stamp(self.root, path) != stamp}
        if not touched:
            return
        changed = [
            path
            for source in sources_of(self.action)
            if not touched.isdisjoint(source.paths) and not _same_bytes(self.root, source)
            for path in source.paths
            if path in touched
        ]
        if changed:
            files = ", ".join(f"`{path}`" for path in dict.fromkeys(changed))
            raise BuildError(
                f"{files} changed while `{self.action.id}` ran, so its result was not published",
                where=self.action.location,
                hint="build again: it will be built from the files as they are now",
            )


def _paths(sources: Iterable[Source]) -> dict[str, None]:
    return dict.fromkeys(path for source in sources for path in source.paths)


def _stamp(root: Path, path: str) -> Stamp:
    try:
        found = os.stat(root / path)
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _same_bytes(root: Path, source: Source) -> bool:
    """Touched is not changed: the bytes decide."""
    try:
        if source.kind == TREE:
            return tree_of(root, source.paths, source.names) == source.digest
        return hash_file_source(root, source.paths[0]) == source.digest
    except (OSError, RequestError, BuildError):
        return False
