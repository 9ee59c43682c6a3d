"""Asking again when a store cannot answer for a moment, ever more slowly, until a budget of time is used up."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Protocol

from marin_cas.digest import Digest
from marin_cas.store.base import Store, Unavailable
from marin_cas.store.wrapper import Wrapper


class Clock(Protocol):
    """Seconds, as the module `time` has them."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class RetryingStore(Wrapper):
    """Repeats a call that raised Unavailable; all else (wrong bytes, refusals, a full disk) is final at once.

    The wait before the n-th repetition is between half and all of `first_s` doubled n - 1 times, and of `longest_s` at
    most. No wait begins that would end more than `budget_s` after the call began; then the last error is raised.
    """

    def __init__(
        self,
        inner: Store,
        *,
        budget_s: float = 60.0,
        first_s: float = 0.1,
        longest_s: float = 10.0,
        clock: Clock = time,
        random: Random | None = None,
    ) -> None:
        super().__init__(inner)
        self._budget, self._first, self._longest = budget_s, first_s, longest_s
        self._clock, self._random = clock, random or Random()

    def _ask[T](self, verb: str, digests: tuple[Digest, ...], call: Callable[[], T]) -> T:
        began = self._clock.monotonic()
        tries, wait = 0, self._first
        while True:
            try:
                return call()
            except Unavailable as error:
                tries += 1
                # Not all at the same moment, or those that a store turned away together come back together.
                jittered = wait * (1 + self._random.random()) / 2
                passed = self._clock.monotonic() - began
                if passed + jittered > self._budget:
                    error.notes = (*error.notes, f"asked {tries} times in {passed:.1f} s")
                    raise
            self._clock.sleep(jittered)
            wait = min(2 * wait, self._longest)
