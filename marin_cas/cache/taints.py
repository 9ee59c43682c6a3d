"""Digests that nothing may read or make any more: append-only records `taints/<hex>/<n>`, as those of a key.

A taint stands until it is taken back, whatever was or will be made meanwhile. Without any the folder is not there,
and looking costs one call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping

from marin_cas.cache.entry import TAINTED, UNREADABLE, UNTAINTED, Entry
from marin_cas.cache.sequence import Sequences
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problem
from marin_cas.errors import IntegrityError
from marin_cas.recipe import TREE
from marin_cas.store.base import MissingBlob, Store
from marin_cas.store.temporary import Temporary
from marin_cas.tree.entries import DirEntry, FileEntry
from marin_cas.tree.walk import read_tree


class Taints:
    """The tainted digests of a cache, by the hash alone. Safe for several threads and processes."""

    def __init__(self, root: StrPath, temporary: Temporary, disk: Disk = DISK) -> None:
        self._root = os.fspath(root)
        self._entries = Sequences(lambda hexed: f"{self._root}/{hexed}", temporary, disk)
        self._read: dict[tuple[str, int], Entry] = {}

    def current(self) -> Mapping[bytes, Entry]:
        """The taints that stand, by the digest's hash."""
        try:
            names = sorted(name for name in os.listdir(self._root) if len(name) == 64)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise disk_problem(error, self._root) from error
        found = {bytes.fromhex(name): self._last(name) for name in names}
        return {hash: entry for hash, entry in found.items() if entry is not None and entry.state == TAINTED}

    def history(self, hash: bytes) -> list[Entry]:
        """Every taint of a digest and every time it was taken back, in order."""
        return self._entries.entries(hash.hex())

    def add(self, hash: bytes, reason: str, who: str) -> bool:
        """Taints a digest; False when a taint stands already."""
        return self._append(hash, TAINTED, reason, who)

    def lift(self, hash: bytes, reason: str, who: str) -> bool:
        """Takes the taint of a digest back; False when none stands."""
        return self._append(hash, UNTAINTED, reason, who)

    def _append(self, hash: bytes, state: str, reason: str, who: str) -> bool:
        hexed = hash.hex()
        while True:
            last = self._last(hexed)
            if (last is not None and last.state == TAINTED) == (state == TAINTED):
                return False
            n = 1 if last is None else last.n + 1
            if self._entries.append(hexed, Entry(n, state, time.time(), reason=reason, who=who)):
                return True

    def _last(self, hexed: str) -> Entry | None:
        numbers = self._entries.numbers(hexed)
        if not numbers:
            return None
        at = (hexed, numbers[-1])
        if at not in self._read:
            entry = self._entries.entry(*at)
            if entry.state == UNREADABLE:
                # Whatever it said: to be asked once too often does less harm than bytes that somebody warned of.
                entry = Entry(entry.n, TAINTED, reason="the record of its taint is damaged", who="unknown")
            self._read[at] = entry
        return self._read[at]


class Holding:
    """Looks for digests in files and trees. `unknown` are the trees whose records are gone or damaged."""

    def __init__(self, store: Store, wanted: Collection[bytes]) -> None:
        self._store = store
        self._wanted = frozenset(wanted)
        self._without: set[bytes] = set()  # trees that hold none
        self.unknown: set[bytes] = set()

    def find(self, kind: str, digest: Digest) -> tuple[bytes, str] | None:
        """The first of the wanted hashes in a file or tree and the path to it there, empty for the whole."""
        if digest.hash in self._wanted:
            return digest.hash, ""
        if kind != TREE or not self._wanted:
            return None
        seen: set[bytes] = {digest.hash}
        stack = [] if digest.hash in self._without else [("", digest)]
        while stack:
            prefix, at = stack.pop()
            try:
                entries = read_tree(self._store, at).entries
            except (MissingBlob, IntegrityError):
                self.unknown.add(at.hash)
                continue
            for entry in entries:
                if not isinstance(entry, FileEntry | DirEntry):
                    continue
                if entry.digest.hash in self._wanted:
                    return entry.digest.hash, prefix + entry.name
                if isinstance(entry, DirEntry) and entry.digest.hash not in seen | self._without:
                    seen.add(entry.digest.hash)
                    stack.append((f"{prefix}{entry.name}/", entry.digest))
        self._without |= seen
        return None
