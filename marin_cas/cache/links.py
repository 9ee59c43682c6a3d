"""The folder `out/`: for people, links from labels to outputs, each materialised once under `trees/`.

A tree lies at `trees/<hex>/`. A file lies at `trees/<hex>.file/<output's name>`, so that `scores.json` keeps its
ending; it is a copy up to some size, since people open single files in editors, and some editors write through.
What was changed there since, as far as stats tell, is laid out again when its target is next published.
A target with one output is a link `out/<package>/<name>`; one with several is a folder of links, marked by a file
`.outputs` that holds its label. Where the package `a/b` and the target `//a:b` both want `out/a/b`, the package has
it and the target's place is `out/a/b.out`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problem
from marin_cas.errors import MarinError
from marin_cas.label import Label
from marin_cas.recipe import FILE, TREE
from marin_cas.result import Output
from marin_cas.store.base import MissingBlob
from marin_cas.store.local import SEALED_NS, LocalStore
from marin_cas.store.temporary import Temporary
from marin_cas.tree.materialise import materialise
from marin_cas.tree.whole import is_whole

_MARK = ".outputs"
_COPY_UP_TO = 16 << 20


class Links:
    """Publishes outputs where people find them. Nothing else reads these folders."""

    def __init__(
        self, out: StrPath, trees: StrPath, store: LocalStore, temporary: Temporary, disk: Disk = DISK
    ) -> None:
        self._out = os.fspath(out)
        self._trees = os.fspath(trees)
        self._store = store
        self._temporary = temporary
        self._disk = disk

    def publish(self, label: Label, outputs: Mapping[str, Output]) -> dict[str, Path]:
        """Links each output whose bytes are there; returns where each of these is. Others are left out."""
        try:
            return self._publish(label, outputs)
        except OSError as error:
            raise disk_problem(error, self._out) from error
        except MarinError as error:
            error.notes = (*error.notes, f"while the outputs of `{label}` were laid out")
            raise

    def _publish(self, label: Label, outputs: Mapping[str, Output]) -> dict[str, Path]:
        made = {name: where for name, output in outputs.items() if (where := self._tree(name, output))}
        if not made:
            return {}
        place = self._place(label)
        if len(outputs) == 1:
            name, where = next(iter(made.items()))
            self._link(where, place)
            return {name: Path(place)}
        self._make_folder(place, str(label))
        for stale in set(os.listdir(place)) - set(outputs) - {_MARK}:
            self._disk.remove_tree(f"{place}/{stale}")
        for name, where in made.items():
            self._link(where, f"{place}/{name}")
        return {name: Path(f"{place}/{name}") for name in made}

    def path(self, label: Label) -> Path | None:
        """Where `publish` put the target's outputs: a link, or a folder of links. None when it is not there."""
        plain = f"{self._out}/{label.path}"
        for place in (plain, f"{plain}.out"):
            if os.path.islink(place) or os.path.isfile(f"{place}/{_MARK}"):
                return Path(place)
        return None

    def materialised(self, name: str, output: Output) -> Path:
        """Where an output lies once it was materialised."""
        return Path(self._where(name, output))

    def mend(self) -> tuple[int, int]:
        """Lays out again what links of ours under `out/` lead to and is gone, and removes the links whose bytes the
        store lacks; how many it laid and removed."""
        laid = removed = 0
        try:
            for folder, folders, files in os.walk(self._out):
                for place in (f"{folder}/{name}" for name in folders + files):
                    if not os.path.islink(place) or os.path.exists(place):
                        continue
                    if self._lay_again(os.path.normpath(f"{folder}/{os.readlink(place)}")):
                        laid += 1
                    else:
                        self._disk.unlink(place)
                        removed += 1
        except OSError as error:
            raise disk_problem(error, self._out) from error
        return laid, removed

    def _lay_again(self, where: str) -> bool:
        base, _, name = os.path.relpath(where, self._trees).partition("/")
        try:
            digest = self._store.known(base.removesuffix(".file"))
        except ValueError:
            return False
        if digest is None or where != self._where(name, Output(FILE if name else TREE, digest)):
            return False
        try:
            self._materialise(FILE if name else TREE, digest, where)
        except MissingBlob:
            return False
        return True

    # Under trees/

    def _where(self, name: str, output: Output) -> str:
        if output.kind == FILE:
            return f"{self._trees}/{output.digest.hex}.file/{name}"
        return f"{self._trees}/{output.digest.hex}"

    def _tree(self, name: str, output: Output) -> str | None:
        where = self._where(name, output)
        try:
            if os.path.lexists(where):
                if is_whole(self._store, output.kind, output.digest, where):
                    return where
                self._take_away(where)
            self._materialise(output.kind, output.digest, where)
        except MissingBlob:
            return None
        return where

    def _take_away(self, where: str) -> None:
        aside = self._temporary.name()
        self._temporary.prepare()
        with suppress(FileNotFoundError):  # another build was faster
            # At once, so that nobody sees half of it.
            self._disk.rename(where, aside)
            self._disk.remove_tree(aside)

    def _materialise(self, kind: str, digest: Digest, where: str) -> None:
        temporary = self._temporary.name()
        self._temporary.prepare()
        self._disk.makedirs(os.path.dirname(where))
        try:
            private = kind == FILE and digest.size <= _COPY_UP_TO
            materialise(self._store, kind, digest, temporary, writable=private, disk=self._disk)
            if private:
                self._disk.seal(temporary, 0o444, SEALED_NS)
            self._disk.rename(temporary, where)
        except BaseException as error:
            with suppress(OSError):
                self._disk.remove_tree(temporary)
            # Another build was faster with the same tree.
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return
            raise

    # Under out/

    def _place(self, label: Label) -> str:
        """Where the target's link or folder goes; the folders above it are made."""
        at = self._out
        self._disk.makedirs(at)
        *above, name = label.path.split("/")
        for part in above:
            at = f"{at}/{part}"
            if os.path.islink(at) or os.path.isfile(f"{at}/{_MARK}"):
                # A target that was here first moves aside. Writing below a link would write into a stored tree.
                self._disk.remove_tree(f"{at}.out")
                self._disk.rename(at, f"{at}.out")
            with suppress(FileExistsError):
                self._disk.mkdir(at)
        at = f"{at}/{name}"
        is_package = os.path.isdir(at) and not os.path.islink(at) and not os.path.isfile(f"{at}/{_MARK}")
        return f"{at}.out" if is_package else at

    def _make_folder(self, place: str, label: str) -> None:
        if os.path.islink(place) or os.path.isfile(place):
            self._disk.unlink(place)
        with suppress(FileExistsError):
            self._disk.mkdir(place)
        with suppress(FileExistsError):
            self._disk.write(f"{place}/{_MARK}", f"{label}\n".encode())

    def _link(self, where: str, place: str) -> None:
        target = os.path.relpath(where, os.path.dirname(place))
        with suppress(OSError):
            if os.readlink(place) == target:
                return
        temporary = self._temporary.name()
        self._temporary.prepare()
        self._disk.symlink(target, temporary)
        try:
            if os.path.isdir(place) and not os.path.islink(place):
                self._disk.remove_tree(place)  # several outputs before, one now
            self._disk.rename(temporary, place)
        except BaseException:
            with suppress(OSError):
                self._disk.unlink(temporary)
            raise
