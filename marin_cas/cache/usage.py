"""How much a cache holds, and where, for `marin cache stat`."""

from __future__ import annotations

import os
import stat as modes
from dataclasses import dataclass

from marin_cas.cache.cache import Cache
from marin_cas.cache.listing import standings


@dataclass(frozen=True, slots=True)
class Usage:
    """`blobs` counts digests, `blob_bytes` what they take. The other byte counts leave out what shares a blob's
    inode, so that removing a folder frees what its count says."""

    blobs: int
    blob_bytes: int
    keys: int
    results: int
    attempts: int
    leases: int
    trees_bytes: int
    work_bytes: int
    scratch_bytes: int


def stat(cache: Cache) -> Usage:
    """Counts by walking; nothing is hashed."""
    digests: set[str] = set()
    blob_bytes = 0
    shared: set[tuple[int, int]] = set()
    for hexed, entry in cache.store.files():
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        digests.add(hexed)
        blob_bytes += found.st_size
        if found.st_nlink > 1:
            shared.add((found.st_dev, found.st_ino))
    keys = results = attempts = leases = 0
    for hexed, standing in standings(cache):
        keys += 1
        results += standing.chosen is not None
        attempts += len(standing.attempts)
        # An open lease whose holder was killed stays on record, and nobody builds there.
        leases += standing.lease is not None and cache.actions.in_use(hexed) is not None
    trees, work, scratch = (folder_bytes(f"{cache.root}/{name}", shared) for name in ("trees", "work", "scratch"))
    return Usage(len(digests), blob_bytes, keys, results, attempts, leases, trees, work, scratch)


def folder_bytes(path: str, shared: set[tuple[int, int]] = frozenset()) -> int:  # type: ignore[assignment]
    """Bytes of the regular files below a folder, each inode once and those in `shared` never; 0 when absent."""
    total = 0
    seen = set(shared)
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                found = os.lstat(f"{folder}/{name}")
            except FileNotFoundError:
                continue
            inode = (found.st_dev, found.st_ino)
            if modes.S_ISREG(found.st_mode) and inode not in seen:
                seen.add(inode)
                total += found.st_size
    return total
