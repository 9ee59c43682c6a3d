"""Waiting for a server that is busy or broken: bounded, longer each time, and as long as it asks for.

What a server asks for holds for every thread: a limit on requests is one for all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from marin_cas.worker.context import ToolError

TRIES = 6
FIRST_S, LONGEST_S = 0.5, 30.0
# Longer than that nobody wants to sit in front of: the build ends, and the next one goes on from what is there.
ASKED_MAX_S = 900.0


class Transient(Exception):
    """Something that may go well next time. `wait_s` is what the server asked for, None for nothing."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class Patience:
    """Shared by the threads of a tool. `sleep` and `clock` (seconds) stand in for the real ones in tests."""

    def __init__(
        self,
        tries: int = TRIES,
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tries, self._sleep, self._clock = tries, sleep, clock
        self._until = 0.0
        self._lock = threading.Lock()

    def hold(self) -> None:
        """Before each request: waits while the server wants to be left alone."""
        while (left := self._until - self._clock()) > 0:
            self._sleep(left)

    def after(self, failure: Transient, failures: int, what: str) -> None:
        """Waits before the next try. ToolError when that was the last (`failures` in a row without any progress)."""
        wait = failure.wait_s
        if wait is not None and wait > ASKED_MAX_S:
            raise ToolError(f"{what}: {failure}; it asks to be left alone for {wait:.0f} s", environment=True)
        if failures >= self.tries:
            raise ToolError(
                f"{what}: {failure} ({failures} times)",
                hint="is the network there? What has been fetched is kept: build again to go on",
                environment=True,
            )
        if wait is not None:
            with self._lock:
                self._until = max(self._until, self._clock() + wait)
            self.hold()
        else:
            self._sleep(min(FIRST_S * 2 ** (failures - 1), LONGEST_S))

    def insist[T](self, call: Callable[[], T], what: str) -> T:
        """What `call` gives, tried again after each Transient."""
        failures = 0
        while True:
            self.hold()
            try:
                return call()
            except Transient as failure:
                failures += 1
                self.after(failure, failures, what)


def asked_wait(headers: Mapping[str, str], now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float | None:
    """The seconds that `Retry-After` (a number or a date) or else `RateLimit` (its `t=`) asks for."""
    text = (headers.get("retry-after") or "").strip()
    if text.isdigit():
        return float(text)
    if text:
        try:
            return max(0.0, (parsedate_to_datetime(text) - now()).total_seconds())
        except (ValueError, TypeError):
            pass
    limit = [part.strip() for part in (headers.get("ratelimit") or "").split(";")]
    if "r=0" in limit:
        for part in limit:
            if part.startswith("t=") and part[2:].isdigit():
                return float(part[2:])
    return None
