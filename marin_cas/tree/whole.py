"""Whether a file or folder that was laid out from the store is still what was laid out there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from marin_cas.digest import Digest
from marin_cas.recipe import TREE
from marin_cas.store.base import Store
from marin_cas.store.local import SEALED_NS
from marin_cas.tree.entries import DirEntry, FileEntry, LinkEntry
from marin_cas.tree.walk import read_tree

type Judge = Callable[[str, os.stat_result, Digest], bool]


def is_sealed(path: str, found: os.stat_result, digest: Digest) -> bool:
    """The judge that reads nothing: a write to a read-only file of ours moves its time. What a disk changes by itself
    shows in no stat."""
    return found.st_mtime_ns == SEALED_NS


def is_whole(store: Store, kind: str, digest: Digest, path: str, is_right: Judge = is_sealed) -> bool:
    """Whether every entry is there, none is beside them, links lead where they did, and files have their length and
    are right by `is_right` (path, lstat, digest). Raises MissingBlob or IntegrityError for a record, and OSError for
    what cannot be looked at."""
    try:
        if kind != TREE:
            return _is_file(path, digest, is_right)
        pending = [(path, digest)]
        while pending:
            folder, at = pending.pop()
            entries = read_tree(store, at).entries
            if len(os.listdir(folder)) != len(entries):
                return False
            for entry in entries:
                name = f"{folder}/{entry.name}"
                match entry:
                    case FileEntry():
                        if not _is_file(name, entry.digest, is_right):
                            return False
                    case DirEntry():
                        if not stat.S_ISDIR(os.lstat(name).st_mode):
                            return False
                        pending.append((name, entry.digest))
                    case LinkEntry():
                        if not os.path.islink(name) or os.readlink(name) != entry.target:
                            return False
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _is_file(path: str, digest: Digest, is_right: Judge) -> bool:
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_size == digest.size and is_right(path, found, digest)
