"""Runs actions on this machine, each on a thread of its own; how many at once is the scheduler's to say."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from marin_cas.action import Resources
from marin_cas.errors import EnvironmentProblem, MarinError
from marin_cas.result import Result
from marin_cas.worker.attempt import Attempt, Cancel, Listener, Status
from marin_cas.worker.execute import GRACE_S, Lease, Orders, Worker
from marin_cas.worker.request import Request

if TYPE_CHECKING:
    from marin_cas.cache.cache import Cache


class LocalJob:
    """An attempt on its thread."""

    def __init__(self, worker: Worker, request: Request, orders: Orders) -> None:
        self._cancel = orders.cancel
        self._attempt: Attempt | None = None
        self._done = threading.Event()
        # Not a daemon: the interpreter must not end under an attempt that is publishing.
        self._thread = threading.Thread(
            target=self._run, args=(worker, request, orders), name=f"attempt {request.key.short}"
        )
        self._thread.start()

    def _run(self, worker: Worker, request: Request, orders: Orders) -> None:
        try:
            self._attempt = worker.execute(request, orders)
        except BaseException as error:
            # A bug of ours must reach whoever waits, or it would wait for ever.
            problem = MarinError(f"`{request.label}`: {type(error).__name__}: {error}")
            problem.__cause__ = error
            self._attempt = Attempt(Status.INFRA, error=problem)
        finally:
            self._done.set()

    def wait(self, timeout: float | None = None) -> Attempt | None:
        return self._attempt if self._done.wait(timeout) else None

    def cancel(self, *, kill: bool = False) -> None:
        self._cancel(kill=kill)


class LocalExecutor:
    """`root` is the workspace, `environ` what secrets and `pass_env` are taken from."""

    name = "local"

    def __init__(
        self,
        cache: Cache,
        root: Path,
        *,
        environ: Mapping[str, str] | None = None,
        confine: bool = True,
        grace: float = GRACE_S,
    ) -> None:
        self._worker = Worker(cache, root, os.environ if environ is None else environ, confine=confine, grace=grace)
        self._jobs: set[LocalJob] = set()
        self._lock = threading.Lock()

    def check(self, resources: Resources) -> MarinError | None:
        if resources.device == "cpu":
            return None
        wanted = f'{resources.device}("{resources.variant}")' if resources.variant else resources.device
        return EnvironmentProblem(
            f"this machine runs actions on its CPUs only, and `{wanted}` is asked for",
            hint="give the target CPU resources, or choose an executor that has such devices",
        )

    def submit(
        self,
        request: Request,
        lease: Lease,
        listener: Listener | None = None,
        *,
        recheck: Callable[[], None] | None = None,
        publish: Callable[[Result], Result] | None = None,
    ) -> LocalJob:
        job = LocalJob(self._worker, request, Orders(lease, Cancel(), listener, recheck, publish))
        with self._lock:
            self._jobs = {other for other in self._jobs if other.wait(0) is None} | {job}
        return job

    def close(self) -> None:
        with self._lock:
            jobs, self._jobs = self._jobs, set()
        for job in jobs:
            job.cancel(kill=True)
        for job in jobs:
            job.wait()
        self._worker.close()
