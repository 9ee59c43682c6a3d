"""A failed action as people need it: which, where, why, the last lines of its log, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterator

from marin_cas.scheduler.report import ActionOutcome

_LAST = 12


def lines(outcome: ActionOutcome) -> Iterator[str]:
    """The message of a failure, ready for the screen."""
    error = outcome.error
    if error is None:
        return
    shown = error.render().split("\n")
    place = f"{outcome.action.location}: "
    if error.where is None:
        shown[0] = f"error: {place}{shown[0].removeprefix('error: ')}"
    elif str(error.where) != str(outcome.action.location):
        shown.insert(1 + error.message.count("\n"), f"  declared at {outcome.action.location}")
    yield from shown
    if outcome.log_tail.strip():
        tail = without_traceback(outcome.log_tail.rstrip("\n").split("\n"))[-_LAST:]
        if tail:
            yield "  the end of its log:"
            yield from (f"    {line}" for line in tail)
        yield f"  the whole log: `marin logs {outcome.action.label}`"
    if outcome.work is not None:
        yield f"  its work folder: `{outcome.work}`"


def without_traceback(tail: list[str]) -> list[str]:
    """The lines before the last traceback: the message has its last line and the place, the log has it all."""
    for index in range(len(tail) - 1, -1, -1):
        if tail[index].startswith("Traceback (most recent call last)"):
            return tail[:index]
    return tail
