"""The stat cache: a file whose stat has not changed since it was hashed is not read again.

It lives in SQLite and is disposable: whatever is wrong with the database, the answer is "not known".
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from marin_cas.digest import Digest
from marin_cas.disk import StrPath

if TYPE_CHECKING:
    import sqlite3

_SCHEMA = 1
_CREATE = """CREATE TABLE IF NOT EXISTS stats (device INTEGER, inode INTEGER, size INTEGER, mtime INTEGER,
ctime INTEGER, hash BLOB, PRIMARY KEY (device, inode)) WITHOUT ROWID"""
# A file changed again within one tick of the file system's clock keeps its times: so young a stat proves nothing.
# Some file systems tick in whole seconds, and then their times show it.
_GRAIN_NS = 50_000_000
_COARSE_NS = 2_000_000_000
_SECOND = 1_000_000_000
_WAIT_S = 0.2

type _Key = tuple[int, int]
type _Row = tuple[int, int, int, bytes]


class StatCache:
    """Keyed on device and inode; size, mtime and ctime must be equal. What is learnt is written by `flush`."""

    def __init__(self, path: StrPath) -> None:
        self._path = os.fspath(path)
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._opened = False
        self._new: dict[_Key, _Row] = {}

    def digest_of(self, path: str, st: os.stat_result) -> Digest | None:
        """The digest of the file whose stat is `st`, if it was hashed with that very stat."""
        key = _key(st)
        with self._lock:
            row = self._new.get(key) or self._select(key)
        if row is None or row[:3] != (st.st_size, st.st_mtime_ns, st.st_ctime_ns) or len(row[3]) != 32:
            return None
        return Digest(row[3], st.st_size)

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
            import sqlite3

            database = self._open()
            rows = [(*key, *row) for key, row in self._new.items()]
            if database is not None:
                try:
                    with database:
                        database.executemany("INSERT OR REPLACE INTO stats VALUES (?, ?, ?, ?, ?, ?)", rows)
                    self._new.clear()
                except (sqlite3.Error, OverflowError) as error:
                    self._give_up(error)

    def close(self) -> None:
        self.flush()
        with self._lock:
            self._drop()
            self._opened = False

    def _select(self, key: _Key) -> _Row | None:
        database = self._open()
        if database is None:
            return None
        import sqlite3

        try:
            return database.execute(
                "SELECT size, mtime, ctime, hash FROM stats WHERE device = ? AND inode = ?", key
            ).fetchone()
        except (sqlite3.Error, OverflowError) as error:
            self._give_up(error)
            return None

    def _open(self) -> sqlite3.Connection | None:
        if not self._opened:
            self._opened = True
            import sqlite3

            try:
                self._database = self._connect()
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)
        return self._database

    def _connect(self) -> sqlite3.Connection:
        import sqlite3

        os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
        database = sqlite3.connect(self._path, timeout=_WAIT_S, check_same_thread=False)
        self._database = database
        # Losing it costs some hashing, so it need not wait for the disk.
        database.execute("PRAGMA synchronous = OFF")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _SCHEMA):
            raise sqlite3.DatabaseError("written by another version")
        database.execute(_CREATE)
        if version == 0:
            database.execute(f"PRAGMA user_version = {_SCHEMA}")
        return database

    def _give_up(self, error: Exception) -> None:
        """Goes on without the database; a damaged one is removed, to be made anew by the next process."""
        import sqlite3

        self._drop()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            for suffix in ("", "-journal", "-wal", "-shm"):
                with suppress(OSError):
                    os.unlink(self._path + suffix)

    def _drop(self) -> None:
        if self._database is not None:
            with suppress(Exception):
                self._database.close()
            self._database = None


def _key(st: os.stat_result) -> _Key:
    return _signed(st.st_dev), _signed(st.st_ino)


def _signed(number: int) -> int:
    # SQLite's integers have a sign, inode numbers of some file systems use all 64 bits.
    return number - (1 << 64) if number >= 1 << 63 else number
