"""Whether what lies under `trees/` for people is what the store says: the same files as the store's, or equal ones."""

from __future__ import annotations

import os
from collections.abc import Collection

from marin_cas.cache.cache import Cache
from marin_cas.digest import Digest, hash_file
from marin_cas.disk import names_in
from marin_cas.errors import IntegrityError
from marin_cas.recipe import FILE, TREE
from marin_cas.store.base import MissingBlob
from marin_cas.tree.whole import is_whole

_FILE = ".file"


def wrong_copies(cache: Cache, wrong: Collection[str]) -> list[str]:
    """The names under `trees/` of outputs that were laid out and have other bytes now. `wrong` are files of the store
    whose bytes are. What the store has no record of any more cannot be judged, and is left out."""
    found = [name for name in sorted(names_in(f"{cache.root}/trees")) if not _is_right(cache, name, wrong)]
    # Another process may have been removing one of them just now.
    return [n for n in found if os.path.lexists(f"{cache.root}/trees/{n}") and not _is_right(cache, n, wrong)]


def _is_right(cache: Cache, name: str, wrong: Collection[str]) -> bool:
    try:
        digest = cache.store.known(name.removesuffix(_FILE))
    except ValueError:
        digest = None  # no name of ours
    if digest is None:
        return True

    def is_right(path: str, found: os.stat_result, digest: Digest) -> bool:
        for blob in cache.store.names(digest.hex):
            # What shares its bytes with the store was hashed there.
            if _is_same(blob, found):
                return blob not in wrong
        try:
            return hash_file(path) == digest
        except FileNotFoundError:
            return False
        except OSError:
            return True  # cannot be read: not known to be wrong

    path = f"{cache.root}/trees/{name}"
    try:
        if not name.endswith(_FILE):
            return is_whole(cache.store, TREE, digest, path, is_right)
        return all(is_whole(cache.store, FILE, digest, f"{path}/{each}", is_right) for each in names_in(path))
    except (MissingBlob, IntegrityError):
        return True  # told of the record itself, or of the result that lacks it


def _is_same(blob: str, found: os.stat_result) -> bool:
    try:
        other = os.stat(blob)
    except FileNotFoundError:
        return False
    return (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino)
