"""Downloads from a local Hub: our tool, every file checked, against `huggingface_hub.snapshot_download`.

200 files of 5 MB, from a Hub in a process of its own, once throttled to 100 MB/s in all and once not. Each download
runs in a fresh process and is timed without its imports.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measure import PYTHON, ROOT, at_least, folder

# By its folder: some installed package is called `tests` too.
sys.path.insert(0, str(ROOT / "tests" / "hub"))

FILES, SIZE, RATE = 200, 5_000_000, 100e6
ROUNDS = 3
REPO = "bench/files"


def serve(rate: float) -> None:
    """Runs the Hub until stdin ends; its first line is where it is and what it has."""
    from server import Hub

    rest = random.Random(0).randbytes(SIZE - 8)
    files = {f"data/{n:03}.bin": (n.to_bytes(8), rest) for n in range(FILES)}
    with Hub(rate=rate) as hub:
        commit = hub.repo(REPO).commit(files)
        print(json.dumps([hub.url, commit]), flush=True)
        sys.stdin.read()


def ours(commit: str, out: Path) -> float:
    import huggingface_hub  # noqa: F401 - imports are not what is measured

    from marin_cas.tools import hf_download, hub
    from marin_cas.worker.context import ToolContext

    hub.Hub()._session  # noqa: B018
    for name in ("out", "scratch"):
        (out / name).mkdir(parents=True)
    params = {"repo_type": "dataset", "repo_id": REPO, "commit": commit, "globs": [], "optional": []}
    context = ToolContext({**params, "subset": None, "split": None}, {}, {}, {"files": out / "out"}, out / "scratch")
    began = time.perf_counter()
    hf_download.run(context)
    return time.perf_counter() - began


def theirs(commit: str, out: Path) -> float:
    from huggingface_hub import get_session, snapshot_download

    get_session()
    began = time.perf_counter()
    snapshot_download(REPO, repo_type="dataset", revision=commit, cache_dir=out)
    return time.perf_counter() - began


def measured(who: str, url: str, commit: str, place: Path) -> float:
    """Seconds of one download in a fresh process; all files must be there."""
    out = place / "out"
    env = {**os.environ, "HF_ENDPOINT": url, "NO_PROXY": "*", "HF_HUB_DISABLE_XET": "1", "PYTHONPATH": str(ROOT)}
    env |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HOME": str(place / "home"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run([PYTHON, __file__, who, commit, str(out)], env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{who} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found = sum(1 for p in out.rglob("*.bin") if p.stat().st_size == SIZE)
    if found != FILES:
        sys.exit(f"{who}: {found} files came, not {FILES}")
    shutil.rmtree(out)
    return float(done.stdout.splitlines()[-1])


def compare(rate: float, place: Path) -> float:
    """Our rate over theirs, interleaved; prints both."""
    server = subprocess.Popen(
        [PYTHON, __file__, "serve", str(rate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    url, commit = json.loads(server.stdout.readline())
    taken: dict[str, list[float]] = {"ours": [], "theirs": []}
    try:
        for _ in range(ROUNDS):
            for who, seconds in taken.items():
                seconds.append(measured(who, url, commit, place))
    finally:
        server.kill()
        server.wait()
    rates = {who: FILES * SIZE / statistics.median(seconds) / 1e6 for who, seconds in taken.items()}
    print(f"  {'throttled to 100 MB/s' if rate else 'not throttled'}: "
          + ", ".join(f"{who} {each:.0f} MB/s" for who, each in rates.items()), flush=True)  # fmt: skip
    return rates["ours"] / rates["theirs"]


def main() -> None:
    match sys.argv[1:]:
        case ["serve", rate]:
            serve(float(rate))
        case ["ours", commit, out]:
            print(ours(commit, Path(out)))
        case ["theirs", commit, out]:
            print(theirs(commit, Path(out)))
        case _:
            print(f"{FILES} files of {SIZE / 1e6:.0f} MB from a local Hub, median of {ROUNDS}", flush=True)
            with folder() as place:
                at_least("our rate over snapshot_download's, throttled", compare(RATE, place), 0.9)
                print(f"  our rate over snapshot_download's, not throttled: {compare(0, place):.2f} x", flush=True)


if __name__ == "__main__":
    main()
