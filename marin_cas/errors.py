"""The tree of errors that a user may see; each is tagged at birth with the exit code it leads to.

A message names the thing in backticks, the place as `file:line`, why it is wrong, and one next step.
Absence is a value (None), never one of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EXIT_OK = 0
EXIT_BUILD_FAILED = 1
EXIT_REQUEST = 2
EXIT_ENVIRONMENT = 3
EXIT_INTEGRITY = 4
EXIT_INTERRUPTED = 8
EXIT_BUG = 70


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a workspace file: path relative to the workspace, 1-based line."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class MarinError(Exception):
    """Base of all errors shown to users without a traceback.

    `where` is the place, `notes` further lines (a macro chain, a cycle's edges, a log's tail), `hint` one next step.
    """

    exit_code = EXIT_BUG

    def __init__(
        self,
        message: str,
        *,
        where: Location | str | None = None,
        notes: Iterable[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.notes = tuple(notes)
        self.hint = hint

    def render(self) -> str:
        """The message as plain lines: `error: [place: ]message`, notes indented, then the hint."""
        place = f"{self.where}: " if self.where else ""
        # A message may be somebody else's, of several lines: none of them may look like an error of ours.
        lines = [f"error: {place}{self.message}".replace("\n", "\n  ")]
        lines += [f"  {note}" for note in self.notes]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render().removeprefix("error: ")


class BuildError(MarinError):
    """An action failed, or a build needs a person's decision."""

    exit_code = EXIT_BUILD_FAILED


class RequestError(MarinError):
    """The command line, the configuration, a BUILD file or a rule file is wrong."""

    exit_code = EXIT_REQUEST


class EnvironmentProblem(MarinError):
    """The machine or the infrastructure is in the way: a full disk, a version that differs from the lock."""

    exit_code = EXIT_ENVIRONMENT


class IntegrityError(MarinError):
    """Bytes are not what their digest says."""

    exit_code = EXIT_INTEGRITY


class Interrupted(MarinError):
    """The user asked to stop."""

    exit_code = EXIT_INTERRUPTED


def did_you_mean(word: str, choices: Iterable[str]) -> str | None:
    """A hint ``did you mean `x`?`` for the closest of `choices`, or None when nothing is close."""
    import difflib  # late: needed after a mistake only, and this module on every path

    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else None
