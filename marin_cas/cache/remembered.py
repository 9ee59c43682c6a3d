"""What tree records name, remembered in `state.db`: a record is still read and hashed, and need not be decoded again.

A row is believed only when its seal, a hash over the tree's digest and the row, matches: the content of a tree with a
given digest never changes, so a row is right for ever or damaged.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

from blake3 import blake3

from marin_cas.cache.database import Database
from marin_cas.disk import StrPath
from marin_cas.tree.children import Child

if TYPE_CHECKING:
    import sqlite3

# Decoding a shorter record is quicker than asking.
_WORTH = 12
_SPARE = 10_000


class RememberedTrees:
    """Hash of a tree's record to the blobs that it names. What is learnt is written by `flush`."""

    def __init__(self, path: StrPath) -> None:
        self._database = Database(path)
        self._new: dict[bytes, bytes] = {}
        self._used = 0

    def get(self, hash: bytes) -> tuple[list[bytes], array[int], bytes] | None:
        """Hashes, sizes and a byte for each (1 for a folder's record); None when it is not known."""
        query = "SELECT seal, body FROM trees WHERE hash = ?"
        row = self._database.ask(lambda database: database.execute(query, (hash,)).fetchone())
        if row is None or not isinstance(row[1], bytes) or row[0] != _seal(hash, row[1]):
            return None
        self._used += 1
        return _unpack(row[1])

    def learn(self, hash: bytes, named: list[Child]) -> None:
        if len(named) >= _WORTH and all(size < 1 << 63 for _, size, _ in named):
            self._new[hash] = _pack(named)

    def flush(self) -> None:
        """Writes what was learnt, and clears away what has not been asked for when that has become the most."""
        rows = [(hash, _seal(hash, body), body) for hash, body in self._new.items()]

        def write(database: sqlite3.Connection) -> None:
            with database:
                (kept,) = database.execute("SELECT count(*) FROM trees").fetchone()
                if kept > 2 * self._used + _SPARE:
                    database.execute("DELETE FROM trees")
                database.executemany("INSERT OR REPLACE INTO trees VALUES (?, ?, ?)", rows)

        if rows:
            self._database.ask(write)
            self._new.clear()
        self._database.close()


def _seal(hash: bytes, body: bytes) -> bytes:
    # A file that came from a machine with the other order of bytes is not believed.
    return blake3(sys.byteorder.encode() + hash + body).digest(16)


def _pack(named: list[Child]) -> bytes:
    count = len(named)
    sizes = array("Q", [size for _, size, _ in named])
    return b"".join([
        count.to_bytes(4, "little"),
        *(hash for hash, _, _ in named),
        sizes.tobytes(),
        bytes(folder for _, _, folder in named),
    ])  # fmt: skip


def _unpack(body: bytes) -> tuple[list[bytes], array[int], bytes]:
    count = int.from_bytes(body[:4], "little")
    hashes, end = body[4 : 4 + 32 * count], 4 + 40 * count
    sizes = array("Q")
    sizes.frombytes(body[4 + 32 * count : end])
    return [hashes[i : i + 32] for i in range(0, 32 * count, 32)], sizes, body[end:]
