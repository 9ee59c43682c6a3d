"""Which process is which, on which machine since which boot: what says that a holder or a temporary file is orphaned.

A process number alone proves nothing, since numbers are used again: the start time and the boot tell two bearers
of one number apart.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """`started` is in clock ticks since boot, 0 where the system does not say; `boot` and `space` (the namespace that
    process numbers belong to) are empty there."""

    host: str
    boot: str
    space: str
    pid: int
    started: int

    @property
    def prefix(self) -> str:
        """How the names of its temporary files begin."""
        return f"{self.pid}-{self.started}-{_mark(self.boot, self.space)}-"


def this_process() -> Process:
    """The process that asks; right after a fork too."""
    pid = os.getpid()
    return _described(pid)


@functools.lru_cache(maxsize=8)
def _described(pid: int) -> Process:
    status = _status(pid)
    return Process(os.uname().nodename, *_machine(), pid, status[1] if status else 0)


@functools.cache
def _machine() -> tuple[str, str]:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


def _mark(boot: str, space: str) -> str:
    from zlib import crc32

    return f"{crc32(f'{boot} {space}'.encode()):08x}"


def _status(pid: int) -> tuple[str, int] | None:
    """The state letter and start time of a process, None when there is none or the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name, in parentheses, may hold spaces and parentheses itself.
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def is_gone(process: Process) -> bool:
    """True only when it is certain, from here, that the process has ended.

    Another machine's process, or one numbered in another namespace of this boot, cannot be judged: False.
    """
    here = this_process()
    if process.host != here.host:
        return False
    if process.boot != here.boot:
        return bool(process.boot and here.boot)
    if process.space != here.space:
        return False
    return _is_gone_here(process.pid, process.started)


def _is_gone_here(pid: int, started: int) -> bool:
    if os.path.exists("/proc/self/stat"):
        status = _status(pid)
        # A killed process stays as a zombie until its parent asks for it; it holds nothing any more.
        return status is None or status[0] in "ZX" or (started != 0 and status[1] != started)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def owner_is_gone(name: str) -> bool | None:
    """Whether the process that gave a temporary file its `name` has ended; None when it cannot be judged."""
    parts = name.split("-", 3)
    if len(parts) < 4 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return None
    if parts[2] != _mark(*_machine()):
        return None
    return _is_gone_here(int(parts[0]), int(parts[1]))
