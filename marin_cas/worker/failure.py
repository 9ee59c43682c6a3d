"""What people are told when a tool ended badly, from what its supervisor saw."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marin_cas.errors import BuildError, EnvironmentProblem, MarinError
from marin_cas.worker.attempt import Status
from marin_cas.worker.tool import WRITABLE

_DISK = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file grew beyond what is allowed here",
    errno.EIO: "the disk does not work",
}
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


def judge(
    end: Mapping[str, Any], label: str, *, work: Path, writable: tuple[str, ...], out_of_memory: Callable[[], bool]
) -> tuple[Status, MarinError] | None:
    """The status and error for a tool's end; None when it ended well. `end` is the supervisor's last message."""
    failure: Mapping[str, Any] | None = end["failure"]
    code = os.waitstatus_to_exitcode(end["status"])
    if end["reason"] == "timeout":
        return Status.TIMED_OUT, BuildError(f"`{label}` took longer than it may")
    if code < 0:
        return Status.FAILED, _killed(-code, label, out_of_memory)
    if failure is not None:
        return _failed(failure, label, work, writable)
    if code:
        return Status.FAILED, BuildError(f"`{label}` ended with exit status {code}", hint="its log says more")
    if end["left"]:
        first = end["left"][0]
        return Status.FAILED, BuildError(
            f"`{label}` left a process running: {first['pid']}, `{_short(first['command'])}`",
            notes=[f"and {other['pid']}, `{_short(other['command'])}`" for other in end["left"][1:]],
            hint="wait for every process that the tool starts, or end it",
        )
    return None


def _short(command: str) -> str:
    return command if len(command) <= 120 else command[:117] + "..."


def _killed(number: int, label: str, out_of_memory: Callable[[], bool]) -> BuildError:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL and out_of_memory():
        return BuildError(
            f"`{label}` was killed by {name}: the machine ran out of memory",
            hint='declare how much it needs (`resources = {"ram": "8GiB"}`), so that fewer actions run beside it',
        )
    hint = "perhaps the machine was out of memory: see `dmesg`" if number == signal.SIGKILL else None
    return BuildError(f"`{label}` was killed by {name}", hint=hint)


def _failed(failure: Mapping[str, Any], label: str, work: Path, writable: tuple[str, ...]) -> tuple[Status, MarinError]:
    message, where, hint = failure["message"], failure.get("where"), failure.get("hint")
    if failure.get("environment"):
        return Status.INFRA, EnvironmentProblem(f"`{label}`: {message}", where=where, hint=hint)
    number, path = failure.get("errno"), failure.get("path")
    if number in _DISK:
        return Status.INFRA, EnvironmentProblem(
            f"`{label}`: {_DISK[number]}" + (f" (writing `{path}`)" if path else ""), where=where, hint=hint
        )
    if number in _DENIED and path:
        denied = _denied(path, label, work, writable)
        if denied:
            return Status.FAILED, BuildError(
                denied, where=where, hint="write to an output, or to scratch what may be thrown away"
            )
    return Status.FAILED, BuildError(f"`{label}` failed: {message}", where=where, hint=hint)


def _denied(path: str, label: str, work: Path, writable: tuple[str, ...]) -> str | None:
    whole = os.path.normpath(os.path.join(work, path))
    allowed = [*(str(work / name) for name in WRITABLE), *writable]
    if any(whole == folder or whole.startswith(folder + "/") for folder in allowed):
        return None
    if whole.startswith(str(work / "in") + "/"):
        return f"`{label}` wrote to its input `{os.path.relpath(whole, work)}`; inputs are read-only"
    if os.path.exists(whole) and not os.access(whole, os.R_OK):
        return None  # it may have wanted to read
    shown = os.path.relpath(whole, work) if whole.startswith(f"{work}/") else path
    return f"`{label}` wrote outside its folder: `{shown}`"
