"""Labels: the names of targets and files in a workspace, as Bazel writes them.

`//exp:tiny`, `:tiny` (in the package at hand), `//exp` (= `//exp:exp`), `@marin//rules:data.bzl`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Bazel's, and what is printable beyond ASCII: files of a corpus are called as their authors speak.
_NAME = re.compile(r"[A-Za-z0-9!%\-@^_\"#$&'()*+,;<=>?\[\]{|}~/. \u0080-\U0010ffff]+")
_REPO = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True, slots=True, order=True)
class Label:
    """`repo` is empty for the workspace at hand, or `marin` for the rule files that come with marin-cas."""

    package: str
    name: str
    repo: str = ""

    def __str__(self) -> str:
        repo = f"@{self.repo}" if self.repo else ""
        return f"{repo}//{self.package}:{self.name}"

    @property
    def path(self) -> str:
        """The path below the workspace (or the repo) of the file that the label would name."""
        return f"{self.package}/{self.name}" if self.package else self.name

    def sibling(self, name: str) -> Label:
        return Label(self.package, name, self.repo)


def _part_error(kind: str, part: str) -> str | None:
    if part.startswith("/") or part.endswith("/") or "//" in part:
        return f"its {kind} `{part}` has an empty path component"
    if any(piece in (".", "..") for piece in part.split("/")):
        return f"its {kind} `{part}` has a `.` or `..` component"
    if not _NAME.fullmatch(part) or not part.isprintable():
        return f"its {kind} `{part}` has a character that labels may not have"
    return None


def parse_label(text: str, package: str = "", repo: str = "") -> Label:
    """The label that `text` means in `package` of `repo`. Raises ValueError saying why it is not one."""
    rest = text
    if rest.startswith("@"):
        repo, slashes, rest = rest[1:].partition("//")
        if not slashes or not _REPO.fullmatch(repo):
            raise ValueError(f"`{text}` is not a label: after `@` comes a repository name and `//`")
        rest = "//" + rest
    if rest.startswith("//"):
        package, colon, name = rest[2:].partition(":")
        if not colon:
            name = package.rpartition("/")[2]
    else:
        name = rest.removeprefix(":")
        if ":" in name:
            raise ValueError(f"`{text}` is not a label: a package starts with `//`")
    if not name:
        raise ValueError(f"`{text}` is not a label: it has no target name")
    problem = _part_error("target", name) or (_part_error("package", package) if package else None)
    if problem:
        raise ValueError(f"`{text}` is not a label: {problem}")
    return Label(package, name, repo)
