"""Time as an argument, so that tests of leases need not wait."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """`monotonic` judges how long ago; `now` is only ever shown to people; `sleep` waits."""

    def monotonic(self) -> float: ...

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clocks. Its monotonic one stands still while the machine sleeps, as leases should."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
