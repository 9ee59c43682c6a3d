"""An action's inputs on disk: hard links into the store, so a tool that changes one has damaged the store itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from marin_cas.digest import Digest
from marin_cas.errors import IntegrityError
from marin_cas.recipe import Input
from marin_cas.store.base import Store
from marin_cas.tree.walk import blobs

type Snapshot = dict[str, tuple[int, int, int]]


def snapshot(folder: Path) -> Snapshot:
    """Inode, size and mtime of everything below `folder`, by its path there; folders without their mtime."""
    seen: Snapshot = {}
    top, pending = str(folder), [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(f"{top}/{prefix}") as entries:
            for entry in entries:
                stats = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{prefix}{entry.name}/")
                    seen[prefix + entry.name] = (stats.st_ino, 0, 0)
                else:
                    seen[prefix + entry.name] = (stats.st_ino, stats.st_size, stats.st_mtime_ns)
    return seen


def total_size(seen: Snapshot) -> int:
    return sum(size for _, size, _ in seen.values())


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """The paths that differ, sorted."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def drop_damaged(
    store: Store, inputs: Mapping[str, Input], before: Snapshot, after: Snapshot, paths: list[str]
) -> None:
    """Deletes from the store each blob that shares its inode with a file that was written to: nobody may read it."""
    damaged = {before[path][0] for path in paths if path in before and after.get(path, (0,))[0] == before[path][0]}
    if not damaged:
        return
    for source in inputs.values():
        for digest in blobs(store, source.kind, source.digest):
            if any(_is_damaged(store, digest, executable, damaged) for executable in (False, True)):
                store.delete(digest)


def _is_damaged(store: Store, digest: Digest, executable: bool, damaged: set[int]) -> bool:
    try:
        path = store.path(digest, executable)
        return path is not None and os.stat(path).st_ino in damaged
    except FileNotFoundError:
        return False
    except IntegrityError:
        return True  # its size changed too
