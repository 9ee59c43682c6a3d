"""The SQLite file `state.db`: what can be learnt again by looking. Whatever is wrong with it, nothing is known.

Rows are never believed for more than they prove: whoever reads them checks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from marin_cas.disk import StrPath

if TYPE_CHECKING:
    import sqlite3

_SCHEMA = 2
_TABLES = (
    """CREATE TABLE IF NOT EXISTS stats (device INTEGER, inode INTEGER, size INTEGER, mtime INTEGER,
    ctime INTEGER, hash BLOB, PRIMARY KEY (device, inode)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS trees (hash BLOB PRIMARY KEY, seal BLOB, body BLOB) WITHOUT ROWID",
)
_WAIT_S = 0.2


class Database:
    """One connection, opened at the first use; safe for several threads. SQLite is imported only then."""

    def __init__(self, path: StrPath) -> None:
        self._path = os.fspath(path)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._opened = False

    def ask[T](self, question: Callable[[sqlite3.Connection], T]) -> T | None:
        """What `question` answers; None when the database is in the way."""
        with self._lock:
            connection = self._open()
            if connection is None:
                return None
            import sqlite3

            try:
                return question(connection)
            # OverflowError: SQLite's integers have 64 bits, Python's any number.
            except (sqlite3.Error, OverflowError) as error:
                self._give_up(error)
                return None

    def close(self) -> None:
        with self._lock:
            self._drop()
            self._opened = False

    def _open(self) -> sqlite3.Connection | None:
        if not self._opened:
            self._opened = True
            import sqlite3

            try:
                self._connection = self._connect()
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        import sqlite3

        os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=_WAIT_S, check_same_thread=False)
        self._connection = connection
        # Losing it costs some reading, so it need not wait for the disk.
        connection.execute("PRAGMA synchronous = OFF")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, _SCHEMA):
            raise sqlite3.DatabaseError("written by another version")
        for table in _TABLES:
            connection.execute(table)
        if version == 0:
            connection.execute(f"PRAGMA user_version = {_SCHEMA}")
        return connection

    def _give_up(self, error: Exception) -> None:
        """Goes on without the database; a damaged one is removed, to be made anew by the next process."""
        import sqlite3

        self._drop()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            for suffix in ("", "-journal", "-wal", "-shm"):
                with suppress(OSError):
                    os.unlink(self._path + suffix)

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None
