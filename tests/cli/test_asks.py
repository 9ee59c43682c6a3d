"""What users of other tools suffered, at the command line: probes on names, files, messages and reasons."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, Mini

FUNCTION = "def f(ctx):\n    (ctx.output_path / 'out.txt').write_text(repr(ctx.params))\n"


def declare(mini: Mini, params: str, *, before: str = "", name: str = "x") -> None:
    mini.write(
        {
            "f.py": FUNCTION,
            "BUILD.marin": DATA + before + f'raw_download(name = "{name}", function = "f.py:f", params = {params})\n',
        }
    )


def key(mini: Mini, params: str, *, before: str = "", name: str = "x") -> str:
    declare(mini, params, before=before, name=name)
    [record] = mini.ok("aquery", f"//:{name}", "--output", "json").json
    return record["key"]


# Row 7: order of maps, position in the file.


def test_order_and_place_do_not_count(mini: Mini) -> None:
    first = key(mini, '{"a": 1, "b": {"c": 2, "d": [1, 2]}}')
    assert key(mini, '{"b": {"d": [1, 2], "c": 2}, "a": 1}') == first
    assert key(mini, '{"a": 1, "b": {"c": 2, "d": [1, 2]}}', before="\n# a comment\n\n\n") == first
    assert key(mini, '{"a": 1, "b": {"c": 2, "d": [1, 2]}}', name="y") == first
    assert key(mini, '{"a": 1, "b": {"c": 2, "d": [2, 1]}}') != first


def test_why_names_the_path_of_the_change(mini: Mini) -> None:
    declare(mini, '{"a": 1, "b": {"c": 2}}')
    mini.ok("build", "//:x")
    declare(mini, '{"a": 1, "b": {"c": 3}}')
    assert "params.b.c: 2 -> 3" in mini.ok("why", "//:x").out


# Row 8: a value that is a function.


@pytest.mark.parametrize("value", ["glob", "len", "lambda: 1", "[glob]", '{"deep": [glob]}'])
def test_a_callable_is_no_value(mini: Mini, value: str) -> None:
    declare(mini, f'{{"f": {value}}}')
    ran = mini.run("build", "//:x", code=2)
    assert ran.err.startswith("error: BUILD.marin:2: ")


# Row 9: numbers as they are written.


def test_one_number_has_one_key_and_text_is_no_number(mini: Mini) -> None:
    same = ["1e-3", "0.001", "1.0e-3", "0.1e-2"]
    others = ['"1e-3"', "1", "1.0", '"1"', "True", "None", "[1]"]
    targets = "".join(
        f'raw_download(name = "x{i}", function = "f.py:f", params = {{"v": {literal}}})\n'
        for i, literal in enumerate(same + others)
    )
    mini.write({"f.py": FUNCTION, "BUILD.marin": DATA + targets})
    keys = {record["label"]: record["key"] for record in mini.ok("aquery", "//...", "--output", "json").json}
    assert len(keys) == len(same + others)
    assert len({keys[f"//:x{i}"] for i in range(len(same))}) == 1
    assert len(set(keys.values())) == len(others) + 1


# Row 23: each pattern of a glob must match.


def test_a_typo_in_one_of_two_patterns(mini: Mini) -> None:
    mini.write({"data/a.jsonl": "{}\n", "f.py": FUNCTION, "BUILD.marin": 'glob(["data/*.jsonl", "data/*.jsno"])\n'})
    ran = mini.run("build", "//...", code=2)
    assert "BUILD.marin:1" in ran.err
    assert "`data/*.jsno`" in ran.err
    assert "`data/*.jsonl`" not in ran.err
    mini.write({"BUILD.marin": 'glob(["data/*.jsonl", "data/*.jsno"], allow_empty = True)\n'})
    mini.ok("build", "//...")


# Row 24: two targets, one name.


def test_two_targets_with_one_name_and_version(mini: Mini) -> None:
    body = 'function = "f.py:f", artifact = "data/x", version = "2026.01.31"'
    mini.write(
        {
            "f.py": FUNCTION,
            "a/BUILD.marin": DATA + f'raw_download(name = "x", {body})\n',
            "b/BUILD.marin": DATA + f'\nraw_download(name = "y", {body})\n',
        }
    )
    ran = mini.run("build", "//...", code=2)
    for text in ("//a:x", "a/BUILD.marin:2", "//b:y", "b/BUILD.marin:3", "data/x@2026.01.31"):
        assert text in ran.err
    assert ran.err.count("hint:") == 1
    assert len(ran.err.splitlines()) <= 5


# Row 25: cycles.


def ring(count: int, prefix: str) -> str:
    return "".join(
        f'py_action(name = "{prefix}{i}", function = "f.py:f", inputs = {{"i": ":{prefix}{(i + 1) % count}"}})\n'
        for i in range(count)
    )


@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_cycle_shows_each_edge(mini: Mini, count: int) -> None:
    mini.write({"f.py": FUNCTION, "BUILD.marin": DATA + ring(count, "a")})
    ran = mini.run("build", "//:a0", code=2)
    assert "cycle" in ran.err
    edges = re.findall(r"BUILD\.marin:(\d+)", ran.err)
    assert {int(line) for line in edges} == {i + 2 for i in range(count)}
    assert not (mini.root / "cache/work").exists() or not list((mini.root / "cache/work").iterdir())


def test_two_cycles_are_both_told(mini: Mini) -> None:
    mini.write({"f.py": FUNCTION, "BUILD.marin": DATA + ring(2, "a") + ring(3, "b")})
    ran = mini.run("build", "//...", code=2)
    for name in ("//:a0", "//:a1", "//:b0", "//:b1", "//:b2"):
        assert name in ran.err


# Row 26: decisions have a reason, and trouble names the operation, the digest and the target.


def blob(mini: Mini, label: str) -> Path:
    """The file of the store that holds a target's only output file."""
    for path in (mini.root / "cache/cas").glob("*/*"):
        if path.read_bytes() == (mini.root / f"cache/out/{label}/out.txt").read_bytes():
            return path
    raise AssertionError("the store has no such blob")


