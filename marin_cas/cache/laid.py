"""Whether what lies under `trees/` for people is what the store says: the same files as the store's, or equal ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator

from marin_cas.cache.cache import Cache
from marin_cas.digest import Digest, hash_file
from marin_cas.errors import IntegrityError
from marin_cas.store.base import MissingBlob
from marin_cas.tree.entries import DirEntry, FileEntry
from marin_cas.tree.walk import read_tree

_FILE = ".file"


def wrong_copies(cache: Cache, wrong: Collection[str]) -> list[str]:
    """The names under `trees/` of outputs that were laid out and have other bytes now. `wrong` are files of the store
    whose bytes are. What the store has no record of any more cannot be judged, and is left out."""
    trees = f"{cache.root}/trees"
    found = [name for name in sorted(_names(trees)) if not _is_right(cache, f"{trees}/{name}", name, wrong)]
    # Another process may have been removing one of them just now.
    return [
        name
        for name in found
        if os.path.lexists(f"{trees}/{name}") and not _is_right(cache, f"{trees}/{name}", name, wrong)
    ]


def _is_right(cache: Cache, path: str, name: str, wrong: Collection[str]) -> bool:
    digest = cache.store.known(name.removesuffix(_FILE)) if _is_name(name) else None
    if digest is None:
        return True
    try:
        if name.endswith(_FILE):
            return all(_is_file(cache, f"{path}/{each}", digest, wrong) for each in _names(path))
        return all(_is_right_folder(cache, folder, at, wrong) for folder, at in _folders(cache, path, digest))
    except (MissingBlob, IntegrityError):
        return True  # told of the record itself, or of the result that lacks it
    except (FileNotFoundError, NotADirectoryError):
        return False


def _folders(cache: Cache, path: str, digest: Digest) -> Iterator[tuple[str, Digest]]:
    pending = [(path, digest)]
    while pending:
        folder, at = pending.pop()
        yield folder, at
        pending += [
            (f"{folder}/{entry.name}", entry.digest)
            for entry in read_tree(cache.store, at).entries
            if isinstance(entry, DirEntry)
        ]


def _is_right_folder(cache: Cache, folder: str, digest: Digest, wrong: Collection[str]) -> bool:
    entries = read_tree(cache.store, digest).entries
    if set(os.listdir(folder)) != {entry.name for entry in entries}:
        return False
    for entry in entries:
        path = f"{folder}/{entry.name}"
        if isinstance(entry, FileEntry):
            if not _is_file(cache, path, entry.digest, wrong):
                return False
        elif isinstance(entry, DirEntry):
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                return False
        elif not os.path.islink(path) or os.readlink(path) != entry.target:
            return False
    return True


def _is_file(cache: Cache, path: str, digest: Digest, wrong: Collection[str]) -> bool:
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size != digest.size:
        return False
    for name in cache.store.names(digest.hex):
        try:
            blob = os.stat(name)
        except FileNotFoundError:
            continue
        # What shares its bytes with the store was hashed there.
        if (blob.st_dev, blob.st_ino) == (found.st_dev, found.st_ino):
            return name not in wrong
    try:
        return hash_file(path) == digest
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unreadable: not known to be wrong


def _is_name(name: str) -> bool:
    hexed = name.removesuffix(_FILE)
    return len(hexed) == 64 and all(each in "0123456789abcdef" for each in hexed)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
