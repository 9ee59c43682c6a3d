"""The driver's side of the fork server: it starts it, hands actions over, and follows each by its channel."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from marin_cas.errors import EnvironmentProblem
from marin_cas.worker import wire

_BOOT = str(Path(__file__).with_name("boot.py"))


class Channel:
    """One running action as the driver sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lines = wire.Lines()
        self._lock = threading.Lock()

    def messages(self, timeout: float) -> Iterator[bytes | None]:
        """Each line that comes, and None whenever `timeout` seconds brought none. Ends with the supervisor."""
        self._sock.settimeout(timeout)
        while True:
            try:
                data = self._sock.recv(1 << 16)
            except TimeoutError:
                yield None
                continue
            except ConnectionError:
                return
            if not data:
                return
            yield from self._lines.feed(data)

    def order(self, what: bytes) -> None:
        """wire.TERMINATE or wire.KILL; nothing happens when it has ended."""
        with self._lock, contextlib.suppress(OSError):
            self._sock.send(what)

    def close(self) -> None:
        """Whatever still runs is killed."""
        with self._lock:
            self._sock.close()


class ForkServer:
    """Starts the process on first use, and again should it have died. Used from many threads."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def spawn(self, spec: Mapping[str, Any]) -> Channel:
        """Begins one action: see `supervisor.Supervisor` for the fields of `spec`. Raises EnvironmentProblem."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                self._hand_over(theirs)
            wire.send(ours, dict(spec))
        except OSError as error:
            ours.close()
            raise EnvironmentProblem(f"no process can be started for an action: {error.strerror}") from error
        return Channel(ours)

    def _hand_over(self, theirs: socket.socket) -> None:
        for last in (False, True):
            with self._lock:
                if self._process is None or self._process.poll() is not None:
                    self._start()
                try:
                    socket.send_fds(self._control, [b"+"], [theirs.fileno()])  # type: ignore[list-item,arg-type]
                    return
                except OSError:
                    self._stop()
                    if last:
                        raise

    def warm(self) -> None:
        """Starts the process ahead of the first action, without waiting for it."""
        with self._lock:
            if self._process is None:
                self._start()

    def _start(self) -> None:
        self._stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-s", _BOOT, "forkserver", str(theirs.fileno())],
                env=self._environ,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal is the driver's to handle
            )
        self._control = ours

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Ends the process, and with it every action that still runs."""
        with self._lock:
            self._stop()
