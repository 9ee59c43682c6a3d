"""How much a cache has, kept up without looking: what builds add is added up, and now and then counted anew.

The file `size` is disposable. Its sum may be too high, since what is stored twice is counted twice, and then somebody
counts; it is never relied on for deleting.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from marin_cas.cache.cache import Cache
from marin_cas.cache.copies import Copies, lone_bytes
from marin_cas.cache.small import read_small, replace_small
from marin_cas.disk import disk_problems

# Sources of workspaces and other attempts are not added up, so a sum is not believed for long.
_FRESH_S = 86400.0
_LINES = 1000


class Total:
    """The sum for one cache, in bytes."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._path = f"{cache.root}/size"

    def add(self, amount: int) -> None:
        """So much may have been added; nothing happens before the first count."""
        if amount > 0 and os.path.exists(self._path):
            with disk_problems(self._path):
                self._cache.disk.append(self._path, f"{amount}\n".encode())

    def read(self) -> tuple[int, int] | None:
        """The sum, and up to which sum nobody needs to look. None when somebody should count."""
        first, *lines = (read_small(self._path) or b"").split(b"\n")
        with suppress(ValueError):
            counted, quiet, when = first.split()
            if 0 <= time.time() - float(when) < _FRESH_S and len(lines) < _LINES:
                return int(counted) + sum(int(line) for line in lines if line), int(quiet)
        return None

    def write(self, counted: int, quiet: int) -> None:
        replace_small(
            self._cache.disk, self._cache.temporary, self._path, f"{counted} {quiet} {time.time()}\n".encode()
        )


def measure(cache: Cache) -> int:
    """The bytes that a size budget is about: blobs, copies of single files, work and scratch folders."""
    copies = Copies.of(cache.root)
    total = sum(copies.own_bytes(name, whole=True) for names in copies.entries.values() for name in names)
    for _, entry in cache.store.files():
        with suppress(FileNotFoundError):
            total += entry.stat(follow_symlinks=False).st_size
    return total + lone_bytes(f"{cache.root}/work") + lone_bytes(f"{cache.root}/scratch")
