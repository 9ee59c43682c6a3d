"""Several processes in one, one at a time: each pauses at every disk call, and a test says who goes on.

So any interleaving can be written down, drawn at random and replayed, without a sleep anywhere. A strand that is killed
does nothing to the disk any more, as after `kill -9`: not even its `finally` blocks can.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from marin_cas.disk import Disk
from marin_cas.store.faulty import FaultyDisk

_PATIENCE_S = 60


class Killed(BaseException):
    """What a killed strand unwinds with. Not an Exception: nothing may handle it."""


class Strand:
    """A body that runs in a thread of its own, but only within `step`."""

    def __init__(self, name: str, body: Callable[[], object]) -> None:
        self.name = name
        self.ended = False
        self.error: BaseException | None = None
        self._body = body
        self._dead = False
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def step(self, times: int = 1) -> bool:
        """Lets it go on to its next pause, that many times; False when it has ended. What it raised is raised here."""
        for _ in range(times):
            if self.ended:
                break
            self._mine.release()
            assert self._theirs.acquire(timeout=_PATIENCE_S), f"{self.name} hangs"
            if self.error is not None:
                raise self.error
        return not self.ended

    def kill(self) -> None:
        self._dead = True
        while not self.ended:
            self.step()

    def pause(self) -> None:
        """Called by the body, wherever another may come between."""
        if not self._dead:
            self._theirs.release()
            self._mine.acquire()
        if self._dead:
            raise Killed

    def _run(self) -> None:
        self._mine.acquire()
        _here.strand = self
        try:
            if not self._dead:
                self._body()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.ended = True
        self._theirs.release()


_here = threading.local()


def pause(*_: object) -> None:
    """A pause of the strand that calls; nothing in the test's own thread."""
    strand = getattr(_here, "strand", None)
    if strand is not None:
        strand.pause()


def strand_disk() -> Disk:
    """A disk at whose every call a strand pauses, and a killed one gets no further."""
    return FaultyDisk(pause)


class StrandClock:
    """Time that only the test moves, but for those who wait: for them a moment passes, and others go on. What is
    written down is the real time, as in the stamps of files."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        pause()


class StrandGate:
    """The gate, where nobody may block: who has to wait pauses. Whoever holds it may take a shared hold again."""

    def __init__(self) -> None:
        self._holders: list[object] = []
        self._alone: object = None

    @property
    def open(self) -> bool:
        """Nobody holds it, so that the test itself, which cannot pause, may."""
        return self._alone is None and not self._holders

    @contextmanager
    def shared(self) -> Iterator[None]:
        me = _me()
        while self._alone not in (None, me):
            pause()
        self._holders.append(me)
        try:
            yield
        finally:
            self._holders.remove(me)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        me = _me()
        assert self._alone is not me and me not in self._holders, "it would wait for itself"
        while self._alone is not None or self._holders:
            pause()
        self._alone = me
        try:
            yield
        finally:
            self._alone = None


def _me() -> object:
    return getattr(_here, "strand", None) or threading.main_thread()
