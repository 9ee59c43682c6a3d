"""Blobs in memory: the Store that tests of other rooms use, and the simplest statement of what a store does."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from marin_cas.digest import Digest
from marin_cas.disk import DISK, StrPath, disk_problems
from marin_cas.store.base import wrong_blob


class MemoryStore:
    """A dictionary behind the Store protocol; it keeps no files, so `path` is always None."""

    def __init__(self) -> None:
        self.blobs: dict[Digest, bytes] = {}

    def contains(self, digest: Digest) -> bool:
        return digest in self.blobs

    def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        return {digest for digest in digests if digest not in self.blobs}

    def read(self, digest: Digest) -> bytes | None:
        data = self.blobs.get(digest)
        if data is not None and Digest.of(data) != digest:
            raise wrong_blob(digest, "its bytes have another digest")
        return data

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        return None

    def fetch(self, digest: Digest, path: StrPath) -> bool:
        data = self.read(digest)
        if data is not None:
            with disk_problems(path):
                DISK.write(path, data)
        return data is not None

    def put(self, data: bytes) -> Digest:
        digest = Digest.of(data)
        self.blobs[digest] = bytes(data)
        return digest

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        with disk_problems(path):
            with open(path, "rb") as file:
                digest = self.put(file.read())
            if move:
                os.unlink(path)
        return digest

    def delete(self, digest: Digest) -> None:
        self.blobs.pop(digest, None)
