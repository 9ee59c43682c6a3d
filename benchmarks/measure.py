"""Running a command and reading what it took."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = str(ROOT / ".venv" / "bin" / "python")
MARIN = str(ROOT / ".venv" / "bin" / "marin")


@dataclass(frozen=True, slots=True)
class Taken:
    """Wall and CPU seconds (user and system, children included)."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:8.3f} s wall {self.cpu:8.3f} s CPU"


def run(command: Sequence[str], cwd: Path | None = None) -> Taken:
    """Runs a command that must succeed, its output thrown away."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return Taken(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def median(command: Sequence[str], cwd: Path | None = None, times: int = 9) -> Taken:
    taken = [run(command, cwd) for _ in range(times)]
    return Taken(statistics.median(t.wall for t in taken), statistics.median(t.cpu for t in taken))


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder on the checkout's file system: hard links and renames must be possible as in real use."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("MARIN_BENCH_DIR", ROOT / "cache")) as name:
        yield Path(name)


def verdict(what: str, value: float, limit: float, unit: str = "s") -> None:
    print(f"  {what}: {value:.3f} {unit} (limit {limit:g} {unit}) {'ok' if value <= limit else 'OVER'}", flush=True)
