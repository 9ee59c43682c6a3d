"""Removing what an attempt leaves behind, beside the build: a dozen folders cost milliseconds that a chain waits for.

What is thrown away leaves its place at once, by one rename into the cache's temporary folder, where it is swept anyway
should this process be killed.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from pathlib import Path

from marin_cas.disk import DISK
from marin_cas.store.temporary import Temporary


class Trash:
    """One thread that removes; `close` waits until all is gone."""

    def __init__(self, temporary: Temporary) -> None:
        self._temporary = temporary
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def take(self, path: Path) -> None:
        """`path` is not there any more when this returns. What cannot be moved is left: no result fails for that."""
        gone = self._temporary.name()
        try:
            DISK.rename(path, gone)
        except OSError:
            with contextlib.suppress(OSError):
                DISK.remove_tree(path)
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="marin-trash", daemon=True)
                self._thread.start()
        self._queue.put(gone)

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _run(self) -> None:
        while (path := self._queue.get()) is not None:
            with contextlib.suppress(OSError):
                DISK.remove_tree(path)
