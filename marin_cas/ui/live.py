"""Progress on a terminal: a line for each action that runs, redrawn in place below the lines of what ended."""

from __future__ import annotations

import sys
import time

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from marin_cas.scheduler import events
from marin_cas.scheduler.events import Event
from marin_cas.ui import out, words
from marin_cas.ui.follow import Follower
from marin_cas.ui.plain import describe, log_line
from marin_cas.ui.state import Running, State

_STYLES = {"done": "green", "FAILED": "bold red", "skip": "yellow", "warning:": "yellow", "served": "cyan"}
_SHOWN = 12


class Live:
    """Shows events as they come, on stderr. Use as a context manager: leaving it takes the redrawn part away."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.state = State(started=time.time())
        self._verbose = verbose
        self._console = Console(file=sys.stderr, highlight=False)
        self._spinner = Spinner("dots")
        self._live = RichLive(console=self._console, get_renderable=self._render, refresh_per_second=5, transient=True)

        self._follower = Follower(lambda name, line: self._print(log_line(name, line), "dim")) if verbose else None

    def __enter__(self) -> Live:
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._follower:
            self._follower.close()
        self._live.__exit__(None, None, None)

    def __call__(self, event: Event) -> None:
        self.state.apply(event)
        if self._follower:
            self._follower(event)
        # What runs is shown by the part that is redrawn: a line for each start would only scroll it away.
        if event.event == events.ACTION_STARTED and not self._verbose:
            return
        if line := describe(event, self.state, verbose=self._verbose):
            self._print(line, _STYLES.get(line.split(" ", 1)[0], ""))

    def _print(self, line: str, style: str) -> None:
        self._console.print(Text(out.visible(line), style=style), soft_wrap=True)

    def _render(self) -> RenderableType:
        now = time.time()
        running = list(self.state.running.values())
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=1)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(width=20)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for entry in running[:_SHOWN]:
            grid.add_row(
                self._spinner,
                Text(entry.name, style="bold"),
                Text(words.seconds(max(0.0, now - entry.since)), style="dim"),
                _bar(entry),
                # A plain text would be read as markup, and a tool's may hold anything.
                Text(out.visible(far)) if (far := entry.how_far()) else Text(entry.rule, style="dim"),
            )
        hidden = len(running) - _SHOWN
        more = [Text(f"  and {hidden} more", style="dim")] if hidden > 0 else []
        return Group(grid, *more, Text(self.state.line(now), style="dim"))


def _bar(entry: Running) -> RenderableType:
    if entry.total <= 0:
        return ""
    return ProgressBar(total=entry.total, completed=min(entry.done, entry.total), width=20)
