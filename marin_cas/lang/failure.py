"""The engine's error texts, taken apart: the engine gives no structure, so places are parsed out of what it prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from marin_cas.errors import Location, MarinError

PRELUDE_FILE = "@prelude"
CALLED = "call__"  # how the functions begin by which Python calls a rule: not users' code
_FRAME = re.compile(r"^  \* (.+):(\d+), in (.+)$", re.MULTILINE)
_PLACE = re.compile(r"^ *--> (.+):(\d+):(\d+)$", re.MULTILINE)
_QUOTE = re.compile(r"^ *\|\n *\d+ \| (.*)\n *\| ( *)(\^+)$", re.MULTILINE)
_SHOWN_FRAMES = 8


@dataclass(frozen=True, slots=True)
class Frame:
    """One call: the line that calls, and the function it is in (`<module>` at top level)."""

    file: str
    line: int
    function: str

    @property
    def location(self) -> Location:
        return Location(self.file, self.line)


@dataclass(frozen=True, slots=True)
class Failure:
    """`frames` are the users' calls, outermost first; `at` the place itself; `expression` the marked source text."""

    message: str
    frames: tuple[Frame, ...]
    at: Location | None
    expression: str


def parse_stack(text: str) -> tuple[Frame, ...]:
    """The frames of a printed call stack that are in users' files, outermost first."""
    return tuple(
        Frame(file, int(line), function)
        for file, line, function in _FRAME.findall(text)
        if file != PRELUDE_FILE and not function.startswith(CALLED)
    )


def parse_failure(text: str) -> Failure:
    """The parts of an error as the engine prints it: calls, `error: ` and the message, ` --> ` and the place."""
    if text.startswith("error: "):
        stack, rest = "", text.removeprefix("error: ")
    else:
        stack, _, rest = text.partition("\nerror: ")
    # A message may itself have lines that look like a place (fail() prints anything), so the last one counts.
    places = list(_PLACE.finditer(rest))
    message, at, expression = rest, None, ""
    if places:
        place = places[-1]
        message = rest[: place.start()]
        if place[1] != PRELUDE_FILE:
            at = Location(place[1], int(place[2]))
            if quote := _QUOTE.search(rest, place.end()):
                start = len(quote[2])
                expression = quote[1][start : start + len(quote[3])]
    frames = parse_stack(stack)
    if at is None and frames:
        at = frames[-1].location
    return Failure(message.rstrip("\n"), frames, at, expression)


def macro_chain(frames: Sequence[Frame]) -> tuple[str, ...]:
    """One line for each macro between the BUILD file and the call, innermost last."""
    return _shortened(
        f"{outer.location} in macro `{inner.function}` ({inner.location})" for outer, inner in pairwise(frames)
    )


def callers(failure: Failure) -> tuple[str, ...]:
    """One line for each call that led to the place, innermost first."""
    places = [frame.location for frame in reversed(failure.frames) if frame.location != failure.at]
    return _shortened(f"called from {place}" for place in places)


def _shortened(lines: Iterable[str]) -> tuple[str, ...]:
    shown = tuple(lines)
    if len(shown) <= _SHOWN_FRAMES:
        return shown
    half = _SHOWN_FRAMES // 2
    return (*shown[:half], f"... {len(shown) - 2 * half} more ...", *shown[-half:])


def placed(error: MarinError, where: Location | None, notes: Iterable[str] = ()) -> MarinError:
    """`error` with a place and notes, unless it already has a place."""
    if error.where is not None:
        return error
    return type(error)(error.message, where=where, notes=(*error.notes, *notes), hint=error.hint)
