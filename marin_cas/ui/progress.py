"""Which display a build gets: rich on a terminal, plain lines elsewhere, none when asked to be quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Protocol, Self

from marin_cas.scheduler import events
from marin_cas.scheduler.events import Event
from marin_cas.ui import out
from marin_cas.ui.plain import Plain
from marin_cas.ui.state import State


class Progress(Protocol):
    """A display: given every event in order while it is entered, from any thread but one at a time."""

    state: State

    def __call__(self, event: Event) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class Silent:
    """Shows warnings only."""

    def __init__(self) -> None:
        self.state = State()

    def __call__(self, event: Event) -> None:
        self.state.apply(event)
        if event.event == events.WARNING:
            out.note(f"warning: {event.get('message', '')}")

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def progress(mode: str, *, verbose: bool = False, environ: Mapping[str, str] = os.environ) -> Progress:
    """`mode` is `auto`, `plain` or `none`."""
    if mode == "none":
        return Silent()
    if mode == "auto" and rich_wanted(sys.stderr.isatty(), environ):
        from marin_cas.ui.live import Live

        return Live(verbose=verbose)
    return Plain(verbose=verbose)


def rich_wanted(terminal: bool, environ: Mapping[str, str]) -> bool:
    """NO_COLOR, a dumb terminal and CI ask for plain lines."""
    return terminal and not environ.get("NO_COLOR") and not environ.get("CI") and environ.get("TERM") != "dumb"
