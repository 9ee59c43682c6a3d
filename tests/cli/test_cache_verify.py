"""`marin cache verify` as people use it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, Mini


def blobs(mini: Mini) -> list[Path]:
    return sorted((mini.root / "cache/cas").glob("*/*"))


def flip(path: Path) -> None:
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def file_of(mini: Mini, data: bytes) -> Path:
    [path] = [path for path in blobs(mini) if path.read_bytes() == data]
    return path


def test_rot_is_found_repaired_and_built_again(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    everything = words.ok("cache", "verify")
    assert everything.out == "" and f"checked {len(blobs(words))} files" in everything.err
    assert "0 wrong" in everything.err
    path = file_of(words, b"one\ntwo\n")
    flip(path)
    found = words.run("cache", "verify", code=4)
    assert found.out.startswith(f"wrong     {path.name[:12]}  `{path}` has the bytes of ")
    assert "copy      `trees/" in found.out
    assert "error: 2 things in the cache are wrong" in found.err and "--repair" in found.err
    repaired = words.ok("cache", "verify", "--repair")
    assert "1 wrong, removed 2, removed 1 link of `out/` that led nowhere" in repaired.err
    again = words.ok("cache", "verify", "--output", "json").json
    assert again["wrong"] == [] and [each["label"] for each in again["hollow"]] == ["//exp:joined"]
    assert words.counts("//exp:joined")["executed"] == 1
    assert (words.root / "cache/out/exp/joined/all.txt").read_bytes() == b"one\ntwo\n"


def test_a_sample(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    for share in ("0.5", "50%"):
        report = words.ok("cache", "verify", "--sample", share, "--output", "json").json
        assert report["files"] < len(blobs(words)) and report["wrong"] == []
    for share in ("0", "1.5", "150%", "half", "%"):
        ran = words.run("cache", "verify", "--sample", share, code=2)
        assert f"`{share}` is not a share such as 0.1 or 10%" in ran.err


def big(mini: Mini) -> None:
    """Enough to hash that a signal comes in the middle: sparse, so that it takes no room."""
    mini.write(
        {
            "f.py": "def f(ctx):\n    for n in range(15):\n        with open(ctx.output_path / f'{n}', 'wb') as file:\n"
            "            file.write(b'%d' % n)\n            file.truncate(200 << 20)\n",
            "BUILD.marin": DATA + 'raw_download(name = "x", function = "f.py:f")\n',
        }
    )
    mini.ok("build", "//:x")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_goes_on(mini: Mini, number: int) -> None:
    big(mini)
    process = mini.start("cache", "verify")
    deadline = time.monotonic() + 60
    while not (mini.root / "cache/verify").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 8
        assert err.startswith("error: interrupted\n") and "`marin cache verify` with the same `--sample` goes on" in err
    report = mini.ok("cache", "verify", "--output", "json")
    assert "went on with the check that began" in report.err and "`--restart` begins anew" in report.err
    assert report.json["resumed"] is True and report.json["files"] == len(blobs(mini))
    assert not mini.ok("cache", "verify", "--sample", "1%", "--output", "json").json["resumed"]


def test_progress_is_for_terminals_only(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    assert "left" not in words.ok("cache", "verify").err
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        words.command("cache", "verify"), cwd=words.root, env=words.environ(), stderr=theirs, stdout=subprocess.PIPE
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # Linux says so at the end
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait() == 0
    assert b"\r\x1b[K" in shown and b"0 wrong" in shown
