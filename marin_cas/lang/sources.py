"""BUILD and rule files as text: where a label's file lies, how it is shown, and what it loads at which line."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marin_cas.errors import Location, RequestError, did_you_mean
from marin_cas.label import Label, parse_label
from marin_cas.lang.engine import Parsed

MARIN = "marin"
_RULES = "rules"


@dataclass(frozen=True, slots=True)
class Load:
    """One load statement: its text, the file it names, local name to exported name, and its place."""

    text: str
    label: Label
    names: Mapping[str, str]
    location: Location


@dataclass(frozen=True, slots=True)
class Source:
    """A file that is parsed but has not run. `file` is how places in it are shown.

    `assigned` are the names that a rule file's top-level statements assign, with first and last line of each.
    """

    file: str
    text: str
    parsed: Parsed
    loads: tuple[Load, ...]
    assigned: tuple[tuple[str, int, int], ...] = ()


def read_text(path: Path, file: str) -> str:
    """The file's text. RequestError when it is not UTF-8; OSError when it cannot be read."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError("the file is not UTF-8 text", where=Location(file, line)) from None


def assignments(text: str) -> tuple[tuple[str, int, int], ...] | None:
    """See `Source.assigned`; None when Python cannot parse the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    found = []
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                continue
        found += [(name, statement.lineno, statement.end_lineno or statement.lineno) for name in names]
    return tuple(found)


def load_line(text: str, module: str) -> int:
    """The line of the load statement that names `module`: the engine does not tell."""
    found = re.search(rf"^[ \t]*load\(\s*[rR]?([\"'])({re.escape(module)})\1", text, re.MULTILINE)
    return text.count("\n", 0, found.start(2)) + 1 if found else 1


def load_label(text: str, package: str, repo: str, where: Location) -> Label:
    """The .bzl file that a load statement in `package` of `repo` means."""
    try:
        label = parse_label(text, package, repo)
    except ValueError as error:
        raise RequestError(str(error), where=where) from None
    if not label.name.endswith(".bzl"):
        hint = f"did you mean `{text}.bzl`?" if ":" in text else f"did you mean `{text}:NAME.bzl`?"
        raise RequestError(f"`{text}` cannot be loaded: only .bzl files can", where=where, hint=hint)
    if label.repo not in ("", MARIN):
        raise RequestError(f"there is no repository `@{label.repo}`", where=where, hint=f"the only one is `@{MARIN}`")
    return label


@dataclass(frozen=True, slots=True)
class Places:
    """Where labels lie: the workspace, and the rule files that come with marin-cas."""

    root: Path
    marin_rules: Path

    def path(self, label: Label) -> Path | None:
        """None for a package of `@marin` that is not below its rules."""
        if label.repo != MARIN:
            return self.root / label.path
        head, _, rest = label.path.partition("/")
        return self.marin_rules / rest if head == _RULES else None

    def shown(self, label: Label) -> str:
        return f"@{label.repo}//{label.path}" if label.repo else label.path

    def missing(self, label: Label, where: Location) -> RequestError:
        """Says that a file to load is not there, and what is."""
        path = self.path(label)
        hint = None
        if path is not None:
            beside = _rule_files(path.parent)
            if close := did_you_mean(path.name, beside):
                hint = close.replace(f"`{close.split('`')[1]}`", f"`{label.sibling(close.split('`')[1])}`")
            elif not label.repo and (other := self.path(Label(label.package, label.name, MARIN))) and other.is_file():
                hint = f"did you mean `@{MARIN}{label}`?"
            elif beside:
                hint = f"that folder has {', '.join(f'`{name}`' for name in beside[:8])}"
        return RequestError(f"`{label}` cannot be loaded: there is no such file", where=where, hint=hint)

    def defining(self, name: str) -> Label | None:
        """A rule file that defines `name`, in the workspace's `rules/` or of marin-cas, by a look at its text."""
        pattern = re.compile(rf"^(?:def {re.escape(name)}\(|{re.escape(name)} *= *rule\()", re.MULTILINE)
        for top, repo in ((self.root / _RULES, ""), (self.marin_rules, MARIN)):
            for folder, _, files in sorted(os.walk(top)):
                for file in sorted(files):
                    path = Path(folder, file)
                    if file.endswith(".bzl") and pattern.search(path.read_text("utf-8", errors="replace")):
                        below = path.parent.relative_to(top).as_posix()
                        return Label(_RULES if below == "." else f"{_RULES}/{below}", file, repo)
        return None


def _rule_files(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".bzl"))
    except OSError:
        return []
