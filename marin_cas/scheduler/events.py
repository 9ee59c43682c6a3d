"""What happens in a build, as data: one event for the events file, the screen and the tests alike.

An event never holds a secret's value: the log masks every value it was told of before anyone sees the event.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO

VERSION = 1

BUILD_STARTED = "build_started"
TARGET_ANALYSED = "target_analysed"
ACTION_STARTED = "action_started"
ACTION_WAITING = "action_waiting"  # another build holds the key's lease: `holder`, `since`, `age_s`
ACTION_FINISHED = "action_finished"
LOG = "log"
PROGRESS = "progress"
WARNING = "warning"
BUILD_FINISHED = "build_finished"

# Values of `source` in action_finished, and what each counts as in build_finished.
EXECUTED, LOCAL, REMOTE, UP_TO_DATE = "executed", "local", "remote", "up_to_date"
COUNTED = {EXECUTED: "executed", LOCAL: "local_hits", REMOTE: "remote_hits", UP_TO_DATE: "up_to_date"}
COUNTS = ("executed", "local_hits", "remote_hits", "up_to_date", "failed", "skipped")

# Shorter values would mask ordinary text everywhere.
_SHORTEST_SECRET = 6
_MASK = "***"


@dataclass(frozen=True, slots=True)
class Event:
    """`event` is one of the names above, `time` Unix seconds, `data` JSON values: `label`, `key`, `status`, ..."""

    event: str
    time: float
    data: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {"event": self.event, "time": self.time, **self.data}

    def __getitem__(self, name: str) -> object:
        return self.data[name]

    def get(self, name: str, default: object = None) -> object:
        return self.data.get(name, default)


class EventLog:
    """Gives each event to the sink (a JSON line each) and to the listeners, in one order, from any thread.

    A sink that fails (a full disk) is dropped and named in a warning: events never fail a build. A pipe that nobody
    reads any more is dropped without a word.
    """

    def __init__(
        self,
        sink: IO[str] | None = None,
        listeners: Iterable[Callable[[Event], None]] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sink = sink
        self._listeners = list(listeners)
        self._clock = clock
        self._lock = threading.RLock()
        self._secrets: tuple[str, ...] = ()

    def listen(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

    def mask(self, secrets: Iterable[str]) -> None:
        """Values that no event may hold."""
        known = {*self._secrets, *(s for s in secrets if len(s) >= _SHORTEST_SECRET)}
        # Longest first: one secret may hold another.
        self._secrets = tuple(sorted(known, key=lambda s: (-len(s), s)))

    def emit(self, event: str, **data: object) -> Event:
        if event == BUILD_STARTED:
            data = {"version": VERSION, **data}
        if self._secrets:
            data = {name: self._masked(value) for name, value in data.items()}
        with self._lock:
            made = Event(event, round(self._clock(), 6), data)
            if self._sink is not None:
                self._write(self._sink, made)
            for listener in self._listeners:
                listener(made)
        return made

    def _write(self, sink: IO[str], event: Event) -> None:
        try:
            sink.write(json.dumps(event.to_json(), ensure_ascii=False, separators=(",", ":")) + "\n")
            sink.flush()  # whoever follows the file sees what runs now
        except BrokenPipeError:
            self._sink = None  # whoever read them has seen enough
        except (OSError, ValueError) as error:
            self._sink = None
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            self.emit(WARNING, message=f"the events file is incomplete: {reason}")

    def _masked(self, value: object) -> object:
        if isinstance(value, str):
            for secret in self._secrets:
                if secret in value:
                    value = value.replace(secret, _MASK)
            return value
        if isinstance(value, Mapping):
            return {self._masked(k): self._masked(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(item) for item in value]
        return value
