"""A disk and a store that fail when told to, for tests of whatever stands on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from marin_cas.digest import Digest
from marin_cas.store.base import Store
from marin_cas.store.trace import Call, TracedDisk
from marin_cas.store.wrapper import Wrapper


class FaultyStore(Wrapper):
    """Calls `before(verb)` ahead of each call: what that raises is the failure."""

    def __init__(self, inner: Store, before: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._before = before

    def _ask[T](self, verb: str, digests: tuple[Digest, ...], call: Callable[[], T]) -> T:
        self._before(verb)
        return call()


class FaultyDisk(TracedDisk):
    """The real disk, with `before(call)` ahead of each call: what that raises is the failure.

    A write or copy that fails leaves half of its bytes, as a full disk does for a process that is killed right then.
    """

    def __init__(self, before: Callable[[str], None]) -> None:
        def listener(call: Call, go: Callable[[], Any]) -> Any:
            try:
                before(call.name)
            except OSError as error:
                error.filename = call.path
                if call.name in ("write", "copy"):
                    call.half(self)
                raise
            return go()

        super().__init__(listener)
