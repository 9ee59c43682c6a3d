"""How one attempt at an action ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from marin_cas.errors import MarinError
from marin_cas.result import Result
from marin_cas.worker import wire


class Status(StrEnum):
    """`failed` is the tool's fault, `infra` the machine's; `lost_lease`: another builder took the key over."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INFRA = "infra"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST_LEASE = "lost_lease"


@dataclass(frozen=True, slots=True)
class Attempt:
    """`result` is the chosen realisation after a success; `error` is None then and only then.

    `made` is the result of this very run, which differs from `result` when another realisation was first. `log` is a
    file with the whole log after a failure, `work` the folder if it was kept.
    """

    status: Status
    result: Result | None = None
    made: Result | None = None
    error: MarinError | None = None
    log_tail: tuple[str, ...] = ()
    log: Path | None = None
    work: Path | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The tool runs: `log` grows while it does."""

    pid: int
    work: Path
    log: Path


@dataclass(frozen=True, slots=True)
class Progress:
    """What the tool said last; `total` is None where it does not know."""

    done: float
    total: float | None
    unit: str
    fields: dict[str, object]


# Called on the attempt's own thread; it must return soon.
Listener = Callable[[Started | Progress], None]


class _Orders(Protocol):
    def order(self, what: bytes) -> None: ...


class Cancel:
    """The one way to stop an attempt, before or while its tool runs. Used from any thread, any number of times."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: _Orders | None = None
        self._order: bytes | None = None

    @property
    def requested(self) -> bool:
        return self._order is not None

    def __call__(self, *, kill: bool = False) -> None:
        """Asks the tool to end, or with `kill` ends it at once."""
        with self._lock:
            if self._order != wire.KILL:
                self._order = wire.KILL if kill else wire.TERMINATE
            if self._channel is not None:
                self._channel.order(self._order)

    def attach(self, channel: _Orders | None) -> None:
        """From now on orders go to `channel`, one given earlier included."""
        with self._lock:
            self._channel = channel
            if channel is not None and self._order is not None:
                channel.order(self._order)
