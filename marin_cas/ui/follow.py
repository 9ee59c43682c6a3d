"""The tools' own output while they run, for `-v`: new lines of their log files, as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import BinaryIO

from marin_cas.scheduler import events
from marin_cas.scheduler.events import Event

_EVERY_S = 0.25


class Follower:
    """Fed with events; gives `show(name, line)` each line of each running action's log. Close it at the end."""

    def __init__(self, show: Callable[[str, str], None]) -> None:
        self._show = show
        self._open: dict[str, tuple[BinaryIO, bytes]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        name = str(event.get("action") or event.get("label") or "")
        if event.event == events.LOG and isinstance(path := event.get("path"), str):
            self._begin(name, path)
        elif event.event == events.ACTION_FINISHED:
            with self._lock:
                self._read(name, last=True)

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for name in list(self._open):
                self._read(name, last=True)

    def _begin(self, name: str, path: str) -> None:
        try:
            # Held open: at the end the file is moved into the store.
            file = open(path, "rb")  # noqa: SIM115 - closed by the last read
        except OSError:
            return
        with self._lock:
            self._open[name] = (file, b"")
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="follow logs", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        while not self._over.wait(_EVERY_S):
            with self._lock:
                for name in list(self._open):
                    self._read(name)

    def _read(self, name: str, *, last: bool = False) -> None:
        if name not in self._open:
            return
        file, held = self._open[name]
        *lines, rest = (held + file.read()).split(b"\n")
        if last:
            lines += [rest] if rest else []
            file.close()
            del self._open[name]
        else:
            self._open[name] = (file, rest)
        for line in lines:
            # A progress bar redraws its line: what stood there last is what a person would see.
            self._show(name, line.rstrip(b"\r").rsplit(b"\r", 1)[-1].decode("utf-8", "replace"))
