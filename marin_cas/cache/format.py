"""The number of a cache's format, in its file `format`: looked at before anything else is read or written there.

A cache that is older is brought up to date a step at a time. Each step may be cut short and run again, and the number
moves only when a step is safely on disk, so a kill or a power cut between two of them costs nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from marin_cas.cache.small import read_small, replace_small
from marin_cas.disk import Disk, StrPath, disk_problem, disk_problems
from marin_cas.errors import EnvironmentProblem, RequestError
from marin_cas.store.temporary import Temporary

type Step = Callable[[str, Disk], None]


def _number_it(root: str, disk: Disk) -> None:
    """What was made before caches had a number is laid out as format 1 is."""


# UPGRADES[n] makes format n + 1 of format n, also where an earlier run of it was cut short.
UPGRADES: tuple[Step, ...] = (_number_it,)
FORMAT = len(UPGRADES)

_LINE = re.compile(rb"marin-cas cache (\d{1,9})\n")
_ELSEWHERE = "name another folder with `cache = ...` in `marin.toml`"
# Without a number: what only a cache has, and what may lie in one before it holds anything.
_MARKS = ("cas", "ac")
_RECORDS = ("epoch", "fp", "labels", "refs", "roots", "size", "synced", "taints")
_LAID_OUT = ("jax", "logs", "out", "scratch", "tmp", "trees", "work")
_OURS = frozenset((*_RECORDS, *_LAID_OUT, "gc.lock", "gc.lock.turn", "snapshot", "state.db", "verify"))
_HARMLESS = re.compile(r"\..*|README.*|CACHEDIR\.TAG|bug-.*|state\.db-.*|snapshot\..*|lost\+found", re.I | re.S)


def open_format(root: StrPath, disk: Disk, temporary: Temporary, upgrades: Sequence[Step] = UPGRADES) -> None:
    """Makes the folder a cache of the newest format, unless it is one. Safe in several processes at once.

    Raises RequestError for a folder that holds other things than a cache, EnvironmentProblem for a cache of a newer or
    unknown format; then nothing was written. EnvironmentProblem also when the disk is in the way.
    """
    root = os.fspath(root)
    if _number(root, upgrades) == len(upgrades):
        return
    with disk_problems(root):
        disk.makedirs(root)
    with _locked(root):
        # Again: another process may have been faster.
        number = _number(root, upgrades)
        if number is None:
            _write(root, disk, temporary, len(upgrades))
            return
        for step in range(number, len(upgrades)):
            with disk_problems(root):
                upgrades[step](root, disk)
                disk.sync(root)
            _write(root, disk, temporary, step + 1)


def _number(root: str, upgrades: Sequence[Step]) -> int | None:
    """The number of the cache there, 0 when it is from before there were numbers, None when there is no cache yet."""
    data = read_small(f"{root}/format")
    # A power cut may leave a file without its bytes or their end. A cache whose number was ever changed was flushed, so
    # this is one that had the first number.
    if data is None or _is_cut_short(data.rstrip(b"\0")):
        return _unnumbered(root)
    found = _LINE.fullmatch(data)
    if found is None:
        raise EnvironmentProblem(
            f"`{root}/format` is damaged: it does not say which format the cache has",
            hint=f"if marin-cas made this folder, delete that file, and it is written again; or {_ELSEWHERE}",
        )
    number = int(found[1])
    if number > len(upgrades):
        raise EnvironmentProblem(
            f"the cache `{root}` was made by a newer marin-cas (format {number}); this one knows {len(upgrades)}",
            hint=f"update marin-cas, or {_ELSEWHERE}",
        )
    return number


def _is_cut_short(data: bytes) -> bool:
    line = b"marin-cas cache "
    return line.startswith(data) or (data.startswith(line) and data.removeprefix(line).isdigit())


def _unnumbered(root: str) -> int | None:
    try:
        names = set(os.listdir(root))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_problem(error, root) from error
    names.discard("format")
    if any(os.path.isdir(f"{root}/{name}") for name in names.intersection(_MARKS)):
        return 0
    foreign = sorted(name for name in names - _OURS if not _HARMLESS.fullmatch(name))
    if foreign:
        raise RequestError(
            f"`{root}` is no cache, and it is not empty: it holds `{foreign[0]}`"
            + (f" and {len(foreign) - 1:,} more" if len(foreign) > 1 else ""),
            hint=_ELSEWHERE,
        )
    return None


def _write(root: str, disk: Disk, temporary: Temporary, number: int) -> None:
    replace_small(disk, temporary, f"{root}/format", f"marin-cas cache {number}\n".encode("ascii"))


@contextmanager
def _locked(root: str) -> Iterator[None]:
    """One process at a time; the lock is on the folder itself and goes with its holder."""
    with disk_problems(root):
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with disk_problems(root):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
