"""The entries of `trees/`, which people see through `out/`: whose copy each is, and what leads to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from marin_cas.disk import StrPath, names_in


@dataclass(frozen=True, slots=True)
class Copies:
    """`entries` maps the hex of a digest to the names of its copies below `trees`: `<hex>`, `<hex>.file`."""

    trees: str
    entries: dict[str, list[str]]

    @classmethod
    def of(cls, root: StrPath) -> Copies:
        trees = f"{os.fspath(root)}/trees"
        entries: dict[str, list[str]] = {}
        for name in names_in(trees):
            hexed = name.removesuffix(".file")
            if len(hexed) == 64:
                entries.setdefault(hexed, []).append(name)
        return cls(trees, entries)

    def files(self, name: str) -> Iterator[os.stat_result]:
        """The regular files of a copy, once for each of their names there."""
        return _files(f"{self.trees}/{name}")

    def own_bytes(self, name: str, *, whole: bool) -> int:
        """The bytes that only this copy has. While a tree is `whole` in the store, its copy is that by other names or
        by shared blocks."""
        return 0 if whole and not name.endswith(".file") else lone_bytes(f"{self.trees}/{name}")

    def young(self, name: str, before: int) -> bool:
        """Whether a copy was made since that moment (ns)."""
        with suppress(FileNotFoundError):
            return os.lstat(f"{self.trees}/{name}").st_ctime_ns >= before
        return False


class Strays:
    """Files whose names are all in copies, in more than one of them: the last of these to go gives them back.

    The store lost such a blob itself. Only the copies named are looked at, as of a whole tree the store has the files.
    """

    def __init__(self, copies: Copies, names: Iterable[str]) -> None:
        sizes: dict[int, int] = {}
        links: dict[int, int] = {}
        names_in: dict[int, dict[str, int]] = {}
        for name in names:
            for found in copies.files(name):
                if found.st_nlink > 1:
                    sizes[found.st_ino], links[found.st_ino] = found.st_size, found.st_nlink
                    holders = names_in.setdefault(found.st_ino, {})
                    holders[name] = holders.get(name, 0) + 1
        self._left = {
            inode: set(holders)
            for inode, holders in names_in.items()
            if len(holders) > 1 and sum(holders.values()) == links[inode]
        }
        self._sizes = {inode: sizes[inode] for inode in self._left}
        self.bytes = sum(self._sizes.values())

    def go(self, name: str) -> int:
        """The bytes that the disk gets back when this copy goes after those before it."""
        last = [inode for inode, left in self._left.items() if left == {name}]
        for left in self._left.values():
            left.discard(name)
        return sum(self._sizes[inode] for inode in last)


def lone_bytes(path: str, inodes: Container[int] | None = None) -> int:
    """The bytes of the regular files below a folder that have no name elsewhere; with `inodes`, of these only."""
    total = 0
    names: dict[int, int] = {}
    for found in _files(path):
        if inodes is not None and found.st_ino not in inodes:
            continue
        if found.st_nlink > 1:
            # One blob may have several names in one tree.
            names[found.st_ino] = names.get(found.st_ino, 0) + 1
            if names[found.st_ino] < found.st_nlink:
                continue
        total += found.st_size
    return total


def links(root: StrPath) -> dict[str, list[str]]:
    """The links below `out/`, by the name of the copy that they lead to."""
    root = os.fspath(root)
    prefix = os.path.join(os.path.abspath(root), "trees", "")
    found: dict[str, list[str]] = {}
    pending = [f"{root}/out"]
    while pending:
        folder = pending.pop()
        for name in names_in(folder):
            path = f"{folder}/{name}"
            try:
                target = os.path.normpath(os.path.join(folder, os.readlink(path)))
            except OSError:
                if os.path.isdir(path):
                    pending.append(path)
                continue
            if os.path.abspath(target).startswith(prefix):
                found.setdefault(os.path.abspath(target)[len(prefix) :].split("/")[0], []).append(path)
    return found


def folder_time(path: str) -> int:
    """When something below a work folder was last changed, looking two levels deep; ns, 0 when it is gone."""
    newest = 0
    pending = [(path, 0)]
    while pending:
        at, depth = pending.pop()
        with suppress(OSError):
            found = os.lstat(at)
            newest = max(newest, found.st_ctime_ns, found.st_mtime_ns)
            if stat.S_ISDIR(found.st_mode) and depth < 2:
                pending += [(f"{at}/{name}", depth + 1) for name in names_in(at)]
    return newest


def _files(path: str) -> Iterator[os.stat_result]:
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                found = os.lstat(f"{folder}/{name}")
                if stat.S_ISREG(found.st_mode):
                    yield found
