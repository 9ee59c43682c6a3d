"""What deleting a blob gives back: its files are looked at once, when somebody asks."""

from __future__ import annotations

import os
from array import array

from marin_cas.cache.copies import Copies
from marin_cas.cache.nodes import EXECUTABLE, Nodes

_UNASKED, _YOUNG = -1, -2


class Probe:
    """`before` (ns, the file system's clock): what was used since is young and not to be deleted.

    A file with other names gives nothing back, except where those names are in copies that go as well (`goes`).
    """

    def __init__(self, base: str, nodes: Nodes, before: int, copies: Copies) -> None:
        self._base, self._nodes, self._before, self._copies = base, nodes, before, copies
        self._known = array("q", [_UNASKED]) * len(nodes)
        self._hashes: list[bytes] = []
        self.names: dict[int, int] = {}  # inode to how many of its names go
        self._gone: set[str] = set()  # names of copies
        self.young = 0  # bytes that may not be deleted for their age

    def hex(self, n: int) -> str:
        if not self._hashes:
            self._hashes = self._nodes.hashes()
        return self._hashes[n].hex()

    def goes(self, n: int) -> None:
        """The copies of this tree or file under `trees/` go too: their names do not hold its blobs."""
        if self._copies.entries:
            for name in self._copies.entries.get(self.hex(n), ()):
                self.copy_goes(name)

    def copy_goes(self, name: str) -> None:
        if name in self._gone:
            return
        self._gone.add(name)
        for found in self._copies.files(name):
            if found.st_nlink > 1:
                self.names[found.st_ino] = self.names.get(found.st_ino, 0) + 1

    def __call__(self, n: int) -> int | None:
        """The bytes that the disk gets back, None for a young blob. Learns the size of what nothing names."""
        known = self._known[n]
        if known == _UNASKED:
            known = self._known[n] = self._look(n)
        return None if known == _YOUNG else known

    def _look(self, n: int) -> int:
        hexed = self.hex(n)
        path = f"{self._base}/{hexed[:2]}/{hexed}"
        files, freed, size, young = self._nodes.files[n], 0, 0, False
        for name in (path, f"{path}.x") if files & EXECUTABLE else (path,):
            try:
                found = os.stat(name)
            except FileNotFoundError:
                continue
            size = found.st_size
            young = young or found.st_ctime_ns >= self._before
            if found.st_nlink == 1 or found.st_nlink - 1 <= self.names.get(found.st_ino, 0):
                freed += size
        if self._nodes.sizes[n] < 0:
            self._nodes.sizes[n] = size
        if young:
            self.young += self._nodes.taken(n)
            return _YOUNG
        return freed
