"""Rolling checkpoints and exports in scratch: which are whole, and from which a training goes on.

A folder counts once its manifest lies beside it, written last and by rename, with the size and digest of each file.
A folder without one was never finished and is nothing; one that differs from its manifest is damaged. A training that
finds only damaged ones fails: it never starts again at step 0 over work that somebody paid for.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_cas.digest import hash_file
from marin_cas.worker.context import ToolError

_log = logging.getLogger("marin_cas.train_lm")

CHECKPOINTS, EXPORTS, METRICS = "checkpoints", "exports", "metrics.jsonl"
_MANIFEST = ".manifest.json"
_TRASH = ".removed"


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder with a manifest. `step` counts completed steps; `root` is the scratch folder that holds it."""

    step: int
    folder: Path
    root: Path


def manifest_path(folder: Path) -> Path:
    return folder.with_name(folder.name + _MANIFEST)


def seal(folder: Path, step: int) -> None:
    """Declares `folder` whole, as it is now."""
    files = {name: [path.stat().st_size, hash_file(path, exclusive=True).hex] for name, path in _files(folder)}
    manifest = manifest_path(folder)
    temporary = manifest.with_name(manifest.name + ".new")
    with temporary.open("w", encoding="utf-8") as out:
        json.dump({"step": step, "files": files}, out, sort_keys=True)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(manifest)


def damage(folder: Path) -> str | None:
    """How a sealed folder differs from its manifest; None when it does not."""
    manifest = _read_manifest(manifest_path(folder))
    if manifest is None:
        return "its manifest cannot be read"
    try:
        found = dict(_files(folder))
        for name, (size, digest) in manifest["files"].items():
            path = found.pop(name, None)
            if path is None:
                return f"`{name}` is missing"
            actual = path.stat().st_size
            if actual != size:
                return f"`{name}` has {actual} bytes instead of {size}"
            if hash_file(path, exclusive=True).hex != digest:
                return f"`{name}` has other bytes"
        return f"`{min(found)}` does not belong there" if found else None
    except OSError as error:
        return f"{error.strerror or error}"


def discard(folder: Path) -> None:
    """Removes a sealed folder so that no kill in between leaves it looking damaged."""
    manifest_path(folder).unlink(missing_ok=True)
    trash = folder.with_name(folder.name + _TRASH)
    if folder.exists():
        shutil.rmtree(trash, ignore_errors=True)
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def kept(root: Path, kind: str) -> list[Kept]:
    """All sealed folders of a kind below a scratch folder; a damaged manifest counts with the step in its name."""
    found: list[Kept] = []
    pattern = f"{kind}/*/*{_MANIFEST}" if kind == CHECKPOINTS else f"{kind}/*{_MANIFEST}"
    for path in sorted(root.glob(pattern)):
        folder = path.with_name(path.name.removesuffix(_MANIFEST))
        manifest = _read_manifest(path)
        step = manifest["step"] if manifest else _step_of(folder.name)
        if step is not None:
            found.append(Kept(step, folder, root))
    return found


def choose(roots: Sequence[Path], exports_due: Sequence[int]) -> Kept | None:
    """The checkpoint to go on from: the newest whole one that has every export due before it.

    None when no checkpoint was ever finished. ToolError when all that were are damaged.
    """
    found = [checkpoint for root in roots for checkpoint in kept(root, CHECKPOINTS)]
    # Of two at the same step, that of the attempt closest to us (`roots` is in that order; sort is stable).
    found.sort(key=lambda checkpoint: -checkpoint.step)
    problems: list[str] = []
    for checkpoint in found:
        problem = damage(checkpoint.folder) or _lost_export(roots, exports_due, checkpoint.step)
        if problem is None:
            for earlier in problems:
                _log.warning("%s: going on from the older one of step %d", earlier, checkpoint.step)
            return checkpoint
        problems.append(f"the rolling checkpoint of step {checkpoint.step} is unreadable ({problem})")
    if problems:
        raise ToolError(
            f"no rolling checkpoint can be read, and the run was at step {found[0].step}: {'; '.join(problems)}",
            hint="restore its scratch folder, or start at step 0 on purpose with `marin build --again LABEL`",
        )
    if any(_traces(root) for root in roots):
        _log.warning("earlier attempts finished no rolling checkpoint: starting at step 0")
    return None


def find_export(roots: Sequence[Path], step: int) -> Kept | None:
    """A whole export of a step, from the closest attempt that has one."""
    for root in roots:
        for export in kept(root, EXPORTS):
            if export.step == step and damage(export.folder) is None:
                return export
    return None


def copy_metrics(source: Path, target: Path, last_step: int) -> None:
    """The lines of an earlier attempt's metrics up to `last_step`; a torn last line is left out."""
    lines: list[str] = []
    if source.is_file():
        for line in source.read_text(encoding="utf-8").splitlines():
            try:
                step = json.loads(line).get("step")
            except ValueError:
                continue
            if isinstance(step, int) and step <= last_step:
                lines.append(line + "\n")
    target.write_text("".join(lines), encoding="utf-8")


def move(source: Path, target: Path) -> None:
    """Puts a folder's entries into the empty folder `target`, by rename where it can."""
    for entry in sorted(source.iterdir()):
        shutil.move(entry, target / entry.name)


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)


def _lost_export(roots: Sequence[Path], exports_due: Sequence[int], step: int) -> str | None:
    # An export is made before the checkpoint of its step, so one that is missing was damaged or removed.
    for due in exports_due:
        if due <= step and find_export(roots, due) is None:
            return f"the export of step {due} is gone"
    return None


def _read_manifest(path: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(manifest["step"], int) and isinstance(manifest["files"], dict):
            return manifest
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _step_of(name: str) -> int | None:
    # Levanter names a checkpoint by the index of its last step.
    number, offset = name.removeprefix("step-"), int(name.startswith("step-"))
    return int(number) + offset if number.isdecimal() else None


def _traces(root: Path) -> bool:
    return any((root / CHECKPOINTS).glob("*/*"))


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path
