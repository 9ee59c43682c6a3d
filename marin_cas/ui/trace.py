"""A build's timeline in Chrome's trace format, for `--trace FILE` (open it in Perfetto or chrome://tracing)."""

from __future__ import annotations

import json
from typing import Any

from marin_cas.scheduler import events
from marin_cas.scheduler.events import Event


class Trace:
    """A listener that lays what ran onto as few lanes as it needs; `text` is the file when the build is over."""

    def __init__(self) -> None:
        self._spans: list[dict[str, Any]] = []
        self._open: dict[str, tuple[int, float]] = {}
        self._lanes: list[bool] = []
        self._began: float | None = None

    def __call__(self, event: Event) -> None:
        name = str(event.get("action") or event.get("label") or "")
        if event.event == events.BUILD_STARTED:
            self._began = event.time
        elif event.event == events.ACTION_STARTED:
            lane = self._lanes.index(False) if False in self._lanes else len(self._lanes)
            if lane == len(self._lanes):
                self._lanes.append(True)
            self._lanes[lane] = True
            self._open[name] = (lane, event.time)
        elif event.event == events.ACTION_FINISHED and name in self._open:
            lane, began = self._open.pop(name)
            self._lanes[lane] = False
            arguments = {key: event.get(key) for key in ("key", "status", "source")}
            self._span(name, str(event.get("rule", "")), lane + 1, began, event.time, arguments)
        elif event.event == events.BUILD_FINISHED and self._began is not None:
            self._span("build", "build", 0, self._began, event.time, {"counts": event.get("counts")})

    def _span(self, name: str, kind: str, lane: int, began: float, ended: float, arguments: dict[str, Any]) -> None:
        start = round((began - (self._began or began)) * 1e6)
        self._spans.append(
            {"name": name, "cat": kind, "ph": "X", "ts": start, "dur": round((ended - began) * 1e6), "pid": 1,
             "tid": lane, "args": arguments}
        )  # fmt: skip

    def text(self) -> str:
        return json.dumps({"traceEvents": self._spans, "displayTimeUnit": "ms"}) + "\n"
