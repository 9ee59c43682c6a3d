"""Definitions of lm-eval's tasks and groups by name: those of the workspace, and those that come with it.

Building lm-eval's own index of bundled tasks takes 15 to 60 seconds; here a task is found by its file.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_cas.errors import did_you_mean
from marin_cas.worker.context import ToolError

TASK, GROUP, TAG = "task", "group", "tag"
_INCLUDE = re.compile(rb"""^["']?include["']?:[ \t]*["']?([^\s"'#]+)""", re.MULTILINE)
_NAMED = re.compile(rb"""^["']?(task|group)["']?:[ \t]*["']?([^\s"'#\[\]]+)""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Definition:
    """A file that defines a task or a group; of a tag, `members` are the tasks that have it."""

    kind: str
    path: Path | None
    members: tuple[str, ...] = ()

    def config(self) -> dict[str, Any]:
        """What the file says, with all that it includes."""
        return load_yaml(self.path) if self.path else {}


def load_yaml(path: Path) -> dict[str, Any]:
    from lm_eval.tasks._yaml_loader import load_yaml as load

    return load(path, resolve_func=False)


def local_definitions(folder: Path) -> dict[str, Definition]:
    """Those in the YAML files of `task_files`. ToolError for a file that is none."""
    import yaml

    found: dict[str, Definition] = {}
    for path in sorted(folder.rglob("*.y*ml"), key=os.fsencode):
        shown = path.relative_to(folder).as_posix()
        try:
            config = load_yaml(path)
        except (yaml.YAMLError, ValueError, OSError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{shown}:{mark.line + 1}" if mark else shown
            raise ToolError(f"not a task definition: {getattr(error, 'problem', None) or error}", where=where) from None
        for kind in (GROUP, TASK):
            name = config.get(kind)
            if isinstance(name, str):
                if name in found:
                    raise ToolError(f"task `{name}` is defined twice", where=shown)
                found[name] = Definition(kind, path)
                break
    if not found:
        raise ToolError("no file of `task_files` defines a task", hint="a task definition is a YAML file with a `task`")
    return found


def find(name: str, local: Mapping[str, Definition]) -> Definition:
    """The definition of `name`. ToolError when there is none."""
    if name in local:
        return local[name]
    # The file called so is most often the one, and saves looking into 14,000 others.
    for path in bundled_files():
        if path.stem == name and _named(path) == (TASK, name):
            return Definition(TASK, path)
    bundled = _bundled()
    if name in bundled:
        return bundled[name]
    if members := _members(name):
        return Definition(TAG, None, tuple(members))
    raise ToolError(
        f"there is no task `{name}`",
        hint=did_you_mean(name, [*local, *bundled]) or "name a task of lm-eval, or one defined in `task_files`",
    )


@functools.cache
def bundled_files() -> tuple[Path, ...]:
    """The definitions of all tasks that come with lm-eval, sorted."""
    import lm_eval.tasks

    return tuple(sorted(Path(lm_eval.tasks.__file__).parent.rglob("*.yaml"), key=lambda path: path.as_posix()))


@functools.cache
def _bundled() -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    for path in reversed(bundled_files()):
        if named := _named(path):
            found[named[1]] = Definition(named[0], path)
    return found


def _members(tag: str) -> list[str]:
    """The tasks that have a tag, in their own file or in one that it includes. Parses only files that may."""
    mentions = {path for path, text in _texts().items() if tag.encode() in text}
    while True:
        through = {
            path for path, text in _texts().items() if path not in mentions and _included(path, text) in mentions
        }
        if not through:
            break
        mentions |= through
    found = []
    for name, definition in _bundled().items():
        if definition.kind == TASK and definition.path in mentions:
            tags = definition.config().get("tag") or []
            if tag in ([tags] if isinstance(tags, str) else tags):
                found.append(name)
    return sorted(found)


@functools.cache
def _texts() -> dict[Path, bytes]:
    """All definitions, and what they include (files that end in `yaml` without a dot)."""
    import lm_eval.tasks

    return {path: path.read_bytes() for path in Path(lm_eval.tasks.__file__).parent.rglob("*yaml") if path.is_file()}


def _included(path: Path, text: bytes) -> Path | None:
    found = _INCLUDE.search(text)
    return Path(os.path.normpath(path.parent / found[1].decode())) if found else None


def _named(path: Path) -> tuple[str, str] | None:
    """What a YAML file defines, without parsing it: `task` or `group`, and its name."""
    names = {kind.decode(): name.decode() for kind, name in _NAMED.findall(path.read_bytes())}
    kind = GROUP if GROUP in names else TASK
    return (kind, names[kind]) if names else None
