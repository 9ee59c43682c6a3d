"""Fingerprint to key: one small file each, the latest key that its declarations led to."""

from __future__ import annotations

import os

from marin_cas.cache.actions import ActionCache
from marin_cas.cache.small import read_small, replace_small
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath
from marin_cas.result import Result
from marin_cas.store.temporary import Temporary


class Fingerprints:
    """Files `ab/<fingerprint's hex>`, each holding a key as text."""

    def __init__(self, root: StrPath, actions: ActionCache, temporary: Temporary, disk: Disk = DISK) -> None:
        self._root = os.fspath(root)
        self._actions = actions
        self._temporary = temporary
        self._disk = disk

    def key(self, fingerprint: bytes) -> Digest | None:
        """The key last filed under a fingerprint; what is damaged is a miss."""
        text = read_small(self._path(fingerprint))
        if text is None:
            return None
        try:
            return Digest.parse(text.decode("ascii").strip())
        except ValueError:
            return None

    def get(self, fingerprint: bytes) -> Result | None:
        """The chosen result of that key. None also when anything that it was made from was tainted or replaced
        since: then only the key, computed from the inputs as they are now, can say."""
        key = self.key(fingerprint)
        result = None if key is None else self._actions.result(key)
        if result is None or not self._actions.changed_keys().isdisjoint(result.producer_keys):
            return None
        return result

    def put(self, fingerprint: bytes, key: Digest) -> None:
        replace_small(self._disk, self._temporary, self._path(fingerprint), f"{key}\n".encode("ascii"))

    def _path(self, fingerprint: bytes) -> str:
        hexed = fingerprint.hex()
        return f"{self._root}/{hexed[:2]}/{hexed}"
