"""A store that may be read and never changed: writes are refused with the reason."""

from __future__ import annotations

from marin_cas.digest import Digest
from marin_cas.disk import StrPath
from marin_cas.errors import EnvironmentProblem
from marin_cas.store.base import Store
from marin_cas.store.wrapper import Wrapper


class ReadOnlyStore(Wrapper):
    """`name` is how messages call it."""

    def __init__(self, inner: Store, name: str = "store") -> None:
        super().__init__(inner)
        self._name = name

    def put(self, data: bytes) -> Digest:
        raise self._refusal()

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        raise self._refusal()

    def delete(self, digest: Digest) -> None:
        raise self._refusal()

    def _refusal(self) -> EnvironmentProblem:
        return EnvironmentProblem(f"`{self._name}` is read-only", hint="build into a cache that you may write to")
