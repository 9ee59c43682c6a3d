"""`.marinignore`: the folders and files of a workspace that no glob, pattern or package search sees.

One pattern a line at the workspace's root, in the language of `glob()` (`*` within a name, `**` for any folders);
blank lines and lines that start with `#` are skipped. A pattern with a `/` inside is relative to the root; one
without matches a name in any folder; a `/` at the end restricts it to folders. What is in an ignored folder is
ignored too. There is no `!`: what is ignored cannot be brought back.
"""

from __future__ import annotations

import re
from pathlib import Path

from marin_cas.errors import Location, RequestError

FILE = ".marinignore"


class Ignore:
    """The patterns of one file, asked with paths relative to the workspace."""

    def __init__(self, patterns: list[tuple[re.Pattern[str], bool]]) -> None:
        self._patterns = patterns

    def matches(self, path: str, *, folder: bool) -> bool:
        """True when `path` itself is named; whoever walks does not enter an ignored folder."""
        return any(pattern.fullmatch(path) for pattern, only_folders in self._patterns if folder or not only_folders)

    def covers(self, path: str) -> bool:
        """True when the folder `path`, or one that it is in, is ignored."""
        if not self._patterns:
            return False
        parts = path.split("/")
        return any(self.matches("/".join(parts[: n + 1]), folder=True) for n in range(len(parts)))


def segment_pattern(segment: str) -> str:
    """The regular expression of one path component of a pattern, where `*` stands for any characters."""
    return "[^/]*".join(re.escape(part) for part in segment.split("*"))


def path_pattern(pattern: str) -> re.Pattern[str]:
    """The regular expression of a whole pattern; `**` as a component stands for any number of folders."""
    segments = pattern.split("/")
    text = ""
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        if segment == "**":
            text += "(?:[^/]+/)*[^/]+" if last else "(?:[^/]+/)*"
        else:
            text += segment_pattern(segment) + ("" if last else "/")
    return re.compile(text, re.DOTALL)


def read_ignore(root: Path) -> Ignore:
    """The workspace's patterns, none when there is no file."""
    try:
        text = (root / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return Ignore([])
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read `{FILE}`: {error}", where=Location(FILE)) from None
    patterns = []
    for number, line in enumerate(text.splitlines(), 1):
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        if pattern.startswith("!"):
            raise RequestError(
                f"`{pattern}` is not a pattern: what is ignored cannot be brought back",
                where=Location(FILE, number),
                hint="ignore the folder's other entries instead",
            )
        body = pattern.strip("/")
        if "/" not in pattern.rstrip("/"):
            body = f"**/{body}"
        patterns.append((path_pattern(body), pattern.endswith("/")))
    return Ignore(patterns)