def two(mini: Mini) -> None:
    mini.write(
        {
            "f.py": FUNCTION
            + "\n\ndef g(ctx):\n    (ctx.output_path / 'b').write_bytes((ctx.inputs['x'] / 'out.txt').read_bytes())\n",
            "BUILD.marin": DATA
            + 'raw_download(name = "x", function = "f.py:f")\n'
            + 'py_action(name = "y", function = "f.py:g", inputs = {"x": ":x"})\n',
        }
    )


def spoil(path: Path) -> None:
    """Other bytes of the same length, and the modes of before."""
    path.chmod(0o644)
    path.write_bytes(b"?" * path.stat().st_size)
    path.chmod(0o444)


def test_a_flipped_bit_is_found_named_and_repaired(mini: Mini) -> None:
    two(mini)
    mini.ok("build", "//:x")
    path = blob(mini, "x")
    spoil(path)
    verified = mini.run("cache", "verify", code=4)
    assert path.name[:12] in verified.out
    assert "--repair" in verified.err
    used = mini.run("build", "//:y", code=4)
    assert path.name[:12] in used.err
    assert "marin cache verify" in used.err
    mini.ok("cache", "verify", "--repair")
    assert mini.counts("//:y")["executed"] == 2


def test_a_damaged_record_is_named_by_the_build(mini: Mini) -> None:
    two(mini)
    mini.ok("build", "//:x")
    [record] = mini.ok("cache", "ls", "--output", "json").json
    hexed = record["outputs"]["files"]["digest"].partition("-")[0]
    spoil(mini.root / f"cache/cas/{hexed[:2]}/{hexed}")
    ran = mini.run("build", "//:y", code=4)
    assert hexed[:12] in ran.err
    assert "cache verify" in ran.err


def test_a_lost_blob_is_a_reason_not_an_error(mini: Mini) -> None:
    two(mini)
    mini.ok("build", "//:x")
    blob(mini, "x").unlink()
    plan = {each["label"]: each["reason"] for each in mini.ok("build", "-n", "//:y", "--output", "json").json}
    assert plan["//:x"]["code"] == "miss_hollow"
    assert plan["//:y"]["code"] == "miss_new"
    report = mini.ok("build", "//:y", "--output", "json").json
    assert {each["label"]: each["reason"]["code"] for each in report["actions"]} == {
        "//:x": "miss_hollow",
        "//:y": "miss_new",
    }


def test_every_action_of_a_report_has_a_reason(mini: Mini) -> None:
    two(mini)
    for expected in ("miss_new", "hit_fingerprint"):
        report = mini.ok("build", "//:y", "--output", "json", "--events", "events").json
        assert expected in {each["reason"]["code"] for each in report["actions"]}
        assert all(each["reason"]["text"] for each in report["actions"])


# Rows 48 and 51: two builds at once, and one that is killed.

