"""What a cache must keep for somebody: the results that workspaces' targets stand for, and what people have pinned.

Roots are files below `roots/`, one for each label of each workspace and one a pin, so that several workspaces share a
cache without knowing of each other. A workspace that is not there now keeps its roots: its disk may be unmounted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from marin_cas.cache.small import file_name, read_small, replace_small, small_names
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problems
from marin_cas.errors import EnvironmentProblem
from marin_cas.store.temporary import Temporary


@dataclass(frozen=True, slots=True)
class Root:
    """The results that a label of a workspace stood for when it was last built; `since` (Unix seconds) it has."""

    workspace: str
    label: str
    keys: tuple[Digest, ...]
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Pin:
    """What a person keeps: the outputs of `keys`, the files or trees `digests`; with `deps` all that `keys` were made
    from too. `what` is as it was asked for, `time` in Unix seconds."""

    what: str
    keys: tuple[Digest, ...] = ()
    digests: tuple[Digest, ...] = ()
    deps: bool = False
    because: str = ""
    who: str = ""
    time: float = 0.0


class Roots:
    """The files below `roots/`. Raises EnvironmentProblem when the disk is in the way, or for a damaged file: what it
    stood for is not known, so nothing may be deleted."""

    def __init__(self, root: StrPath, temporary: Temporary, disk: Disk = DISK) -> None:
        self._labels = f"{os.fspath(root)}/workspaces"
        self._pins = f"{os.fspath(root)}/pins"
        self._temporary = temporary
        self._disk = disk

    # Workspaces

    def register(self, workspace: str, label: str, keys: Iterable[Digest]) -> None:
        """The label stands for these results now. Nothing is written when it did before."""
        fields = {"workspace": workspace, "label": label, "keys": sorted(str(key) for key in keys)}
        self._write(self._path(workspace, label), fields)

    def registered(self, workspace: str, label: str) -> bool:
        return os.path.exists(self._path(workspace, label))

    def all(self) -> Iterator[Root]:
        """Every label of every workspace, in order of these."""
        found = [
            Root(fields["workspace"], fields["label"], _digests(fields["keys"]), since)
            for path, fields, since in self._read(
                f"{self._labels}/{folder}/{name}"
                for folder in small_names(self._labels)
                for name in small_names(f"{self._labels}/{folder}")
            )
        ]
        yield from sorted(found, key=lambda root: (root.workspace, root.label))

    def forget(self, root: Root) -> None:
        """The label keeps nothing any more; nothing happens when it did not."""
        path = self._path(root.workspace, root.label)
        with disk_problems(path):
            with suppress(FileNotFoundError):
                self._disk.unlink(path)
            with suppress(OSError):
                os.rmdir(os.path.dirname(path))

    # Pins

    def pin(self, pin: Pin) -> None:
        """Replaces an earlier pin of the same name."""
        fields = {
            "what": pin.what,
            "keys": [str(key) for key in pin.keys],
            "digests": [str(digest) for digest in pin.digests],
            "deps": pin.deps,
            "because": pin.because,
            "who": pin.who,
            "time": pin.time,
        }
        self._write(f"{self._pins}/{file_name(pin.what)}", fields)

    def unpin(self, what: str) -> None:
        """Nothing happens when there is no such pin."""
        path = f"{self._pins}/{file_name(what)}"
        with disk_problems(path), suppress(FileNotFoundError):
            self._disk.unlink(path)

    def pins(self) -> Iterator[Pin]:
        """Every pin, in the order of their names."""
        found = [
            Pin(
                fields["what"],
                _digests(fields["keys"]),
                _digests(fields["digests"]),
                fields["deps"] is True,
                str(fields["because"]),
                str(fields["who"]),
                float(fields["time"]),
            )
            for _, fields, _ in self._read(f"{self._pins}/{name}" for name in small_names(self._pins))
        ]
        yield from sorted(found, key=lambda pin: pin.what)

    # Files

    def signature(self) -> tuple[tuple[str, int, int], ...]:
        """Changes when any root or pin does: name, inode and modification time of each file."""
        found: list[tuple[str, int, int]] = []
        folders = [self._pins, *(f"{self._labels}/{name}" for name in small_names(self._labels))]
        for folder in folders:
            for name in small_names(folder):
                with suppress(FileNotFoundError):
                    at = os.stat(f"{folder}/{name}")
                    found.append((f"{folder}/{name}", at.st_ino, at.st_mtime_ns))
        return tuple(found)

    def _path(self, workspace: str, label: str) -> str:
        return f"{self._labels}/{file_name(workspace)}/{file_name(label)}"

    def _write(self, path: str, fields: dict[str, Any]) -> None:
        replace_small(self._disk, self._temporary, path, f"{json.dumps(fields)}\n".encode())

    def _read(self, paths: Iterable[str]) -> Iterator[tuple[str, dict[str, Any], float]]:
        for path in paths:
            data = read_small(path)
            if data is None:
                continue  # forgotten just now
            try:
                fields = json.loads(data)
                _check(fields)
                yield path, fields, os.stat(path).st_mtime
            except FileNotFoundError:
                continue
            except (ValueError, TypeError, KeyError):
                raise EnvironmentProblem(
                    f"`{path}` is damaged: it does not say what must be kept",
                    hint="build the target again, or delete the file: then nothing is kept for it",
                ) from None


def _check(fields: dict[str, Any]) -> None:
    """Raises ValueError, TypeError or KeyError unless the fields are those of a root or a pin."""
    _digests(fields["keys"])
    if "what" in fields:
        _digests(fields["digests"])
        float(fields["time"])
        names = (fields["what"], fields["because"], fields["who"])
    else:
        names = (fields["workspace"], fields["label"])
    if not all(isinstance(name, str) for name in names):
        raise TypeError("not a name")


def _digests(texts: Sequence[str]) -> tuple[Digest, ...]:
    return tuple(Digest.parse(text) for text in texts)
