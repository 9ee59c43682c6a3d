"""What a tool left in `out/`, held against what its action declared. Only declared outputs count."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from marin_cas.disk import DISK
from marin_cas.errors import BuildError
from marin_cas.recipe import TREE
from marin_cas.worker.scan import files_below


def prepare(out: str, outputs: Mapping[str, str]) -> None:
    """The empty folder `out/`, with a folder in it for each tree."""
    DISK.mkdir(out)
    for name, kind in outputs.items():
        if kind == TREE:
            DISK.mkdir(f"{out}/{name}")


def check(out: Path, outputs: Mapping[str, str], reporting: Collection[str], label: str) -> list[tuple[str, int]]:
    """Every file below `out/` as (path, size). Raises BuildError when the outputs are not those declared.

    A consumable output may not be empty: a tool that failed without saying so looks just like that. A reporting one
    may: there are trainings without a metric.
    """
    present = {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in os.scandir(out)}
    missing = [name for name in outputs if name not in present]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise BuildError(f"`{label}` ended well but did not write its output {names}")
    extra = sorted(present.keys() - outputs.keys())
    if extra:
        declared = ", ".join(f"`{name}`" for name in outputs)
        raise BuildError(f"`{label}` wrote `out/{extra[0]}`, which is not one of its outputs ({declared})")
    for name, kind in outputs.items():
        _check_kind(name, kind, present[name], label)
    files = sorted(files_below(out))
    for name, kind in outputs.items():
        if name in reporting:
            continue
        if kind == TREE:
            empty = not any(file.startswith(f"{name}/") for file, _ in files) and not _has_link(out / name)
        else:
            empty = (name, 0) in files
        if empty:
            raise BuildError(f"the output `{name}` of `{label}` is empty", hint="look at its log with `marin logs`")
    return files


def _check_kind(name: str, kind: str, mode: int, label: str) -> None:
    if kind == TREE and not stat.S_ISDIR(mode):
        raise BuildError(f"the output `{name}` of `{label}` should be a folder, and is {_what(mode)}")
    if kind != TREE and not stat.S_ISREG(mode):
        raise BuildError(f"the output `{name}` of `{label}` should be a file, and is {_what(mode)}")


def _what(mode: int) -> str:
    return "a file" if stat.S_ISREG(mode) else "a folder" if stat.S_ISDIR(mode) else "neither a file nor a folder"


def _has_link(folder: Path) -> bool:
    return any(
        os.path.islink(os.path.join(place, name))
        for place, folders, files in os.walk(folder)
        for name in folders + files
    )
