"""`glob()`: the files of a package that match patterns, sorted by the bytes of their paths.

`*` stands for any characters within one name, `**` as a whole component for any number of folders. As in Bazel both
match names that start with a dot, files only; unlike there, a wildcard does not enter a *folder* that starts with a
dot (version control, virtual environments), which has to be spelled. A walk stops at folders that are packages.
"""

from __future__ import annotations

import os
import re

from marin_cas.errors import RequestError, did_you_mean
from marin_cas.lang.folders import Folders
from marin_cas.lang.ignore import path_pattern, segment_pattern

_WILD = re.compile(r"\*")


def glob(
    folders: Folders, package: str, include: list[str], exclude: list[str], *, allow_empty: bool = False
) -> list[str]:
    """Paths relative to the package. RequestError when a pattern of `include` matches nothing, unless allowed."""
    for pattern in (*include, *exclude):
        _check(pattern)
    excluded = [path_pattern(pattern) for pattern in exclude]
    found: set[str] = set()
    for pattern in include:
        matches = _matches(folders, package, pattern)
        if not matches and not allow_empty:
            raise _nothing(folders, package, pattern)
        found.update(matches)
    kept = [path for path in found if not any(pattern.fullmatch(path) for pattern in excluded)]
    if not kept and not allow_empty:
        raise RequestError(
            "the glob matches nothing: `exclude` takes away all that `include` matches",
            hint="say `allow_empty = True` if that is meant",
        )
    for path in kept:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise RequestError(f"the glob matches {os.fsencode(path)!r}, a name that is not UTF-8") from None
    return sorted(kept, key=str.encode)


def _check(pattern: object) -> None:
    problem = None
    if not isinstance(pattern, str) or not pattern:
        problem = "a pattern is a string that is not empty"
    elif pattern.startswith("/"):
        problem = "a pattern is relative to its package"
    elif any(part in ("", ".", "..") for part in pattern.split("/")):
        problem = "a pattern has no empty, `.` or `..` component"
    elif any("**" in part and part != "**" for part in pattern.split("/")):
        problem = "`**` stands alone between slashes"
    elif "?" in pattern:
        problem = "the only wildcards are `*` and `**`"
    if problem:
        raise RequestError(f"`{pattern}` is not a glob pattern: {problem}")


def _matches(folders: Folders, package: str, pattern: str) -> list[str]:
    """Walk with a stack of (folder relative to the package, how many components are used up)."""
    segments = pattern.split("/")
    compiled = [re.compile(segment_pattern(s), re.DOTALL) if _WILD.search(s) and s != "**" else None for s in segments]
    found: dict[str, None] = {}
    seen: set[tuple[str, int]] = set()
    todo = [("", 0)]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        folder, used = state
        if folder and folders.is_package(_join(package, folder)):
            continue
        listing = folders.listing(_join(package, folder))
        segment, regex, last = segments[used], compiled[used], used == len(segments) - 1
        if segment == "**":
            if last:
                found.update((_join(folder, name), None) for name in listing.files)
            else:
                todo.append((folder, used + 1))
            todo += [(_join(folder, name), used) for name in listing.folders if not name.startswith(".")]
        elif last:
            names = listing.files if regex else (segment,) if segment in listing.files else ()
            found.update((_join(folder, name), None) for name in names if regex is None or regex.fullmatch(name))
        elif regex is None:
            if segment in listing.folders or segment in listing.links:
                todo.append((_join(folder, segment), used + 1))
        else:
            dotted = segment.startswith(".")
            todo += [
                (_join(folder, name), used + 1)
                for name in listing.folders
                if regex.fullmatch(name) and (dotted or not name.startswith("."))
            ]
    return list(found)


def _nothing(folders: Folders, package: str, pattern: str) -> RequestError:
    """Says how far the pattern's literal beginning leads, and what is there."""
    message = f"the glob pattern `{pattern}` matches nothing"
    folder = ""
    parts = pattern.split("/")
    for part in parts[:-1]:
        if _WILD.search(part):
            break
        path = _join(folder, part)
        full = _join(package, path)
        listing = folders.listing(_join(package, folder))
        if folders.hidden(full) or (part not in listing.folders and part not in listing.links):
            if folders.hidden(full):
                return RequestError(message, hint=f"`{full}` is hidden from builds (`.marinignore`, or the cache)")
            close = did_you_mean(part, listing.folders)
            return RequestError(f"{message}: there is no folder `{full}`", hint=close)
        if folders.is_package(full):
            return RequestError(
                f"{message}: `{full}` is a package of its own",
                hint=f"a glob stops there; export the files in `{full}/BUILD.marin` and name them `//{full}:...`",
            )
        folder = path
    files = folders.listing(_join(package, folder)).files
    close = None if _WILD.search(parts[-1]) else did_you_mean(parts[-1], files)
    return RequestError(message, hint=close or "say `allow_empty = True` if that is meant")


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name
