"""Every call on a disk as a value, seen by a listener before it is done: what tests of crashes and bad disks stand on.

The listener decides whether a call is done, half done, or fails, so one listener records, another kills.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import local
from typing import Any

from marin_cas.disk import Disk

# Calls that a full disk refuses: the others need no space.
NEEDS_SPACE = frozenset({"write", "append", "copy", "clone", "mkdir", "makedirs", "link", "symlink", "rename"})


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a Disk's method: its name, the paths given (the one that changes last), and what else it was given.

    For a symbolic link the one path is the link's, and its text is in `given`.
    """

    name: str
    paths: tuple[str, ...]
    given: dict[str, Any]

    @property
    def path(self) -> str:
        return self.paths[-1]

    def half(self, disk: Disk) -> bool:
        """Does part of it, as a kill in its middle leaves it; False when there is nothing between all and nothing."""
        half = _HALVES.get(self.name)
        if half is None:
            return False
        with suppress(OSError):
            half(self, disk)
        return True


type Listener = Callable[[Call, Callable[[], Any]], Any]


class TracedDisk(Disk):
    """The real disk; each outermost call goes to `listener(call, go)`, which does it with `go()` and returns that."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        for name, method in traced(lambda: listener).items():
            setattr(self, name, partial(method, self))


def traced(listener: Callable[[], Listener | None]) -> dict[str, Callable[..., Any]]:
    """Methods to stand in for those of Disk: each asks for the listener of the moment, None for none."""
    inside = local()
    return {
        name: _method(real, inspect.signature(real), listener, inside)
        for name, real in vars(Disk).items()
        if callable(real) and not name.startswith("_")
    }


def _method(
    real: Callable[..., Any], signature: inspect.Signature, listener: Callable[[], Listener | None], inside: local
) -> Callable[..., Any]:
    def method(disk: Disk, *args: Any, **kwargs: Any) -> Any:
        listen = listener()
        # A copy tries a clone first: that is one call and not two.
        if listen is None or getattr(inside, "value", False):
            return real(disk, *args, **kwargs)
        inside.value = True
        try:
            given = dict(signature.bind(disk, *args, **kwargs).arguments)
            del given["self"]
            paths = tuple(os.fspath(given.pop(name)) for name in ("source", "path") if name in given)
            return listen(Call(real.__name__, paths, given), partial(real, disk, *args, **kwargs))
        finally:
            inside.value = False

    return method


def _half_write(call: Call, disk: Disk) -> None:
    data = call.given["data"]
    Disk.write(disk, call.path, data[: len(data) // 2], 0o600)


def _half_append(call: Call, disk: Disk) -> None:
    data = call.given["data"]
    Disk.append(disk, call.path, data[: len(data) // 2])


def _half_copy(call: Call, disk: Disk) -> None:
    with open(call.paths[0], "rb") as file:
        data = file.read()
    Disk.write(disk, call.path, data[: len(data) // 2], 0o600)


def _half_clone(call: Call, disk: Disk) -> None:
    Disk.write(disk, call.path, b"", 0o600)


def _half_seal(call: Call, disk: Disk) -> None:
    Disk.chmod(disk, call.path, call.given["mode"])


def _half_makedirs(call: Call, disk: Disk) -> None:
    path = call.path
    while not os.path.isdir(os.path.dirname(path)):
        path = os.path.dirname(path)
    Disk.mkdir(disk, path)


def _half_remove_tree(call: Call, disk: Disk) -> None:
    # Children before their folders, as the whole would go.
    found = [os.path.join(at, name) for at, folders, files in os.walk(call.path, topdown=False) for name in files]
    for path in found[: (len(found) + 1) // 2]:
        Disk.unlink(disk, path)


_HALVES: dict[str, Callable[[Call, Disk], None]] = {
    "write": _half_write,
    "append": _half_append,
    "copy": _half_copy,
    "clone": _half_clone,
    "seal": _half_seal,
    "makedirs": _half_makedirs,
    "remove_tree": _half_remove_tree,
}
# Calls that a kill can find half done.
DIVISIBLE = frozenset(_HALVES)
