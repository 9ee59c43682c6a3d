"""A store that may be read and never changed: writes are refused with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from marin_cas.digest import Digest
from marin_cas.disk import StrPath
from marin_cas.errors import EnvironmentProblem
from marin_cas.store.base import Store


class ReadOnlyStore:
    """Wraps a Store. `name` is how messages call it."""

    def __init__(self, inner: Store, name: str = "store") -> None:
        self._inner = inner
        self._name = name

    def contains(self, digest: Digest) -> bool:
        return self._inner.contains(digest)

    def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        return self._inner.missing(digests)

    def read(self, digest: Digest) -> bytes | None:
        return self._inner.read(digest)

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        return self._inner.path(digest, executable)

    def put(self, data: bytes) -> Digest:
        raise self._refusal()

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        raise self._refusal()

    def delete(self, digest: Digest) -> None:
        raise self._refusal()

    def _refusal(self) -> EnvironmentProblem:
        return EnvironmentProblem(f"`{self._name}` is read-only", hint="build into a cache that you may write to")
