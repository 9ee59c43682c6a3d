"""The sign of life of a process that holds leases: one small file whose modification time it moves.

Those who wait look for a change on their own clock; they never compare it with a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from marin_cas.cache.holder import Holder
from marin_cas.disk import DISK, Disk

TTL_S = 60.0
INTERVAL_S = 10.0


class Heart:
    """Beats in a daemon thread of its own while anything is held. `folder` is the cache's folder of temporary files,
    so the file goes with all else that a killed process leaves."""

    def __init__(self, folder: str, disk: Disk = DISK, interval_s: float = INTERVAL_S) -> None:
        self._folder = folder
        self._disk = disk
        self._interval = interval_s
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Holder, Callable[[], object]]] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def _path(self, holder: Holder) -> str:
        return f"{self._folder}/{holder.process.prefix}beat"

    def start(self, fence: str, holder: Holder, check: Callable[[], object] = lambda: None) -> None:
        """Beats for this holder from now on; `check` is called at each beat, to notice a lost lease."""
        self._touch(self._path(holder))
        with self._lock:
            self._held[fence] = (holder, check)
            # After a fork the thread is not there in the child, and says so.
            if self._interval > 0 and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="marin-heart", daemon=True)
                self._thread.start()

    def stop(self, fence: str) -> None:
        """Beats no more for this lease. The file stays: another lease of this process may live by it."""
        with self._lock:
            self._held.pop(fence, None)

    def beat(self) -> None:
        with self._lock:
            held = list(self._held.values())
        for path in {self._path(holder) for holder, _ in held}:
            self._touch(path)
        for _, check in held:
            # A disk that is in the way now is no proof of a lost lease; the publish will find out.
            with suppress(Exception):
                check()

    def pulse(self, holder: Holder) -> int | None:
        """A number that changes with each beat of that holder; None while it has no file."""
        try:
            return os.stat(self._path(holder)).st_mtime_ns
        except OSError:
            return None

    def _run(self) -> None:
        while not self._wake.wait(self._interval):
            self.beat()

    def _touch(self, path: str) -> None:
        # A heartbeat that cannot be written costs the lease at worst, so it never costs the build.
        with suppress(OSError):
            try:
                self._disk.touch(path)
            except FileNotFoundError:
                self._disk.makedirs(self._folder)
                with suppress(FileExistsError):
                    self._disk.write(path, b"")
