"""What deleting a blob gives back: its files are looked at once, when somebody asks."""

from __future__ import annotations

import os
from array import array

from marin_cas.cache.copies import Copies
from marin_cas.cache.nodes import Nodes

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
        self._gone: set[int] = set()
        self.young = 0  # bytes that may not be deleted for their age

    def hex(self, n: int) -> str:
        if not self._hashes:
            self._hashes = self._nodes.hashes()
        return self._hashes[n].hex()

    def goes(self, n: int) -> None:
        """The copies of this tree or file under `trees/` go too: their names do not hold its blobs."""
        if n in self._gone:
            return
        self._gone.add(n)
        for name in self._copies.entries.get(self.hex(n), ()):
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
        files = self._nodes.files[n]
        found = [self._stat(name) for name in ((path,), (f"{path}.x",), (path, f"{path}.x"))[files - 1]]
        there = [each for each in found if each is not None]
        if self._nodes.sizes[n] < 0:
            self._nodes.sizes[n] = there[0].st_size if there else 0
        if any(each.st_ctime_ns >= self._before for each in there):
            self.young += self._nodes.taken(n)
            return _YOUNG
        return sum(each.st_size for each in there if each.st_nlink - 1 <= self.names.get(each.st_ino, 0))

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path)
        except FileNotFoundError:
            return None
