"""Looks after one tool process: starts it, relays what it says, ends it, and leaves no descendant behind.

It is a process of its own, single-threaded and a subreaper, so that whatever the tool starts stays below it; when the
driver goes away, in whatever manner, the socket closes and everything below it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from marin_cas.worker import process, wire
from marin_cas.worker.redact import Redactor, spellings

# A helper that ends when its pipe closes (multiprocessing's trackers) needs a moment after the tool.
_STRAGGLE_S = 1.0
BOOT = str(Path(__file__).with_name("boot.py"))


class _ParentDied(BaseException):
    """Our forkserver ended: nobody wants this action any more."""


def supervise(sock: socket.socket, server: int) -> None:
    """Serves one action on `sock` and returns when nothing of it runs any more. `server` is our parent's pid."""
    signal.signal(signal.SIGTERM, _on_parent_death)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process.become_subreaper()
    try:
        process.die_with(server, signal.SIGTERM)
        line = wire.read_line(sock)
        if line:
            _Supervisor(sock, json.loads(line)).run()
    except (_ParentDied, OSError, ValueError) as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_all()
        with contextlib.suppress(OSError):
            wire.send(sock, {"broken": f"{type(error).__name__}: {error}"})


def _on_parent_death(signum: int, frame: object) -> None:
    raise _ParentDied


def end_all() -> None:
    """Kills every descendant and reaps it; returns when there is none."""
    while True:
        for pid in process.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


class _Supervisor:
    """One tool's life. `spec` has work, env, secrets (values), heavy, grace, timeout, log."""

    def __init__(self, sock: socket.socket, spec: dict[str, Any]) -> None:
        self.sock, self.spec = sock, spec
        self.redactor = Redactor(spellings(spec["secrets"]))
        self.lines = wire.Lines()
        self.pid = 0
        self.usage: Any = None
        self.cpu_s, self.max_rss = 0.0, 0
        self.ended: int | None = None
        self.failure: dict[str, Any] | None = None
        self.reason = ""
        self.kill_at: float | None = None
        self.deadline = time.monotonic() + spec["timeout"] if spec["timeout"] else None

    def run(self) -> None:
        report, report_end = os.pipe()
        self.log = os.open(self.spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # The tool writes its log by itself unless there are secrets to take out on the way.
        output, output_end = os.pipe() if self.spec["secrets"] else (-1, self.log)
        wakeup, wakeup_end = os.pipe()
        for fd in (report, wakeup, wakeup_end, *([output] if output >= 0 else [])):
            os.set_blocking(fd, False)
        self.sock.setblocking(True)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)

        supervisor = os.getpid()
        # Our handler must not run in the child before the child has dropped it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self.pid = os.fork()
        if self.pid == 0:
            _become_tool(self.spec, supervisor, report_end, output_end, [report, wakeup, wakeup_end, output], self.sock)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.close(report_end)
        if output >= 0:
            os.close(output_end)
        wire.send(self.sock, {"started": {"pid": self.pid}})

        self._watch(report, output, wakeup)
        left = self._clear_descendants()
        self._drain(report, output)
        wire.send(self.sock, {"end": {
            "status": self.ended, "cpu_s": self.cpu_s, "max_rss": self.max_rss, "reason": self.reason,
            "left": left, "failure": self.failure,
        }})  # fmt: skip

    def _watch(self, report: int, output: int, wakeup: int) -> None:
        poller = select.poll()
        for fd in (report, wakeup, self.sock.fileno(), *([output] if output >= 0 else [])):
            poller.register(fd, select.POLLIN)
        while self.ended is None:
            for fd, _ in poller.poll(self._wait_ms()):
                if fd == self.sock.fileno():
                    if self._obey(self.sock.recv(16)):
                        poller.unregister(fd)
                elif fd == wakeup:
                    wire.read_some(wakeup)
                elif (data := wire.read_some(fd)) == b"":
                    poller.unregister(fd)  # the tool closed it early
                elif data:
                    self._take(fd, report, data)
            self._check_time()
            self._reap()

    def _wait_ms(self) -> float | None:
        due = [moment for moment in (self.kill_at, self.deadline) if moment is not None]
        return max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None

    def _obey(self, order: bytes) -> bool:
        """Does what the driver says; True when it is gone."""
        if wire.KILL in order or not order:
            self._end(signal.SIGKILL, "cancelled")
        elif wire.TERMINATE in order:
            self._end(signal.SIGTERM, "cancelled")
        return not order

    def _check_time(self) -> None:
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self._end(signal.SIGTERM, "timeout")
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self._end(signal.SIGKILL, self.reason)

    def _end(self, signum: signal.Signals, reason: str) -> None:
        self.reason = self.reason or reason
        if signum == signal.SIGTERM:
            self.kill_at = self.kill_at or time.monotonic() + self.spec["grace"]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)  # its session's first group; what left the group is found afterwards
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signum)  # also when it has not yet come to make its session

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.cpu_s += usage.ru_utime + usage.ru_stime
            self.max_rss = max(self.max_rss, usage.ru_maxrss * 1024)
            if pid == self.pid:
                self.ended = status

    def _clear_descendants(self) -> list[dict[str, Any]]:
        """Waits a moment for helpers to go, names and kills what stays."""
        until = time.monotonic() + (0 if self.reason else _STRAGGLE_S)
        while alive := process.descendants(os.getpid()):
            if time.monotonic() >= until:
                break
            time.sleep(0.002)
            self._reap()
        left = [{"pid": pid, "command": self.redactor.text(process.command(pid))} for pid in alive]
        end_all()
        return left

    def _drain(self, report: int, output: int) -> None:
        for fd in (report, output):
            while fd >= 0 and (data := wire.read_some(fd)):
                self._take(fd, report, data)
        self._write_log(self.redactor.end())

    def _take(self, fd: int, report: int, data: bytes) -> None:
        if fd != report:
            self._write_log(self.redactor.feed(data))
            return
        for line in self.lines.feed(data):
            # A secret that looked like JSON may leave something that is not: then nothing is passed on.
            with contextlib.suppress(ValueError):
                message = json.loads(self.redactor.whole(line))
                if "failure" in message:
                    self.failure = message["failure"]
                else:
                    wire.send(self.sock, message)

    def _write_log(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.log, data) :]


def _become_tool(
    spec: dict[str, Any], supervisor: int, report: int, output: int, close: list[int], sock: socket.socket
) -> None:
    """In the child: a session of its own, a clean environment, then the tool. Does not return."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.setsid()
        process.die_with(supervisor, signal.SIGKILL)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        sock.close()
        for fd in (*close, null, output):
            if fd > 2:
                os.close(fd)
        os.chdir(spec["work"])
        if spec["heavy"]:
            os.set_inheritable(report, True)
            os.execve(sys.executable, [sys.executable, "-P", "-s", BOOT, "tool", str(report)], spec["env"])
        os.environ.clear()
        os.environ.update(spec["env"])
        time.tzset()
        from marin_cas.worker import tool

        code = tool.main(report)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)
