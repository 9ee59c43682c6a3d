"""A store around another store: what all wrappers have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from marin_cas.digest import Digest
from marin_cas.disk import StrPath
from marin_cas.store.base import Store


class Wrapper:
    """Passes every verb on. A subclass overrides `_ask`, which all of them go through, or single verbs."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def _ask[T](self, verb: str, digests: tuple[Digest, ...], call: Callable[[], T]) -> T:
        """`call` asks the inner store, and may be made again. `digests` are those asked for: none yet for a put."""
        return call()

    def contains(self, digest: Digest) -> bool:
        return self._ask("contains", (digest,), lambda: self._inner.contains(digest))

    def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        asked = tuple(digests)
        return self._ask("missing", asked, lambda: self._inner.missing(asked))

    def read(self, digest: Digest) -> bytes | None:
        return self._ask("read", (digest,), lambda: self._inner.read(digest))

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        return self._ask("path", (digest,), lambda: self._inner.path(digest, executable))

    def fetch(self, digest: Digest, path: StrPath) -> bool:
        return self._ask("fetch", (digest,), lambda: self._inner.fetch(digest, path))

    def put(self, data: bytes) -> Digest:
        return self._ask("put", (), lambda: self._inner.put(data))

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        return self._ask("put_file", (), lambda: self._inner.put_file(path, move=move, executable=executable))

    def delete(self, digest: Digest) -> None:
        self._ask("delete", (digest,), lambda: self._inner.delete(digest))
