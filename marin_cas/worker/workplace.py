"""The folder in which one attempt runs: laid out before, removed after, and free of anything left by another."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from marin_cas.disk import DISK
from marin_cas.recipe import TREE, Recipe
from marin_cas.store.base import Store
from marin_cas.store.process import this_process
from marin_cas.store.temporary import Temporary
from marin_cas.tree.materialise import materialise
from marin_cas.worker import outputs
from marin_cas.worker.request import Request
from marin_cas.worker.trash import Trash

_TAIL_LINES = 20
_TAIL_BYTES = 1 << 16
_TAIL_WIDTH = 1000


def tmp_folder(temporary: Temporary, fence: str) -> Path:
    """The folder for an attempt's `TMPDIR`: apart from its work folder, so that its path is short; its name tells
    whose it is, so that it is swept once the driver is gone."""
    return Path(temporary.folder, f"{this_process().prefix}{fence[:6]}")


@dataclass(frozen=True, slots=True)
class Workplace:
    """`work` is the tool's working directory. `earlier` are the scratch folders of earlier attempts, newest first,
    `stale` their work folders."""

    work: Path
    tmp: Path
    scratch: Path
    earlier: tuple[Path, ...]
    stale: tuple[Path, ...]

    @property
    def log(self) -> Path:
        return self.work / "log"

    def prepare(self, store: Store, request: Request, recipe: Recipe) -> None:
        """Lays it out and puts the inputs in. Raises MissingBlob, IntegrityError, EnvironmentProblem, OSError."""
        # Whoever had these was killed, or is about to notice that it lost the key. Never all that is there: if it was
        # us who lost it and does not know yet, the work of a newer holder is there too.
        _remove(self.stale)
        # Plain strings: joining paths would cost more than making them.
        work = str(self.work)
        for folder in (work, str(self.tmp), str(self.scratch)):
            DISK.makedirs(folder)
        # It may run for weeks, and nothing else says before its end which blobs it reads: nobody shall delete them.
        DISK.write(f"{work}/recipe", recipe.record())
        DISK.symlink(str(self.tmp), f"{work}/tmp")
        DISK.symlink(str(self.scratch), f"{work}/scratch")
        DISK.mkdir(f"{work}/home")
        DISK.mkdir(f"{work}/in")
        outputs.prepare(f"{work}/out", recipe.outputs)
        for name, source in recipe.inputs.items():
            materialise(store, source.kind, source.digest, f"{work}/in/{name}")  # type: ignore[union-attr]
        if request.code is not None:
            materialise(store, TREE, request.code, f"{work}/code")
        if self.earlier:
            DISK.mkdir(f"{work}/earlier")
            for index, earlier in enumerate(self.earlier):
                DISK.symlink(str(earlier), f"{work}/earlier/{index}")

    def tail(self) -> tuple[str, ...]:
        """The log's last lines."""
        try:
            with open(self.log, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
                return tuple(line if len(line) <= _TAIL_WIDTH else f"{line[:_TAIL_WIDTH]}..." for line in lines)
        except OSError:
            return ()

    def keep_log(self, folder: Path, name: str) -> Path | None:
        """Moves the log to where `marin logs` finds that of the last failure."""
        try:
            DISK.makedirs(folder)
            DISK.rename(self.log, folder / name)
        except OSError:
            return None
        return folder / name

    def remove(self, trash: Trash) -> None:
        """Everything but scratch. What cannot be removed stays: a result does not fail for that."""
        trash.take(self.work)
        trash.take(self.tmp)
        with contextlib.suppress(OSError):
            self.work.parent.rmdir()  # the key's folder, unless it holds other attempts

    def remove_scratch(self) -> None:
        """Only after a success: until then the next attempt goes on from it."""
        _remove([self.scratch, *self.earlier])
        with contextlib.suppress(OSError):
            self.scratch.parent.rmdir()

    def remove_empty_scratch(self) -> None:
        """After a failure, when there is nothing to go on from."""
        for folder in (self.scratch, self.scratch.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            DISK.remove_tree(path)
