"""Progress as plain lines: one when an action starts, one when it ends, and a sign of life from long ones."""

from __future__ import annotations

from marin_cas.scheduler import events
from marin_cas.scheduler.events import Event
from marin_cas.ui import out, words
from marin_cas.ui.follow import Follower
from marin_cas.ui.state import State

# A sign of life from a training is worth a line, but not one a step.
_EVERY_S = 20.0


class Plain:
    """Shows events as they come. `verbose` adds why, what was served, and the tools' own output."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.state = State()
        self._verbose = verbose
        self._told: dict[str, float] = {}
        self._follower = Follower(lambda name, line: out.note(log_line(name, line))) if verbose else None

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._follower:
            self._follower.close()

    def __call__(self, event: Event) -> None:
        self.state.apply(event)
        if self._follower:
            self._follower(event)
        if line := describe(event, self.state, verbose=self._verbose):
            out.note(line)
        elif event.event == events.PROGRESS:
            self._progress(event)

    def _progress(self, event: Event) -> None:
        name = action_name(event)
        entry = self.state.running.get(name)
        if entry and event.time - self._told.get(name, entry.since) >= _EVERY_S and (far := entry.how_far()):
            self._told[name] = event.time
            out.note(f"        {name}  {far}")


def log_line(name: str, line: str) -> str:
    return f"        {name}| {line}"


def action_name(event: Event) -> str:
    return str(event.get("action") or event.get("label") or "")


def describe(event: Event, state: State, *, verbose: bool) -> str | None:
    """The line that an event is worth, None for none."""
    name = action_name(event)
    match event.event:
        case events.ACTION_STARTED:
            reason = event.get("reason")
            return f"start   {name}" + (f"  ({reason_text(reason)})" if verbose and reason else "")
        case events.ACTION_WAITING:
            return f"wait    {name}  another build makes it: {event.get('holder', '')}{_since(event)}"
        case events.ACTION_FINISHED:
            return _finished(event, name, verbose)
        case events.WARNING:
            return f"warning: {event.get('message', '')}"
    return None


def _since(event: Event) -> str:
    since = event.get("since")
    return f", since {words.clock(since)}" if isinstance(since, int | float) else ""


def _finished(event: Event, name: str, verbose: bool) -> str | None:
    took = event.get("seconds")
    seconds = f"  {words.seconds(took)}" if isinstance(took, int | float) else ""
    if event.get("status") == "succeeded":
        if event.get("source") == events.EXECUTED:
            kept = f"\n        its work folder: {event.get('work')}" if verbose and event.get("work") else ""
            return f"done    {name}{seconds}{kept}"
        return f"served  {name}  ({reason_text(event.get('reason'))})" if verbose else None
    if event.get("status") == "skipped":
        return f"skip    {name}  ({reason_text(event.get('reason'))})"
    if event.get("status") == "cancelled":
        return f"stopped {name}{seconds}"
    return f"{str(event.get('status', 'failed')).upper():<7} {name}{seconds}"


def reason_text(reason: object) -> str:
    """A reason as an event holds it, in words."""
    if isinstance(reason, dict):
        return str(reason.get("text", ""))
    return str(reason or "")
