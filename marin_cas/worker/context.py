"""What a tool gets: parameters, inputs, outputs, scratch, progress. Importing it costs nothing heavy.

The working directory is the action's folder and every path is relative to it, so that no absolute path can get into
an output by way of the context.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# More often than this nobody can read it, and each line costs a wake-up of the supervisor.
_PROGRESS_EVERY_S = 0.1
# One write of at most PIPE_BUF bytes is atomic, so the threads of a tool may report at once.
_LINE_MAX = 4096


class ToolError(Exception):
    """A tool's clean failure: shown as it is, without the exception's name. `where` is `file:line`. `environment`: not
    the declaration is wrong but something around the tool, such as the network."""

    def __init__(
        self, message: str, *, where: object = None, hint: str | None = None, environment: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = None if where is None else str(where)
        self.hint = hint
        self.environment = environment


class Report:
    """Writes JSON lines to the supervisor. Never fails the tool: a closed pipe ends the reporting."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._last = 0.0

    def send(self, line: Mapping[str, Any]) -> None:
        if self._fd is None:
            return
        data = json.dumps(line, ensure_ascii=True, default=_plain).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self._fd = None

    def progress(self, done: float, total: float | None, unit: str, fields: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now - self._last < _PROGRESS_EVERY_S and (total is None or done < total):
            return
        self._last = now
        line: dict[str, Any] = {"done": done, "total": total, "unit": unit}
        if fields:
            line["fields"] = dict(fields)
        if len(json.dumps(line, default=_plain)) < _LINE_MAX - 32:
            self.send({"progress": line})


def _plain(value: object) -> object:
    """A number of an array library as one of Python's, anything else in words."""
    try:
        return value.item()  # type: ignore[attr-defined]
    except Exception:
        return str(value)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """`settings` are values that bear execution or reporting only: they may not change a consumable output.

    A tree output's folder exists already and is empty; a file output is a path to write. `scratch` is kept when an
    attempt is killed; `earlier` are the scratch folders of earlier attempts of this key, newest first, read-only.
    `run_id` begins the key: it is for who is told of the run, and may get into no output.
    """

    params: Mapping[str, Any]
    settings: Mapping[str, Any]
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]
    scratch: Path
    earlier: tuple[Path, ...] = ()
    code: Path | None = None
    report: Report = field(default_factory=lambda: Report(None))
    run_id: str = "unnamed"

    def progress(self, done: float, total: float | None = None, unit: str = "", **fields: Any) -> None:
        """Says how far the tool is; cheap enough for an inner loop."""
        self.report.progress(done, total, unit, fields)
