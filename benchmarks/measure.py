"""Running a command and reading what it took."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = str(ROOT / ".venv" / "bin" / "python")
# On the checkout's file system, since hard links and renames must be possible as in real use.
BENCH = Path(os.environ.get("MARIN_BENCH_DIR", ROOT / "cache"))
MARIN = str(ROOT / ".venv" / "bin" / "marin")


@dataclass(frozen=True, slots=True)
class Taken:
    """Wall and CPU seconds (user and system, children included)."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:8.3f} s wall {self.cpu:8.3f} s CPU"


def run(command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Taken:
    """Runs a command that must succeed, its output thrown away; `env` comes on top of the environment."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environ = None if env is None else {**os.environ, **env}
    done = subprocess.run(command, cwd=cwd, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return Taken(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def median(command: Sequence[str], cwd: Path | None = None, times: int = 9) -> Taken:
    taken = [run(command, cwd) for _ in range(times)]
    return Taken(statistics.median(t.wall for t in taken), statistics.median(t.cpu for t in taken))


@dataclass(frozen=True, slots=True)
class Inside:
    """What a piece of Python took, the most anonymous memory (RssAnon, MB) it had, and what it printed."""

    taken: Taken
    anonymous: float
    printed: str


_AROUND = """
import resource, sys, time
{prepare}
def used():
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
wall, cpu = time.perf_counter(), used()
{code}
print(time.perf_counter() - wall, used() - cpu)
"""


def inside(prepare: str, code: str, *arguments: str | Path) -> Inside:
    """Times `code` in a Python of its own, after `prepare` (imports), so that no interpreter's start is counted."""
    command = [PYTHON, "-c", _AROUND.format(prepare=prepare, code=code), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                return
            for line in status.splitlines():
                if line.startswith("RssAnon"):
                    peak = max(peak, int(line.split()[1]))
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    watcher.join()
    if process.returncode:
        sys.exit(f"ended with {process.returncode}:\n{code}")
    *printed, last = out.splitlines()
    wall, cpu = (float(word) for word in last.split())
    return Inside(Taken(wall, cpu), peak / 1024, "\n".join(printed))


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder in BENCH."""
    BENCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BENCH) as name:
        yield Path(name)


def at_least(what: str, value: float, limit: float, unit: str = "x") -> None:
    print(f"  {what}: {value:.2f} {unit} (at least {limit:g} {unit}) {'ok' if value >= limit else 'UNDER'}", flush=True)


def verdict(what: str, value: float, limit: float, unit: str = "s") -> None:
    """`value` may be up to `limit`."""
    print(f"  {what}: {value:.3f} {unit} (limit {limit:g} {unit}) {'ok' if value <= limit else 'OVER'}", flush=True)


def faster(what: str, ours: Taken, theirs: Taken | None, times: float = 1) -> None:
    """`ours` must be at least that many times as fast as a peer's, by wall. An absent peer is passed over."""
    if theirs is not None:
        ratio, word = theirs.wall / ours.wall, "ok" if theirs.wall >= times * ours.wall else "UNDER"
        print(f"  {what}: {ratio:.2f} x as fast (at least {times:.3g} x) {word}", flush=True)


def row(what: str, taken: Taken | None, more: str = "") -> None:
    print(f"{what:36} {taken or 'ABSENT'}{more and '  '}{more}", flush=True)
