"""A warm single-threaded process that has imported only the worker and forks the supervisors of actions.

A fork of it costs a few milliseconds; forking the driver instead would copy its threads' locks in whatever state.
At least one supervisor with its tool's process stands by, so an action does not even wait for the forks.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import time
from importlib import import_module

from marin_cas.worker import landlock, supervisor, tool, wire

# Loaded ahead, by name as ever: the tool of every user's function, and what `wait4` would import at its first call.
_WARM = (f"{tool.TOOLS}.function", "resource")
# Where a process cannot be started, trying at once again would only take the machine's last breath.
_PAUSE_S = 0.05


def main(fd: int) -> int:
    """The server: each message on `fd` brings the socket of one action to a supervisor that stands by.

    It ends when the driver does, in whatever manner: then `fd` has no other end any more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o022)
    control = socket.socket(fileno=fd)
    for name in _WARM:
        import_module(name)
    landlock.devices()
    notices, notices_end = os.pipe()
    wakeup, wakeup_end = os.pipe()
    for end in (notices, wakeup, wakeup_end):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    poller = select.poll()
    for end in (notices, wakeup):
        poller.register(end, select.POLLIN)
    poller.register(control, 0)  # tells only of its end
    server = os.getpid()
    gc.collect()
    gc.freeze()
    idle: set[int] = set()
    while True:
        if not idle:
            child = os.fork()
            if child == 0:
                _supervise(control, notices_end, server, [notices, wakeup, wakeup_end])
            idle.add(child)
        if any(ready == control.fileno() for ready, _ in poller.poll()):
            return 0
        wire.read_some(wakeup)
        if not _take_notice(wire.read_some(notices) or b"", idle):
            time.sleep(_PAUSE_S)


def _supervise(control: socket.socket, notices: int, server: int, foreign: list[int]) -> None:
    """In the child. Does not return."""
    try:
        signal.set_wakeup_fd(-1)
        for end in foreign:
            os.close(end)
        supervisor.stand_by(control, notices, server)
    finally:
        os._exit(0)


def _take_notice(notices: bytes, idle: set[int]) -> bool:
    """Keeps the books; False when one ended that had nothing to do."""
    for notice in notices.splitlines():
        if notice.startswith(b"+"):
            idle.discard(int(notice[1:]))
        else:
            idle.add(int(notice[1:]))
    # Last: one that said it was ready may have been killed since.
    well = True
    while True:
        try:
            child, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            idle.clear()
            return well
        if child == 0:
            return well
        well = well and child not in idle
        idle.discard(child)
