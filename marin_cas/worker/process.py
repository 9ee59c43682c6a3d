"""Linux process facts: who descends from whom, and who dies with whom. Elsewhere the answers are empty."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def become_subreaper() -> None:
    """From now on an orphan below this process becomes its child, so no descendant can slip away."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int, signum: signal.Signals) -> None:
    """Asks for `signum` when `parent` ends, and sends it at once when it ended before the question was put.

    The kernel watches the parent *thread*: call it only below single-threaded processes.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signum)


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, zombies left out, parents before their children."""
    found: list[int] = []
    pending = [pid]
    while pending:
        for child in _children(pending.pop()):
            if _state(child) not in ("Z", "X", ""):
                found.append(child)
            pending.append(child)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return children
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                children += map(int, file.read().split())
        except OSError:
            continue  # the thread ended meanwhile
    return children


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before it is in brackets and may itself hold brackets and blanks.
            return chr(file.read().rpartition(b")")[2].split()[0][0])
    except (OSError, IndexError):
        return ""


def has_ended(child: int) -> bool:
    """Whether a child of ours is dead; it is not reaped."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def command(pid: int) -> str:
    """The command line of `pid` as people read it, or its name."""
    for source in ("cmdline", "comm"):
        try:
            with open(f"/proc/{pid}/{source}", "rb") as file:
                text = file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            continue
        if text:
            return text
    return "?"


def oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since it started."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
