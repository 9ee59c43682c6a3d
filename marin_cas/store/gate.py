"""The door between those who use what a store holds and whoever deletes from it: many users at a time, or one deleter.

It is held for moments only: "look whether it is there, and mark it used or put it there" against "look whether it is
unused, and delete it". The lock is the kernel's, so a killed holder lets go.
"""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from marin_cas.disk import StrPath, disk_problem

_OPEN = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC


class Gate:
    """A lock on the file `path`, and one on `path` with `.turn` that keeps users from starving a deleter.

    Safe for use by several threads: their shared holds are one in the kernel's eyes. Whoever holds it in either way may
    take a shared hold again; an exclusive one inside any hold would wait for itself and raises RuntimeError. Raises
    EnvironmentProblem when the files cannot be opened or locked. A forked child holds nothing.
    """

    def __init__(self, path: StrPath) -> None:
        self._path = os.fspath(path)
        self._start()
        _gates.add(self)

    def _start(self) -> None:
        self._fds: tuple[int, ...] = ()  # of the turn and of the lock, for this process's shared hold
        self._own: list[int] = []  # of exclusive holds
        self._entering, self._counting = threading.Lock(), threading.Lock()
        self._count = 0
        self._depth = threading.local()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While this is held nobody deletes."""
        mine = self._depth
        depth: int = getattr(mine, "value", 0)
        if not depth:
            self._enter()
        mine.value = depth + 1
        try:
            yield
        finally:
            # After a fork in the body the child has a fresh start: the hold is the parent's.
            if mine is self._depth:
                mine.value = depth
                if not depth:
                    self._leave()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """While this is held nobody else holds it in any way."""
        mine = self._depth
        if getattr(mine, "value", 0):
            raise RuntimeError("this thread holds the gate already")
        # Descriptors of its own, since the kernel lets a process share with itself through one. The turn comes first:
        # while users are let in as others are still inside, a deleter could wait for ever.
        held: list[int] = []
        try:
            for path in (f"{self._path}.turn", self._path):
                held.append(_opened(path))
                self._own.append(held[-1])
                _lock(held[-1], fcntl.LOCK_EX, path)
            mine.value = 1
            yield
        finally:
            if mine is self._depth:
                mine.value = 0
                for fd in reversed(held):
                    self._own.remove(fd)
                    # Closing alone would not do while a child that was forked meanwhile has it too.
                    fcntl.flock(fd, fcntl.LOCK_UN)
                    os.close(fd)

    def _enter(self) -> None:
        # Two locks: who leaves must not wait for who waits for the turn.
        with self._entering:
            if not self._fds:
                self._fds = (_opened(f"{self._path}.turn"),)
            if len(self._fds) == 1:
                self._fds = (*self._fds, _opened(self._path))
            turn, fd = self._fds
            _lock(turn, fcntl.LOCK_SH, self._path)
            fcntl.flock(turn, fcntl.LOCK_UN)
            with self._counting:
                if self._count == 0:
                    _lock(fd, fcntl.LOCK_SH, self._path)
                self._count += 1

    def _leave(self) -> None:
        with self._counting:
            self._count -= 1
            if self._count == 0:
                fcntl.flock(self._fds[1], fcntl.LOCK_UN)

    def _close(self) -> None:
        for fd in (*self._fds, *self._own):
            os.close(fd)
        self._fds, self._own = (), []

    def __del__(self) -> None:
        self._close()

    def forked(self) -> None:
        """For a forked child: lets go of what it inherited, which would hold the gate when the parent is killed."""
        self._close()
        self._start()


def _opened(path: str) -> int:
    try:
        return os.open(path, _OPEN, 0o644)
    except OSError as error:
        raise disk_problem(error, path) from error


def _lock(fd: int, how: int, path: str) -> None:
    try:
        fcntl.flock(fd, how)
    except OSError as error:
        raise disk_problem(error, path) from error


def _forked() -> None:
    for gate in _gates:
        gate.forked()


_gates: weakref.WeakSet[Gate] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