STEPS = """
import os
import time


def f(ctx):
    time.sleep(0.2)
    (ctx.output_path / "a").write_text(str(ctx.params))


def waits(ctx):
    (ctx.scratch / "partial").write_text("half")
    (ctx.output_path / "a").write_text("half")
    while not os.path.exists(ctx.params["go"]):
        time.sleep(0.05)
    (ctx.output_path / "a").write_text("whole")
"""


def test_two_builds_at_once_share_the_actions(mini: Mini) -> None:
    mini.write(
        {
            "f.py": STEPS,
            "BUILD.marin": DATA
            # Two names for each key, and a chain on top.
            + '[raw_download(name = n + str(i), function = "f.py:f", params = {"i": i})'
            + ' for i in range(4) for n in ["a", "b"]]\n'
            + "[py_action(name = 'c' + str(i), function = 'f.py:f', inputs = {'x': ':a' + str(i)}, params = {'c': i})"
            + " for i in range(4)]\n",
        }
    )
    builds = [mini.start("build", "-j", "2", "//...", "--events", f"events{i}", "--output", "json") for i in range(2)]
    outs = [process.communicate(timeout=120) for process in builds]
    assert [process.returncode for process in builds] == [0, 0], outs
    ran: list[str] = []
    for i in range(2):
        events = [json.loads(line) for line in (mini.root / f"events{i}").read_text().splitlines()]
        assert events[-1]["event"] == "build_finished"
        ran += [each["key"] for each in events if each["event"] == "action_finished" and each["source"] == "executed"]
    assert len(ran) == len(set(ran)) == 8
    assert sum(json.loads(out)["counts"]["executed"] for out, _ in outs) == 8
    assert mini.ok("cache", "verify").out == ""


def test_a_build_that_is_killed_leaves_nothing_to_clean_up(mini: Mini, tmp_path: Path) -> None:
    go = tmp_path / "go"
    mini.write(
        {
            "f.py": STEPS,
            "BUILD.marin": DATA
            + f'raw_download(name = "x", function = "f.py:waits", params = {{"go": "{go}"}})\n'
            + 'py_action(name = "y", function = "f.py:f", inputs = {"x": ":x"})\n',
        }
    )
    process = mini.start("build", "//...", "--events", "events")
    until(lambda: list((mini.root / "cache").glob("work/*/*/out/files/a")))
    log = next((mini.root / "cache").glob("work/*/*/log"))
    # Somebody who waits for it goes on at once, without being told to remove anything.
    waiter = mini.start("build", "//...", "--output", "json", "--progress", "plain")
    line = ""
    while not line.startswith("wait "):
        line = waiter.stderr.readline()  # type: ignore[union-attr]
        assert line
    assert "another build makes it" in line
    process.kill()
    process.communicate()
    until(lambda: not tools_at(log.parent))  # its tool ends with it
    go.write_text("")
    out, err = waiter.communicate(timeout=60)
    assert waiter.returncode == 0, err
    assert json.loads(out)["counts"]["executed"] == 2
    assert (mini.root / "cache/out/x/a").read_text() == "whole"
    # What was written of the killed one's events are whole lines.
    for event in (mini.root / "events").read_text().splitlines():
        json.loads(event)
    assert mini.ok("cache", "verify").out == ""
    for name in ("work", "scratch", "tmp"):
        assert not list((mini.root / "cache" / name).glob("*"))


def until(done: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def tools_at(folder: Path) -> list[str]:
    """The processes that work in that folder."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(folder)):
                found.append(pid)
        except OSError:
            pass
    return found


# Row 64: one changed nested float is named by why, by the plan, and its key is printed.


def test_a_changed_nested_float_is_named_everywhere(mini: Mini) -> None:
    declare(mini, '{"optimizer": {"name": "adam", "rates": [0.1, 0.001]}}')
    mini.ok("build", "//:x")
    declare(mini, '{"optimizer": {"name": "adam", "rates": [0.1, 0.002]}}')
    change = "params.optimizer.rates[1]: 0.001 -> 0.002"
    [record] = mini.ok("aquery", "//:x", "--output", "json").json
    why, dry = mini.ok("why", "//:x").out, mini.ok("build", "-n", "//:x").out
    assert change in why
    assert change in dry
    assert record["key"] in why
    assert record["key"][:12] in dry
    assert record["recipe"]["params"]["params"]["optimizer"]["rates"] == [0.1, 0.002]
    assert f"key          {record['key']}" in mini.ok("aquery", "//:x").out
    [planned] = mini.ok("build", "-n", "//:x", "--output", "json").json
    assert planned["reason"]["changes"] == [{"path": "params.optimizer.rates[1]", "before": "0.001", "after": "0.002"}]
