"""A store in front of others: what is found below is copied up, checked, so that it is near the next time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from marin_cas.digest import Digest
from marin_cas.disk import StrPath
from marin_cas.errors import EnvironmentProblem, IntegrityError
from marin_cas.store.base import Store
from marin_cas.store.retrying import Clock
from marin_cas.store.temporary import Temporary
from marin_cas.store.verifying import VerifyingStore

# How long a store below that could not answer is left alone.
REST_S = 60.0


class LayeredStore:
    """`top` is asked first and takes all writes; `below`, by the names that warnings use, in their order.

    A store below is a convenience: when it cannot answer, or gives wrong bytes, the blob counts as absent there and
    `warn` is told, of each store's silence only once. `top` is not: what it raises is raised. `temporary` is for what
    is on its way up, best on the file system of `top`.
    """

    def __init__(
        self,
        top: Store,
        below: Mapping[str, Store],
        *,
        temporary: Temporary,
        warn: Callable[[str], None],
        clock: Clock = time,
    ) -> None:
        self._top = top
        self._below = {name: VerifyingStore(store) for name, store in below.items()}
        self._temporary, self._warn, self._clock = temporary, warn, clock
        self._lock = threading.Lock()
        self._rests_until: dict[str, float] = {}

    def contains(self, digest: Digest) -> bool:
        return self._top.contains(digest) or any(
            self._asked(name, lambda store: store.contains(digest), False) for name in self._below
        )

    def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        left = self._top.missing(digests)
        for name in self._below:
            if left:
                left &= self._asked(name, lambda store, left=left: store.missing(left), left)
        return left

    def read(self, digest: Digest) -> bytes | None:
        data = self._top.read(digest)
        for name in self._below:
            if data is not None:
                break
            data = self._asked(name, lambda store: store.read(digest), None)
            if data is not None:
                self._top.put(data)
        return data

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        found = self._top.path(digest, executable)
        if found is None and self._bring(digest):
            found = self._top.path(digest, executable)
        return found

    def fetch(self, digest: Digest, path: StrPath) -> bool:
        return self._top.fetch(digest, path) or (self._bring(digest) and self._top.fetch(digest, path))

    def put(self, data: bytes) -> Digest:
        return self._top.put(data)

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        return self._top.put_file(path, move=move, executable=executable)

    def delete(self, digest: Digest) -> None:
        self._top.delete(digest)

    def _bring(self, digest: Digest) -> bool:
        """Copies a blob up; False when it is nowhere below, or at the top already."""
        if not self._below or self._top.contains(digest):
            return False
        self._temporary.prepare()
        way = self._temporary.name()
        try:
            for name in self._below:
                if self._asked(name, lambda store: store.fetch(digest, way), False):
                    return self._top.put_file(way, move=True) == digest
        finally:
            with suppress(OSError):
                os.unlink(way)
        return False

    def _asked[T](self, name: str, ask: Callable[[Store], T], absent: T) -> T:
        if self._clock.monotonic() < self._rests_until.get(name, 0.0):
            return absent
        try:
            return ask(self._below[name])
        except IntegrityError as error:
            self._warn(f"`{name}` is not to be trusted: {error.message}")
        except EnvironmentProblem as error:
            with self._lock:
                first = name not in self._rests_until
                self._rests_until[name] = self._clock.monotonic() + REST_S
            if first:
                self._warn(f"going on without `{name}`: {error.message}")
        return absent
