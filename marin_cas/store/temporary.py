"""Names for files that are not finished yet; what a killed process leaves under them is swept by a later one."""

from __future__ import annotations

import itertools
import os
import time
from contextlib import suppress

from marin_cas.disk import DISK, Disk, StrPath
from marin_cas.store.process import owner_is_gone, this_process

# Leftovers whose maker cannot be judged from here (another machine, an earlier boot) go when this old.
_FOREIGN_AGE_S = 24 * 3600

# One for the whole process: several objects may share a folder, one after another too.
_count = itertools.count()


class Temporary:
    """A folder of unfinished files, on the file system of the finished ones so that a rename can finish them."""

    def __init__(self, folder: StrPath, disk: Disk = DISK) -> None:
        self.folder = os.fspath(folder)
        self._disk = disk

    def name(self, hint: str = "") -> str:
        """A path nobody else uses. Its folder may be missing: see `prepare`."""
        return f"{self.folder}/{this_process().prefix}{next(_count)}{hint}"

    def prepare(self) -> None:
        self._disk.makedirs(self.folder)

    def sweep(self) -> int:
        """Removes what processes that have ended left here; the number of things removed."""
        removed = 0
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return 0
        for name in names:
            path = f"{self.folder}/{name}"
            gone = owner_is_gone(name)
            # Another sweep, or its owner, may take it away meanwhile.
            with suppress(OSError):
                if gone or (gone is None and time.time() - os.lstat(path).st_mtime > _FOREIGN_AGE_S):
                    self._disk.remove_tree(path)
                    removed += 1
        return removed
