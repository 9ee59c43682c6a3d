"""How often somebody deleted from this cache: a number that every deletion raises before its first delete.

Whoever found something there and has not used it yet compares the number, and looks again when it moved.
"""

from __future__ import annotations

import os
from contextlib import suppress

from marin_cas.cache.small import read_small, replace_small
from marin_cas.disk import DISK, Disk, StrPath
from marin_cas.store.gate import Gate
from marin_cas.store.temporary import Temporary


class Epoch:
    """The file `path`. Raises EnvironmentProblem when the disk is in the way."""

    def __init__(self, path: StrPath, gate: Gate, temporary: Temporary, disk: Disk = DISK) -> None:
        self.path = os.fspath(path)
        self._gate = gate
        self._temporary = temporary
        self._disk = disk

    def now(self) -> int:
        """The number; 0 before the first deletion, and where the file is damaged."""
        with suppress(ValueError):
            return int(read_small(self.path) or b"0")
        return 0

    def advance(self) -> int:
        """Raises the number, and returns it. Not inside a hold of the gate."""
        # Alone, or two who delete at once would write the same number, and the second would go unseen.
        with self._gate.exclusive():
            number = self.now() + 1
            replace_small(self._disk, self._temporary, self.path, b"%d\n" % number)
        return number
