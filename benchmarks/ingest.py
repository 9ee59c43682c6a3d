"""Taking outputs into the store: one large file against `b3sum`, many small ones against restic and nix."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from measure import PYTHON, Taken, folder, run, verdict

_GIB = 1 << 30


def anonymous_peak(command: list[str]) -> tuple[Taken, float]:
    """What a command took, and the largest RssAnon in MB that it had, sampled every 2 ms."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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
        sys.exit(f"{' '.join(command)} failed")
    wall, cpu = (float(word) for word in out.split())
    return Taken(wall, cpu), peak / 1024


# Timed inside, so that the interpreter's start is not counted for the ingest and neither is it for a peer's binary.
_INGEST = """
import sys, time
from pathlib import Path
from marin_cas.cache.cache import open_cache
from marin_cas.tree.ingest import ingest
cache = open_cache(Path(sys.argv[1]))
wall, cpu = time.perf_counter(), time.process_time()
ingest(cache.store, Path(sys.argv[2]), move=True)
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def ingest(base: Path, what: Path) -> tuple[Taken, float]:
    return anonymous_peak([PYTHON, "-c", _INGEST, str(base / "cache"), str(what)])


def large(base: Path) -> None:
    out = base / "out"
    out.mkdir()
    block = os.urandom(1 << 24)
    with (out / "large").open("wb") as file:
        for _ in range(2 * _GIB // len(block)):
            file.write(block)
    (out / "large").read_bytes()[:1]
    if shutil.which("b3sum") is None:
        print("b3sum                        ABSENT")
        return
    run(["b3sum", str(out / "large")])
    peer = min((run(["b3sum", str(out / "large")]) for _ in range(3)), key=lambda t: t.wall)
    taken, anonymous = ingest(base, out)
    print(f"b3sum of 2 GiB               {peer}")
    print(f"ingest of 2 GiB              {taken}")
    verdict("ratio to b3sum", taken.wall / peer.wall, 1.5, "x")
    verdict("anonymous memory", anonymous, 150, "MB")


def small(base: Path) -> None:
    def make(name: str) -> Path:
        root = base / name
        for index in range(10_000):
            part = root / f"{index // 100:03}"
            part.mkdir(parents=True, exist_ok=True)
            (part / f"{index:05}").write_bytes(os.urandom(16 << 10))
        return root

    taken, anonymous = ingest(base, make("ours"))
    print(f"ingest of 10,000 x 16 KiB    {taken}")
    verdict("anonymous memory", anonymous, 150, "MB")
    tree = make("theirs")
    if shutil.which("restic"):
        os.environ.update(RESTIC_PASSWORD="x", RESTIC_REPOSITORY=str(base / "restic"))
        run(["restic", "init", "-q"])
        peer = run(["restic", "backup", "-q", str(tree)])
        print(f"restic backup                {peer}")
        verdict("ratio to restic", taken.wall / peer.wall, 1, "x")
    else:
        print("restic                       ABSENT")
    if shutil.which("nix-store"):
        store = f"local?root={base / 'nix'}"
        peer = run(["nix-store", "--store", store, "--add", str(tree)])
        print(f"nix-store --add              {peer}")
        verdict("ratio to nix-store", taken.wall / peer.wall, 1, "x")
    else:
        print("nix-store                    ABSENT")


def main() -> None:
    with folder() as base:
        large(base)
    with folder() as base:
        small(base)


if __name__ == "__main__":
    main()
