"""One run handed to a runner, what it may say meanwhile, and how it ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from marin_cas.action import Action
from marin_cas.digest import Digest
from marin_cas.errors import MarinError
from marin_cas.recipe import Recipe
from marin_cas.result import Result
from marin_cas.scheduler.node import Mode


@dataclass(frozen=True, slots=True)
class Task:
    """`producer_keys` are the keys of every action below; `replace` lets a RESTORE with other bytes take over."""

    action: Action
    recipe: Recipe
    key: Digest
    mode: Mode
    producer_keys: tuple[bytes, ...] = ()
    replace: bool = False
    keep_work: bool = False


class End(Enum):
    RAN = auto()  # `result` is the chosen one, and this run made it or made its equal
    SERVED = auto()  # another build made `result` meanwhile
    COMPARED = auto()  # --check: `result` is the chosen one, `differences` what differs in this run
    DIFFERS = auto()  # a RESTORE gave other bytes: `result` still stands, hollow
    FAILED = auto()
    VANISHED = auto()  # bytes that it reads are gone from the store
    CANCELLED = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """`differences` are paths such as `out/data/a.txt`. `replaced`: the chosen result is another one than before."""

    end: End
    result: Result | None = None
    error: MarinError | None = None
    differences: tuple[str, ...] = ()
    replaced: bool = False
    holder: str = ""  # SERVED: who made it
    log_tail: str = ""
    status: str = ""  # how the attempt ended, in the executor's words
    work: Path | None = None  # its folder, if it was kept


class Runner(Protocol):
    """Runs one task to its end in the calling thread. Raises nothing but what a bug raises."""

    def run(self, task: Task, control: Control) -> Outcome: ...


class Control:
    """The line between a running task and the build. Every method may be called from any thread."""

    def __init__(
        self,
        *,
        emit: Callable[..., object],
        waiting: Callable[[str, float, float], None],
        readmit: Callable[[threading.Event], None],
    ) -> None:
        self._emit, self._waiting, self._readmit = emit, waiting, readmit
        self._lock = threading.Lock()
        self._cancel: Callable[[bool], None] | None = None
        self._cancelled = self._killed = False
        self._waited = False

    def emit(self, event: str, **data: object) -> None:
        """An event about this task."""
        self._emit(event, **data)

    def waiting(self, holder: str, age: float, since: float) -> None:
        """Another build holds the key's lease, `since` in Unix seconds, and is waited for `age` seconds already: what
        this task holds of the machine is free."""
        self._waited = True
        self._waiting(holder, age, since)

    def admitted(self) -> None:
        """Call before running: after a wait for a lease, this waits until the machine has room again."""
        if self._waited:
            room = threading.Event()
            self._readmit(room)
            while not room.wait(0.2) and not self._cancelled:
                pass

    def cancelled(self) -> bool:
        return self._cancelled

    def attach(self, cancel: Callable[[bool], None]) -> None:
        """`cancel(kill)` ends what runs; it is called at once when the build was cancelled already."""
        with self._lock:
            self._cancel = cancel
            pending, kill = self._cancelled, self._killed
        if pending:
            cancel(kill)

    def cancel(self, *, kill: bool) -> None:
        with self._lock:
            self._cancelled, self._killed = True, self._killed or kill
            cancel = self._cancel
        if cancel is not None:
            cancel(kill)
