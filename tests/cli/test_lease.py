"""A build that waits for another: who holds the key and since when; and the other is killed."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from tests.cli.conftest import DATA, Mini

FUNCTION = """
import os
import time


def waits(ctx):
    while not os.path.exists(ctx.params["go"]):
        time.sleep(0.02)
    (ctx.output_path / "a").write_text("whole")
"""


def events(path: Path) -> list[dict]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def until(look, seconds: float = 60.0):
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)
    return found


def named(path: Path, event: str) -> dict | None:
    return next((each for each in events(path) if each["event"] == event), None)


def test_who_waits_is_told_for_whom_and_goes_on_when_that_one_is_killed(mini: Mini, tmp_path: Path) -> None:
    go = tmp_path / "go"
    mini.write(
        {
            "f.py": FUNCTION,
            "BUILD.marin": DATA + f'raw_download(name = "x", function = "f.py:waits", params = {{"go": "{go}"}})\n',
        }
    )
    first = mini.start("build", "//:x")
    until(lambda: list((mini.root / "cache").glob("work/*/*/log")))
    taken = time.time()
    second = mini.start("build", "//:x", "--events", "second", "--progress", "plain", "--output", "json")
    waiting = until(lambda: named(mini.root / "second", "action_waiting"))
    assert re.fullmatch(rf".+@.+ \(process {first.pid}\)", waiting["holder"])
    assert taken - 60 < waiting["since"] <= taken
    first.kill()
    began = time.monotonic()
    log = until(lambda: named(mini.root / "second", "log"))  # its own tool runs
    print(f"taken over {time.monotonic() - began:.2f} s after the kill")
    assert time.monotonic() - began < 10  # a sign of life: the time to live is a minute
    first.communicate()
    assert str(mini.root) in log["path"]
    go.write_text("")
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert re.search(rf"wait    //:x  another build makes it: .+ \(process {first.pid}\), since \d\d:\d\d:\d\d", err)
    assert json.loads(out)["counts"]["executed"] == 1
