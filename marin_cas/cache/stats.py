"""The stat cache: a file whose stat has not changed since it was hashed is not read again.

It lives in `state.db` and is disposable: whatever is wrong with the database, the answer is "not known".
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from marin_cas.cache.database import Database
from marin_cas.digest import Digest
from marin_cas.disk import StrPath

if TYPE_CHECKING:
    import sqlite3

# A file changed again within one tick of the file system's clock keeps its times: so young a stat proves nothing.
# Some file systems tick in whole seconds, and then their times show it.
_GRAIN_NS = 50_000_000
_COARSE_NS = 2_000_000_000
_SECOND = 1_000_000_000
_AT_ONCE = 500  # fewer than the variables that any SQLite takes in one question

type _Key = tuple[int, int]
type _Row = tuple[int, int, int, bytes]


class StatCache:
    """Keyed on device and inode; size, mtime and ctime must be equal. What is learnt is written by `flush`."""

    def __init__(self, path: StrPath) -> None:
        self._database = Database(path)
        self._lock = threading.Lock()
        self._new: dict[_Key, _Row] = {}

    def digest_of(self, path: str, st: os.stat_result) -> Digest | None:
        """The digest of the file whose stat is `st`, if it was hashed with that very stat."""
        key = _key(st)
        with self._lock:
            row = self._new.get(key) or self._select(key)
        return _known(row, st)

    def digests_of(self, looks: Sequence[os.stat_result]) -> list[Digest | None]:
        """The same for many files at once."""
        rows: dict[_Key, _Row] = {}
        with self._lock:
            for device in {st.st_dev for st in looks}:
                inodes = [_signed(st.st_ino) for st in looks if st.st_dev == device]
                for at in range(0, len(inodes), _AT_ONCE):
                    rows.update(self._select_many(_signed(device), inodes[at : at + _AT_ONCE]))
            rows.update(self._new)
        return [_known(rows.get(_key(st)), st) for st in looks]

    def remember(self, path: str, st: os.stat_result, digest: Digest, taken_ns: int | None = None) -> None:
        """The file had this digest while its stat was `st`, which was taken at `taken_ns` on the wall clock."""
        newest = max(st.st_mtime_ns, st.st_ctime_ns)
        coarse = st.st_mtime_ns % _SECOND == 0 and st.st_ctime_ns % _SECOND == 0
        taken = time.time_ns() if taken_ns is None else taken_ns
        if taken - newest < (_COARSE_NS if coarse else _GRAIN_NS):
            return
        with self._lock:
            self._new[_key(st)] = (st.st_size, st.st_mtime_ns, st.st_ctime_ns, digest.hash)

    def flush(self) -> None:
        """Writes what was learnt, in one commit."""
        with self._lock:
            if not self._new:
                return
            rows = [(*key, *row) for key, row in self._new.items()]

            def write(database: sqlite3.Connection) -> bool:
                with database:
                    database.executemany("INSERT OR REPLACE INTO stats VALUES (?, ?, ?, ?, ?, ?)", rows)
                return True

            if self._database.ask(write):
                self._new.clear()

    def close(self) -> None:
        self.flush()
        self._database.close()

    def _select(self, key: _Key) -> _Row | None:
        query = "SELECT size, mtime, ctime, hash FROM stats WHERE device = ? AND inode = ?"
        return self._database.ask(lambda database: database.execute(query, key).fetchone())

    def _select_many(self, device: int, inodes: Sequence[int]) -> dict[_Key, _Row]:
        marks = ", ".join("?" * len(inodes))
        query = f"SELECT inode, size, mtime, ctime, hash FROM stats WHERE device = ? AND inode IN ({marks})"
        found = self._database.ask(lambda database: database.execute(query, (device, *inodes)).fetchall())
        return {(device, row[0]): row[1:] for row in found or ()}


def _known(row: Sequence[Any] | None, st: os.stat_result) -> Digest | None:
    if row is None:
        return None
    size, mtime, ctime, hash = row
    if size != st.st_size or mtime != st.st_mtime_ns or ctime != st.st_ctime_ns:
        return None
    # Whoever wrote the row may have been wrong about its type.
    return Digest(hash, size) if type(hash) is bytes and len(hash) == 32 else None


def _key(st: os.stat_result) -> _Key:
    return _signed(st.st_dev), _signed(st.st_ino)


def _signed(number: int) -> int:
    # SQLite's integers have a sign, inode numbers of some file systems use all 64 bits.
    return number - (1 << 64) if number >= 1 << 63 else number
