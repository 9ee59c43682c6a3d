"""Fingerprint to key: one small file each, the latest key that its declarations led to.

A result knows the keys that it was made from. The same result may be reached by other declarations whose inputs came
out with the same bytes; what these were made from stands here, so that a taint below them is noticed too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from marin_cas.cache.actions import ActionCache
from marin_cas.cache.small import read_small, replace_small
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath
from marin_cas.result import Result
from marin_cas.store.temporary import Temporary


class Fingerprints:
    """Files `ab/<fingerprint's hex>`: a line with the key and the number of lines that follow, each a further key, in
    hex, that the result stands above when it is reached by these declarations."""

    def __init__(self, root: StrPath, actions: ActionCache, temporary: Temporary, disk: Disk = DISK) -> None:
        self._root = os.fspath(root)
        self._actions = actions
        self._temporary = temporary
        self._disk = disk

    def key(self, fingerprint: bytes) -> Digest | None:
        """The key last filed under a fingerprint; what is damaged is a miss."""
        filed = self._filed(fingerprint)
        return None if filed is None else filed[0]

    def also(self, fingerprint: bytes) -> frozenset[bytes]:
        """Keys that the result under it stands above besides those that it was made from."""
        filed = self._filed(fingerprint)
        return frozenset() if filed is None else filed[1]

    def get(self, fingerprint: bytes) -> Result | None:
        """The chosen result of that key, with all keys below it. None also when any of them was tainted or replaced
        since: then only the key, computed from the inputs as they are now, can say."""
        filed = self._filed(fingerprint)
        result = None if filed is None else self._actions.result(filed[0])
        if filed is None or result is None:
            return None
        if filed[1]:
            result = replace(result, producer_keys=tuple(sorted({*result.producer_keys, *filed[1]})))
        return result if self._actions.changed_keys().isdisjoint(result.producer_keys) else None

    def put(self, fingerprint: bytes, key: Digest, also: Iterable[bytes] = ()) -> None:
        """Files a key; `also` are the keys below it that its result does not name itself."""
        more = sorted({*also})
        head = f"{key} {len(more)}" if more else f"{key}"
        text = "".join(f"{line}\n" for line in (head, *(each.hex() for each in more)))
        replace_small(self._disk, self._temporary, self._path(fingerprint), text.encode("ascii"))

    def _filed(self, fingerprint: bytes) -> tuple[Digest, frozenset[bytes]] | None:
        text = read_small(self._path(fingerprint))
        if text is None:
            return None
        try:
            head, *more = text.decode("ascii").split("\n")[:-1]
            key, _, count = head.partition(" ")
            # Without its end it would hide what it stands above.
            if len(more) != int(count or 0):
                return None
            return Digest.parse(key), frozenset(bytes.fromhex(line) for line in more)
        except ValueError:
            return None

    def _path(self, fingerprint: bytes) -> str:
        hexed = fingerprint.hex()
        return f"{self._root}/{hexed[:2]}/{hexed}"
