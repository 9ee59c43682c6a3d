"""Workspace files as inputs: read while people may be editing them, so every read is bracketed by two looks."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from marin_cas.action import Source
from marin_cas.digest import Digest, hash_open
from marin_cas.disk import disk_problem
from marin_cas.errors import BuildError, RequestError
from marin_cas.recipe import TREE
from marin_cas.store.base import Store
from marin_cas.tree.nest import Leaf, Nested, nest
from marin_cas.tree.walk import first_missing

_TRIES = 3


class Stats(Protocol):
    """What is remembered of files: the stat cache, or `NO_STATS`."""

    def digest_of(self, path: str, st: os.stat_result) -> Digest | None:
        """The digest of a file whose stat is `st`, if it was hashed with that very stat."""
        ...

    def digests_of(self, looks: Sequence[os.stat_result]) -> list[Digest | None]:
        """The same for many files at once."""
        ...

    def remember(self, path: str, st: os.stat_result, digest: Digest, taken_ns: int) -> None:
        """A file had this digest and, at `taken_ns` on the wall clock and until it was hashed, this stat."""
        ...


class NoStats:
    """Remembers nothing: every file is read."""

    def digest_of(self, path: str, st: os.stat_result) -> Digest | None:
        return None

    def digests_of(self, looks: Sequence[os.stat_result]) -> list[Digest | None]:
        return [None] * len(looks)

    def remember(self, path: str, st: os.stat_result, digest: Digest, taken_ns: int) -> None:
        pass


NO_STATS = NoStats()


def hash_file_source(root: Path | str, relpath: str, stats: Stats = NO_STATS) -> Digest:
    """The digest of a workspace file. A link is followed: what counts is the text people see there."""
    return _leaf(root, relpath, stats).digest


def tree_of(
    root: Path | str, paths: Sequence[str], names: Sequence[str], stats: Stats = NO_STATS, store: Store | None = None
) -> Digest:
    """The digest of the tree in which `names[i]` is the workspace file `paths[i]`; with `store` it is kept there."""
    leaves = dict(zip(names, _leaves(root, paths, stats), strict=True))
    nested = _nest(leaves, paths, names)
    if store is not None:
        for path, name in zip(paths, names, strict=True):
            _put(store, root, path, leaves[name])
        _put_records(store, nested)
    return nested.digest


def put_source(store: Store, root: Path | str, source: Source, stats: Stats = NO_STATS) -> None:
    """Copies workspace files into the store, where an action can read them whatever people do meanwhile.

    Raises BuildError when they are not any more what `source.digest` says.
    """
    if first_missing(store, source.kind, source.digest) is None:
        return
    if source.kind != TREE:
        _put(store, root, source.paths[0], Leaf(source.digest))
        return
    leaves: dict[str, Leaf] = {}
    for path, name in zip(source.paths, source.names, strict=True):
        leaf = _leaf(root, path, stats)
        _put(store, root, path, leaf)
        leaves[name] = leaf
    nested = _nest(leaves, source.paths, source.names)
    if nested.digest != source.digest:
        newest = max(source.paths, key=lambda path: os.stat(os.path.join(root, path)).st_mtime_ns)
        raise _changed(newest, "or another file of this input ")
    _put_records(store, nested)


def _put(store: Store, root: Path | str, path: str, leaf: Leaf) -> None:
    if store.missing([leaf.digest]):
        kept = store.put_file(os.path.join(root, path), move=False, executable=leaf.executable)
        if kept != leaf.digest:
            raise _changed(path)


def _put_records(store: Store, nested: Nested) -> None:
    for record in nested.records:
        store.put(record)


def _nest(leaves: Mapping[str, Leaf], paths: Sequence[str], names: Sequence[str]) -> Nested:
    if len(leaves) != len(names):
        seen: dict[str, str] = {}
        for path, name in zip(paths, names, strict=True):
            if name in seen:
                raise RequestError(f"`{seen[name]}` and `{path}` would both be `{name}` in one tree")
            seen[name] = path
    try:
        return nest(leaves)
    except ValueError as error:
        raise RequestError(str(error)) from None


def _leaves(root: Path | str, paths: Sequence[str], stats: Stats) -> list[Leaf]:
    """The files in that order; what is known of them is asked for in one question."""
    try:
        looks = [os.stat(f"{root}/{path}") for path in paths]
    except OSError:
        return [_leaf(root, path, stats) for path in paths]  # one of them says which and why
    return [
        _leaf(root, path, stats) if digest is None else Leaf(digest, bool(look.st_mode & stat.S_IXUSR))
        for path, look, digest in zip(paths, looks, stats.digests_of(looks), strict=True)
    ]


def _leaf(root: Path | str, relpath: str, stats: Stats) -> Leaf:
    path = os.path.join(root, relpath)
    try:
        for _ in range(_TRIES):
            taken = time.time_ns()
            before = os.stat(path)
            executable = bool(before.st_mode & stat.S_IXUSR)
            known = stats.digest_of(path, before)
            if known is not None:
                return Leaf(known, executable)
            digest, after = _hash(path, relpath)
            if _same(before, after):
                stats.remember(path, after, digest, taken)
                return Leaf(digest, executable)
    except FileNotFoundError:
        raise RequestError(f"`{relpath}` does not exist", hint="create it, or correct the name") from None
    except OSError as error:
        raise disk_problem(error, path) from error
    raise _changed(relpath)


def _hash(path: str, relpath: str) -> tuple[Digest, os.stat_result]:
    # Never mapped: a mapped file that its user truncates ends the process with SIGBUS.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            what = "a folder" if stat.S_ISDIR(st.st_mode) else "not a regular file"
            raise RequestError(f"`{relpath}` is {what}", hint="name its files, for example with `glob`")
        return hash_open(fd, st.st_size), os.fstat(fd)
    finally:
        os.close(fd)


def _same(a: os.stat_result, b: os.stat_result) -> bool:
    return (a.st_dev, a.st_ino, a.st_size, a.st_mtime_ns, a.st_ctime_ns) == (
        b.st_dev,
        b.st_ino,
        b.st_size,
        b.st_mtime_ns,
        b.st_ctime_ns,
    )


def _changed(path: str, others: str = "") -> BuildError:
    return BuildError(
        f"`{path}` {others}changed while it was being read",
        hint="let whatever writes it finish, then build again",
    )
