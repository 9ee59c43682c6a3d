"""Ctrl-C and a polite kill, turned into calls while a build runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupts(handle: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and a polite kill go to `handle` meanwhile, where signals can be handled at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    count = 0

    def heard(signum: int, frame: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            # Should even killing hang (a file system that does not answer), the next one ends this process.
            signal.signal(signum, signal.SIG_DFL)
        handle()

    before = {s: signal.signal(s, heard) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
