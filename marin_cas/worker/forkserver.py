"""A warm single-threaded process that has imported only the worker and forks a supervisor for each action.

A fork of it costs a few milliseconds; forking the driver instead would copy its threads' locks in whatever state.
One supervisor with its tool's process always stands by, so an action does not even wait for the forks.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import time
from importlib import import_module

from marin_cas.worker import landlock, supervisor, tool

# Loaded ahead, by name as ever: the tool of every user's function, and what `wait4` would import at its first call.
_WARM = (f"{tool.TOOLS}.function", "resource")


def main(fd: int) -> int:
    """The server: each message on `fd` brings the socket of one action to the supervisor that stands by.

    It ends when the driver does, in whatever manner: then `fd` has no other end any more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors need no reaping
    os.umask(0o022)
    control = socket.socket(fileno=fd)
    for name in _WARM:
        import_module(name)
    landlock.devices()
    server = os.getpid()
    gc.collect()
    gc.freeze()
    while True:
        taken, taken_end = os.pipe()
        if os.fork() == 0:
            os.close(taken)
            try:
                supervisor.stand_by(control, taken_end, server)
            finally:
                os._exit(0)
        os.close(taken_end)
        if os.read(taken, 1) == b"" and not _go_on(control):
            return 0
        os.close(taken)


def _go_on(control: socket.socket) -> bool:
    """Whether the driver is there, after a supervisor ended that had no action: somebody killed it, or the driver is
    gone."""
    poller = select.poll()
    poller.register(control, 0)
    time.sleep(0.01)
    return not poller.poll(0)
