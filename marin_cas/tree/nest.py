"""From a flat list of files and their paths to nested tree records. Pure: nothing is read or written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marin_cas.digest import Digest
from marin_cas.tree.entries import DirEntry, Entry, FileEntry, LinkEntry, Tree
from marin_cas.tree.names import name_problem


@dataclass(frozen=True, slots=True)
class Leaf:
    """A file before it has a place in a tree."""

    digest: Digest
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Nested:
    """`digest` is the root's; `records` holds every folder's record, a folder's before those that name it."""

    digest: Digest
    records: tuple[bytes, ...]


def nest(leaves: Mapping[str, Leaf]) -> Nested:
    """The tree with a file at each path (`a/b.txt`). ValueError names a path that is wrong or taken twice."""
    folders: dict[str, dict[str, Entry]] = {"": {}}
    for path, leaf in leaves.items():
        folder, _, name = path.rpartition("/")
        # The names in a folder's path were looked at when its first file came.
        parts = (name,) if folder and folder in folders else path.split("/")
        problem = next((p for part in parts if (p := name_problem(part))), None)
        if problem:
            raise ValueError(f"`{path}` {problem}")
        entries = _folder(folders, folder, path)
        if name in entries:
            raise ValueError(f"`{path}` is both a file and a folder")
        entries[name] = FileEntry(name, leaf.digest, leaf.executable)
    records: list[bytes] = []
    digest = Digest.of(b"")
    # Deepest first; the root, which has no name, comes last.
    for path in sorted(folders, key=lambda path: path.count("/") if path else -1, reverse=True):
        record = Tree.of(folders[path].values()).record()
        records.append(record)
        digest = Digest.of(record)
        if path:
            parent, _, name = path.rpartition("/")
            folders[parent][name] = DirEntry(name, digest)
    return Nested(digest, tuple(records))


def _folder(folders: dict[str, dict[str, Entry]], path: str, wanted_by: str) -> dict[str, Entry]:
    """The entries of a folder, made with its parents when new."""
    at = path
    chain: list[str] = []
    while at not in folders:
        chain.append(at)
        at = at.rpartition("/")[0]
    for each in reversed(chain):
        parent, _, name = each.rpartition("/")
        if isinstance(folders[parent].get(name), FileEntry | LinkEntry):
            raise ValueError(f"`{each}` is both a file and a folder (of `{wanted_by}`)")
        folders[parent][name] = DirEntry(name, Digest.of(b""))
        folders[each] = {}
    return folders[path]
