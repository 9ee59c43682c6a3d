"""When a training exports and checkpoints: exports at planned steps, rolling checkpoints by time or steps."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levanter.checkpoint import Checkpointer, CheckpointerConfig

from marin_cas.tools import levanter_rolling as rolling
from marin_cas.tools.levanter_export import Exporter

_log = logging.getLogger("marin_cas.train_lm")

# Checkpoints of one attempt that stay: the newest may be damaged by what killed the attempt.
_KEEP = 2


@dataclass(frozen=True, slots=True)
class Cadence:
    """`steps` is the last step; `exports` are those before it that are exported too. Steps count completed ones."""

    steps: int
    exports: tuple[int, ...]
    seconds: float | None
    every: int | None
    scratch: Path
    attempt: Path  # where this process puts its checkpoints

    def checkpoint_folder(self, step: int) -> Path:
        # Levanter counts steps from 0 and names a checkpoint by its last one.
        return self.attempt / f"step-{step - 1}"


class RollingConfig(CheckpointerConfig):
    """Not a dataclass of its own: Levanter copies and prints the fields of those."""

    def __init__(self, cadence: Cadence, exporter: Exporter) -> None:
        super().__init__(base_path=str(cadence.attempt), append_run_id_to_base_path=False)
        self._cadence = cadence
        self._exporter = exporter
        self.ended: int | None = None

    def create(self, run_id: str) -> Checkpointer:
        return _Rolling(self._cadence, self._exporter, self._note_end)

    def _note_end(self, step: int) -> None:
        self.ended = step


class _Rolling(Checkpointer):
    """Exports a due step, then checkpoints by time or steps; the last step always, kept for the output."""

    def __init__(
        self,
        cadence: Cadence,
        exporter: Exporter,
        note_end: Callable[[int], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            str(cadence.attempt),
            None if cadence.seconds is None else datetime.timedelta(seconds=cadence.seconds),
            [],
            delete_old_temp_checkpoints=False,
        )
        self._cadence = cadence
        self._exporter = exporter
        self._note_end = note_end
        self._now = now
        self._last: float | None = None
        self._exported: set[int] = set()

    def on_step(self, *, tree: Any, step: int, force: bool = False) -> None:
        completed = int(step) + 1
        if self._last is None:
            self._last = self._now()  # the first step compiles, which is no progress to keep
        if completed in self._cadence.exports and completed not in self._exported:
            # Before the checkpoint of the same step: whoever goes on from that will not make this export again.
            self._exporter.export(tree.eval_model, completed)
            self._exported.add(completed)
        if force:
            self._exporter.export(tree.eval_model, completed)
            self._save(tree, completed, last=True)
            self._note_end(completed)
        elif completed < self._cadence.steps and self._is_due(completed):
            self._save(tree, completed, last=False)

    def _is_due(self, completed: int) -> bool:
        seconds, every = self._cadence.seconds, self._cadence.every
        due = bool(every and completed % every == 0)
        return due or bool(seconds and self._last is not None and self._now() - self._last >= seconds)

    def _save(self, tree: Any, completed: int, last: bool) -> None:
        folder = self._cadence.checkpoint_folder(completed)

        def committed() -> None:
            rolling.seal(folder, completed)
            self._prune()
            _log.info("checkpoint of step %d is complete", completed)

        self.save_checkpoint(tree, completed - 1, folder.name, committed, is_temporary=not last)
        self._last = self._now()

    def _prune(self) -> None:
        """Removes all but the newest checkpoints of this scratch folder; those of earlier attempts are not ours."""
        found = sorted(rolling.kept(self._cadence.scratch, rolling.CHECKPOINTS), key=lambda kept: kept.step)
        for checkpoint in found[:-_KEEP]:
            rolling.discard(checkpoint.folder)
