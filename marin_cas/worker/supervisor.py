"""Looks after one tool process: starts it, relays what it says, ends it, and leaves no descendant behind.

It is a process of its own, single-threaded and a subreaper, so that whatever the tool starts stays below it; when the
driver goes away, in whatever manner, the socket closes and everything below it is killed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_cas.worker import process, tool, wire
from marin_cas.worker.redact import Redactor, spellings

# A helper that ends when its pipe closes (multiprocessing's trackers) needs a moment after the tool.
_STRAGGLE_S = 1.0
BOOT = str(Path(__file__).with_name("boot.py"))


class _ParentDied(BaseException):
    """Our forkserver ended: nobody wants this action any more."""


def stand_by(control: socket.socket, notices: int, server: int) -> None:
    """Serves actions that come on `control`, one after another, until nobody can send any more.

    Says on `notices` when it takes one and when it is ready for the next. `server` is our parent's pid.
    """
    signal.signal(signal.SIGTERM, _on_parent_death)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    process.become_subreaper()
    wakeup, wakeup_end = os.pipe()
    for fd in (wakeup, wakeup_end):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    foreign = [control.fileno(), notices, wakeup, wakeup_end]
    try:
        process.die_with(server, signal.SIGTERM)
        while True:
            ready = _Ready.make(foreign)
            _, fds, _, _ = socket.recv_fds(control, 1, 1)
            if not fds:
                break
            os.write(notices, b"+%d\n" % os.getpid())
            if process.has_ended(ready.pid):
                ready.close()  # somebody killed it while it waited
                ready = _Ready.make(foreign)
            with socket.socket(fileno=fds[0]) as sock:
                _serve(sock, ready, wakeup)
            ready.close()
            os.write(notices, b"-%d\n" % os.getpid())
    except (_ParentDied, OSError):
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_all()


def _serve(sock: socket.socket, ready: _Ready, wakeup: int) -> None:
    """One action. Nothing of it runs any more when this returns."""
    try:
        line, orders = wire.read_line(sock)
        if line:
            _Supervisor(sock, ready, wakeup, line).run(orders)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            wire.send(sock, {"broken": f"{type(error).__name__}: {error}"})
    finally:
        end_all()


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


@dataclass(frozen=True, slots=True)
class _Ready:
    """A tool's process that waits for its order on `order`, and our ends of its pipes."""

    pid: int
    order: io.FileIO
    report: int
    output: int

    @classmethod
    def make(cls, foreign: list[int]) -> _Ready:
        """Starts the process; it closes our ends and what is in `foreign`."""
        order, order_end = os.pipe()
        report, report_end = os.pipe()
        output, output_end = os.pipe()
        for fd in (report, output):
            os.set_blocking(fd, False)
        supervisor = os.getpid()
        # Our handler must not run in the child before the child has dropped it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            _become_tool(supervisor, order, report_end, output_end, [order_end, report, output, *foreign])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for fd in (order, report_end, output_end):
            os.close(fd)
        return cls(pid, io.FileIO(order_end, "wb"), report, output)

    def close(self) -> None:
        self.order.close()
        for fd in (self.report, self.output):
            os.close(fd)


class _Supervisor:
    """One tool's life. The order has work, log, env, secrets (values), heavy, grace, timeout."""

    def __init__(self, sock: socket.socket, ready: _Ready, wakeup: int, line: bytes) -> None:
        spec = json.loads(line)
        self.sock, self.ready, self.wakeup, self.pid, self.line = sock, ready, wakeup, ready.pid, line
        self.grace: float = spec["grace"]
        self.deadline = time.monotonic() + spec["timeout"] if spec["timeout"] else None
        self.redactor = Redactor(spellings(spec["secrets"]))
        # The tool writes its log by itself, unless there are secrets to take out on the way.
        self.log = wire.open_log(spec["log"]) if spec["secrets"] else -1
        self.lines = wire.Lines()
        self.cpu_s, self.max_rss = 0.0, 0
        self.ended: int | None = None
        self.childless = False
        self.failure: dict[str, Any] | None = None
        self.reason = ""
        self.kill_at: float | None = None

    def run(self, orders: bytes) -> None:
        """Gives the order and stays until nothing of the tool runs any more. `orders` is what the driver said since."""
        view = memoryview(self.line)
        while view:
            view = view[self.ready.order.write(view) :]
        self.ready.order.close()
        wire.send(self.sock, {"started": {"pid": self.pid}})
        if orders:
            self._obey(orders)
        self._watch(self.ready.report, self.ready.output, self.wakeup)
        left = [] if self.childless else self._clear_descendants()
        self._drain(self.ready.report, self.ready.output)
        if self.log >= 0:
            os.close(self.log)
        wire.send(self.sock, {"end": {
            "status": self.ended, "cpu_s": self.cpu_s, "max_rss": self.max_rss, "reason": self.reason,
            "left": left, "failure": self.failure,
        }})  # fmt: skip

    def _watch(self, report: int, output: int, wakeup: int) -> None:
        poller = select.poll()
        for fd in (report, output, wakeup, self.sock.fileno()):
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
            self.kill_at = self.kill_at or time.monotonic() + self.grace
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)  # its session's first group; what left the group is found afterwards
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signum)  # also when it has not yet come to make its session

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True  # nor grandchildren: an orphan would be ours
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
            while data := wire.read_some(fd):
                self._take(fd, report, data)
        self._write_log(self.redactor.end())

    def _take(self, fd: int, report: int, data: bytes) -> None:
        if fd != report:
            self._write_log(self.redactor.feed(data))
            return
        for line in self.lines.feed(data):
            with contextlib.suppress(ValueError):
                self._pass_on(self.redactor.value(json.loads(line)))

    def _pass_on(self, message: object) -> None:
        """Only what our own side of the tool says: the tool itself could write anything there."""
        match message:
            case {"failure": {"message": str()} as failure}:
                self.failure = failure
            case {"progress": {"done": _, "total": _, "unit": str()} as progress}:
                wire.send(self.sock, {"progress": progress})

    def _write_log(self, data: bytes) -> None:
        while data and self.log >= 0:
            data = data[os.write(self.log, data) :]


def _become_tool(supervisor: int, order: int, report: int, output: int, foreign: list[int]) -> None:
    """In the child: a session of its own, then at the order a clean environment and the tool. Does not return."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.setsid()
        process.die_with(supervisor, signal.SIGKILL)
        for fd in foreign:
            os.close(fd)
        with open(order, "rb") as file:
            line = file.read()
        if line:
            spec = json.loads(line)
            if not spec["secrets"]:
                os.close(output)
                output = wire.open_log(spec["log"])
            for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
                os.dup2(source, target)
                if target != 1:
                    os.close(source)
            code = _run_tool(spec, report)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _run_tool(spec: dict[str, Any], report: int) -> int:
    os.chdir(spec["work"])
    if spec["heavy"]:
        os.set_inheritable(report, True)
        os.execve(sys.executable, [sys.executable, "-P", "-s", BOOT, "tool", str(report)], spec["env"])
    os.environ.clear()
    os.environ.update(spec["env"])
    time.tzset()
    return tool.main(report)
