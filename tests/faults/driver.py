"""A warm process that runs `marin` command lines in forks of itself, watching every call on the disk.

Starting Python for each of hundreds of points would be most of the work. Requests come as JSON lines on stdin, answers
go to stdout. Everything that a command prints goes to files.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import pkgutil
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import marin_cas
from marin_cas.cache import actions, durable
from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.listing import results
from marin_cas.cache.verify import verify
from marin_cas.cli.main import main as marin
from marin_cas.digest import Digest
from marin_cas.disk import Disk
from marin_cas.recipe import Input, Recipe
from marin_cas.result import Result
from marin_cas.store import process
from marin_cas.store.trace import NEEDS_SPACE, Call, traced
from marin_cas.tree.walk import first_missing
from marin_cas.worker import client, environment

PATIENCE_S = 60.0
# Each use of a result is noted: which of them are would depend on how fast the machine is, and calls are counted.
actions._TOUCH_S = 0.0

type Key = tuple[str, int]  # the thread's role, and the how-manieth call there


def kind_of(path: str, root: str) -> str:
    """A path with all that differs from run to run, or from blob to blob, taken out."""
    path = path.removeprefix(root)
    path = re.sub(r"/tmp/\d+-\d+-[0-9a-f]{8}-beat", "/tmp/BEAT", path)
    path = re.sub(r"/tmp/\d+-\d+-[0-9a-f]{8}-\w+", "/tmp/TEMPORARY", path)
    path = re.sub(r"[0-9a-f]{64}", "DIGEST", path)
    path = re.sub(r"[0-9a-f]{32}", "FENCE", path)
    return re.sub(r"^/(cas|ac|fp)/[0-9a-f]{2}(?=/|$)", r"/\1/AB", path)


@dataclass(slots=True)
class Watch:
    """What one command does to the disk, and what is done to it at one call. `keep` also notes bytes."""

    root: str
    said: int  # a descriptor: what happened is told here before a kill
    fault: dict[str, Any] | None = None
    keep: bool = False
    calls: list[list[Any]] = field(default_factory=list)
    trace: list[tuple[Call, Any, Any]] = field(default_factory=list)
    _seen: Counter[str] = field(default_factory=Counter)
    _counted: int = 0
    _lock: Any = field(default_factory=threading.Lock)

    def __call__(self, call: Call, go: Callable[[], Any]) -> Any:
        if not call.path.startswith(self.root):
            return go()  # short names below the machine's own folder for temporary files
        role = threading.current_thread().name.split(" ")[0]
        with self._lock:
            n = self._seen[role]
            self._seen[role] += 1
            self.calls.append([role, n, call.name, kind_of(call.path, self.root)])
        fault = self.fault
        if fault is not None and fault["what"] == "kill":
            if [role, n] == fault["at"]:
                return self._kill(fault["phase"], call, go)
        elif fault is not None and (error := self._error(fault, call)) is not None:
            raise error
        if not self.keep:
            # Nothing here is about power: waiting for the disk would be most of the time.
            return None if call.name == "sync" else go()
        # In the order in which the calls end; under the lock, so that it is the order in which the disk saw them.
        with self._lock:
            before = _content(call.paths[0]) if call.name in ("rename", "link", "seal", "chmod") else None
            done = go()
            after = _content(call.path) if call.name in ("copy", "clone") and done is not False else before
            self.trace.append((call, done, after))
        return done

    def _kill(self, phase: str, call: Call, go: Callable[[], Any]) -> None:
        if phase == "after":
            with suppress(OSError):
                go()
        elif phase == "half" and not call.half(Disk()):
            os._exit(99)
        self._say({"fired": [call.name, kind_of(call.path, self.root)]})
        os.kill(os.getpid(), signal.SIGKILL)

    def _error(self, fault: dict[str, Any], call: Call) -> OSError | None:
        """`n` counts the calls that this kind of fault can hit; it lasts `lasts` of them, None for all that follow."""
        number = getattr(errno, fault["what"])
        if number == errno.ENOSPC and call.name not in NEEDS_SPACE:
            return None
        with self._lock:
            n = self._counted
            self._counted += 1
        if n < fault["n"] or (fault["lasts"] is not None and n >= fault["n"] + fault["lasts"]):
            return None
        if n == fault["n"]:
            self._say({"fired": [call.name, kind_of(call.path, self.root)]})
        if call.name in ("write", "append", "copy"):
            call.half(Disk())
        return OSError(number, os.strerror(number), call.path)

    def _say(self, what: dict[str, Any]) -> None:
        os.write(self.said, json.dumps(what).encode() + b"\n")


def _content(path: str) -> Any:
    """The bytes and mode of a regular file, None for anything else."""
    try:
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as file:
                return file.read(), os.stat(path).st_mode & 0o777
    except OSError:
        pass
    return None


class _Shared(client.ForkServer):
    """One fork server for all commands: each fork of the driver has its end of the socket."""

    def _hand_over(self, theirs: socket.socket) -> None:
        socket.send_fds(self._control, [b"+"], [theirs.fileno()])  # type: ignore[list-item,arg-type]

    def close(self) -> None:
        pass


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Runs `args` in `cwd`, with `fault` at one of its calls; what it printed, how it ended and what it did."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as told:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            _child(request, writer, told.fileno())
        os.close(writer)
        status = _wait(child)
        said = b""
        while chunk := os.read(reader, 1 << 16):
            said += chunk
        os.close(reader)
        fired = [json.loads(line)["fired"] for line in said.splitlines()]
        told.seek(0)
        answer = {"status": status, "fired": fired, "seconds": time.monotonic() - began}
        answer |= json.loads(told.read() or b'{"calls": [], "found": []}')
        for name, file in (("out", out), ("err", err)):
            file.seek(0)
            answer[name] = file.read().decode()
    return answer


def _wait(child: int) -> int:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124


def _child(request: dict[str, Any], said: int, told: int) -> None:
    code = 98
    try:
        os.chdir(request["cwd"])
        if request.get("boot"):
            _other_boot(request["boot"])
        watch = Watch(request["cache"], said, request.get("fault"), keep=bool(request.get("trace")))
        for name, method in traced(lambda: watch).items():
            setattr(Disk, name, method)
        found = look(request["cache"], request["look"]) if "look" in request else []
        code = marin(request["args"])
        os.write(told, json.dumps({"calls": watch.calls, "found": found}).encode())
        if request.get("trace"):
            with open(request["trace"], "wb") as file:
                pickle.dump(watch.trace, file)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def look(root: str, want: dict[str, Any]) -> list[str]:
    """What is wrong in a cache and with what it would serve.

    `allowed` are the digests of outputs that each label was ever seen to have, None when that is not known; `kept` are
    results, as key and digests of outputs, that must be there with all their bytes.
    """
    cache = open_cache(root)
    report = verify(cache)
    found = [] if report.ok else [f"verify: {report}"]
    for result in results(cache) if want["allowed"] is not None else ():
        for name, output in result.outputs.items():
            if str(output.digest) not in want["allowed"].get(result.label, ()):
                found.append(f"{result.label}: its output `{name}` never was {output.digest.short}")
    for key, outputs in want["kept"]:
        result = cache.actions.result(Digest.parse(key))
        if result is None or sorted(str(output.digest) for output in result.outputs.values()) != outputs:
            found.append(f"the result of {key[:12]} is lost")
        elif any(first_missing(cache.store, output.kind, output.digest) for output in result.outputs.values()):
            found.append(f"{result.label}: bytes of {key[:12]} are lost")
    for _, _, names in os.walk(f"{root}/fp"):
        for name in names:
            result = cache.fingerprints.get(bytes.fromhex(name))
            if result is not None and (stale := _stale(cache, result)):
                found.append(f"{result.label} is served by its fingerprint, and was made from what {stale[:12]} was")
    return found


def _stale(cache: Cache, result: Result) -> str | None:
    """The hex of a key whose present choice is not what a result that is served by fingerprint was made from."""
    record = cache.store.read(result.key)
    if record is None:
        return None
    read = {each.digest for each in Recipe.parse(record).inputs.values() if isinstance(each, Input)}
    for producer in result.producer_keys:
        standing = cache.actions.standing_of(producer.hex())
        now = set() if standing.chosen is None else _digests(standing.chosen)
        if standing.choice is not None and read & (set().union(*map(_digests, standing.attempts)) - now):
            return producer.hex()
    return None


def _digests(result: Result) -> set[Digest]:
    return {output.digest for output in result.outputs.values()}


def _other_boot(boot: str) -> None:
    space = process._machine()[1]
    process._machine = lambda: (boot, space)  # type: ignore[assignment]
    process._described.cache_clear()
    # The states of a power cut are laid out milliseconds after what the last sync covered.
    durable._MARGIN_NS = 0


def main() -> None:
    for module in pkgutil.walk_packages(marin_cas.__path__, "marin_cas."):
        if not module.name.startswith("marin_cas.tools.") and module.name != "marin_cas.__main__":
            import_module(module.name)
    for name in ("sqlite3", "email.utils", "html", "importlib.metadata"):
        import_module(name)
    server = _Shared(environment.base_environment())
    server.warm()
    import_module("marin_cas.worker.execute").ForkServer = lambda environ: server
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
