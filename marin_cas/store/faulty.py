"""A disk and a store that fail when told to, for tests of whatever stands on them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from marin_cas.digest import Digest
from marin_cas.disk import Disk, StrPath
from marin_cas.store.base import Store
from marin_cas.store.wrapper import Wrapper


class FaultyStore(Wrapper):
    """Calls `before(verb)` ahead of each call: what that raises is the failure."""

    def __init__(self, inner: Store, before: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._before = before

    def _ask[T](self, verb: str, digests: tuple[Digest, ...], call: Callable[[], T]) -> T:
        self._before(verb)
        return call()


class FaultyDisk(Disk):
    """The real disk, with `before(call)` ahead of each call: what that raises is the failure.

    A write that fails leaves half of its bytes, as a full disk does for a process that is killed right then.
    """

    def __init__(self, before: Callable[[str], None]) -> None:
        super().__init__()
        self._before = before

    def write(self, path: StrPath, data: bytes, mode: int = 0o644) -> None:
        try:
            self._before("write")
        except OSError as error:
            error.filename = os.fspath(path)
            with suppress(OSError):
                super().write(path, data[: len(data) // 2], mode)
            raise
        super().write(path, data, mode)

    def copy(self, source: StrPath, path: StrPath, mode: int) -> None:
        try:
            self._before("copy")
        except OSError as error:
            error.filename = os.fspath(path)
            with suppress(OSError):
                super().write(path, b"half", mode)
            raise
        super().copy(source, path, mode)


def _failing(name: str) -> Callable[..., Any]:
    real = getattr(Disk, name)

    def call(self: FaultyDisk, *args: Any) -> Any:
        try:
            self._before(name)
        except OSError as error:
            error.filename = [os.fspath(each) for each in args if isinstance(each, str | os.PathLike)][-1]
            raise
        return real(self, *args)

    return call


for _name in vars(Disk):
    if not _name.startswith("_") and _name not in vars(FaultyDisk):
        setattr(FaultyDisk, _name, _failing(_name))
