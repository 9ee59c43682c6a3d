"""A store that fails when told to, for tests of whatever stands on one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from marin_cas.digest import Digest
from marin_cas.disk import StrPath
from marin_cas.store.base import Store


class FaultyStore:
    """Wraps a Store and calls `before(verb)` ahead of each call: what that raises is the failure."""

    def __init__(self, inner: Store, before: Callable[[str], None]) -> None:
        self._inner = inner
        self._before = before

    def contains(self, digest: Digest) -> bool:
        self._before("contains")
        return self._inner.contains(digest)

    def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        self._before("missing")
        return self._inner.missing(digests)

    def read(self, digest: Digest) -> bytes | None:
        self._before("read")
        return self._inner.read(digest)

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        self._before("path")
        return self._inner.path(digest, executable)

    def put(self, data: bytes) -> Digest:
        self._before("put")
        return self._inner.put(data)

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        self._before("put_file")
        return self._inner.put_file(path, move=move, executable=executable)

    def delete(self, digest: Digest) -> None:
        self._before("delete")
        self._inner.delete(digest)
