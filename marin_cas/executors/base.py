"""Where actions run: the contract of every executor, and what its tests hold it to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from marin_cas.action import Resources
from marin_cas.errors import MarinError
from marin_cas.result import Result
from marin_cas.worker.attempt import Attempt, Listener
from marin_cas.worker.execute import Lease
from marin_cas.worker.request import Request


@runtime_checkable
class Job(Protocol):
    """One attempt under way."""

    def wait(self, timeout: float | None = None) -> Attempt | None:
        """How it ended; None when it has not within `timeout` seconds. May be asked again and from several threads."""
        ...

    def cancel(self, *, kill: bool = False) -> None:
        """Asks the tool to end, which it may use to save its state; with `kill`, or after a grace, it is ended.

        Returns at once; `wait` then gives the end, `cancelled` unless it was over already. Any number of times.
        """
        ...


@runtime_checkable
class Executor(Protocol):
    """Runs attempts. Nothing is retried here; a job that was submitted always comes to an end.

    Whoever submits holds the lease and releases it after the end: an executor publishes through it and no more.
    """

    name: str

    def check(self, resources: Resources) -> MarinError | None:
        """Why these resources cannot be had here, ever; None when they can."""
        ...

    def submit(
        self,
        request: Request,
        lease: Lease,
        listener: Listener | None = None,
        *,
        recheck: Callable[[], None] | None = None,
        publish: Callable[[Result], Result] | None = None,
    ) -> Job:
        """Begins an attempt and returns at once. `recheck` is called before publishing and raises what forbids it;
        `publish` is used in place of the lease's, for the run of a key that is done already.
        """
        ...

    def close(self) -> None:
        """Ends every job that still runs, and waits for it."""
        ...
