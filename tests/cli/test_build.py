"""Builds of mini workspaces: what runs, what is served, what is told, and what is left behind."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, Mini

SLOW = '''
import os, time


def slow(ctx):
    """Waits for a file `go` beside the workspace, for 30 seconds at most."""
    for _ in range(300):
        if os.path.exists(ctx.params["go"]):
            break
        time.sleep(0.1)
    (ctx.output_path / "out.txt").write_text("done\\n")
'''


def executed(mini: Mini, *args: str) -> int:
    return mini.counts(*args)["executed"]


def test_build_then_nothing_to_do(words: Mini) -> None:
    first = words.ok("build", "//exp:joined")
    assert first.out == "//exp:joined  cache/out/exp/joined\n"
    assert "start   //exp:words" in first.err
    assert "done    //exp:joined" in first.err
    assert "done: 2 executed" in first.err
    assert (words.root / "cache/out/exp/joined/all.txt").read_text() == "one\ntwo\n"
    again = words.ok("build", "//exp:joined")
    assert again.out == first.out
    assert again.err.startswith("up to date: ")
    assert "2 served" in again.err
    assert executed(words, "//...") == 0


def test_the_no_op_does_not_import_what_it_does_not_need(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    code = (
        "import sys\nfrom marin_cas.cli.main import main\nassert main(['build', '//exp:joined']) == 0\n"
        "bad = 'click rich sqlite3 starlark blake3 jax levanter pyarrow datasets gcsfs s3fs fsspec grpc'.split()\n"
        "print([m for m in bad if m in sys.modules])\n"
    )
    import subprocess
    import sys

    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=words.root, env=words.environ(), capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "[]"
    assert "nothing changed" in ran.stderr


def test_from_a_folder_below_the_root(words: Mini) -> None:
    ran = words.ok("build", ":joined", cwd="exp")
    assert ran.out == f"//exp:joined  {words.root}/cache/out/exp/joined\n"
    assert words.ok("build", "joined", cwd="exp").err.startswith("up to date")


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ('load("@marin', '# a comment\n\nload("@marin', 0),
        ('function = "exp/functions.py:words",', 'function = "exp/functions.py:words", tags = ["a"],', 0),
        ('"one", "two"', '"one",\n  "two"', 0),
        ('"one", "two"', '"one", "three"', 2),
    ],
)
def test_edits_of_the_build_file(words: Mini, before: str, after: str, runs: int) -> None:
    words.ok("build", "//exp:joined")
    build_file = words.root / "exp/BUILD.marin"
    build_file.write_text(build_file.read_text().replace(before, after))
    assert executed(words, "//exp:joined") == runs


def test_edits_of_the_function(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    functions = words.root / "exp/functions.py"
    functions.write_text("# a comment\n\n" + functions.read_text().replace("def fail", "# another\ndef fail"))
    assert executed(words, "//exp:joined") == 0
    functions.write_text(functions.read_text().replace('word + "\\n"', 'word.upper() + "\\n"'))
    assert executed(words, "//exp:joined") == 2


def test_an_input_rebuilt_to_equal_bytes_stops_there(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    build_file = words.root / "exp/BUILD.marin"
    build_file.write_text(build_file.read_text().replace('"one", "two"', '"two", "one", "one"'))
    assert executed(words, "//exp:joined") == 1


def test_a_lost_link_is_made_again(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    (words.root / "cache/out/exp/joined").unlink()
    assert executed(words, "//exp:joined") == 0
    assert (words.root / "cache/out/exp/joined/all.txt").is_file()


def test_dry_run_runs_nothing(words: Mini) -> None:
    ran = words.ok("build", "-n", "//...")
    lines = ran.out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["miss", "//exp:words", "raw_download"],
        ["miss", "//exp:joined", "py_action"],
    ]
    assert "never built" in lines[0]
    assert lines[1].split()[3].startswith("~")
    assert "would run 2 actions" in ran.err
    assert not (words.root / "cache/out").exists()
    words.ok("build", "//...")
    plan = words.ok("build", "-n", "//...", "--output", "json").json
    assert [(each["status"], each["action"], each["reason"]["code"]) for each in plan] == [
        ("hit", "//exp:words", "hit_fingerprint"),
        ("hit", "//exp:joined", "hit_fingerprint"),
    ]
    assert all(len(each["key"]) == 64 for each in plan)


def test_a_failure_names_the_place_and_the_log(words: Mini) -> None:
    words.write(
        {
            "exp/BUILD.marin": (words.root / "exp/BUILD.marin").read_text()
            + 'py_action(name = "bad", function = "exp/functions.py:fail", inputs = {"words": ":words"})\n'
            + 'py_action(name = "above", function = "exp/functions.py:join", inputs = {"bad": ":bad"})\n'
        }
    )
    ran = words.run("build", "//exp:above", code=1)
    assert ran.out == ""
    assert "FAILED  //exp:bad" in ran.err
    assert "`//exp:bad` failed: ValueError: no luck" in ran.err
    assert "error: exp/functions.py:" in ran.err
    assert "declared at exp/BUILD.marin:" in ran.err
    assert "    about to fail\n" in ran.err
    assert "`marin logs //exp:bad`" in ran.err
    assert "1 failed, 1 skipped" in ran.err
    log = words.start("logs", "//exp:bad").communicate()[0]
    assert log.startswith("about to fail\n")
    assert "ValueError: no luck" in log
    assert "marin build //exp:bad" in words.run("path", "//exp:bad", code=1).err
    assert "would run" in words.ok("why", "//exp:bad").out


def test_keep_going_builds_what_does_not_need_the_failure(words: Mini) -> None:
    words.write(
        {
            "exp/BUILD.marin": (words.root / "exp/BUILD.marin").read_text()
            + 'raw_download(name = "a_bad", function = "exp/functions.py:fail")\n'
            + 'py_action(name = "above", function = "exp/functions.py:join", inputs = {"bad": ":a_bad"})\n'
        }
    )
    report = words.run("build", "-k", "//...", "--output", "json", code=1).json
    assert {name: report["counts"][name] for name in ("executed", "failed", "skipped")} == {
        "executed": 2,
        "failed": 1,
        "skipped": 1,
    }
    assert report["exit_code"] == 1


def test_the_same_key_wanted_twice_runs_once(mini: Mini) -> None:
    mini.write(
        {
            "f.py": "def f(ctx):\n    (ctx.output_path / 'a').write_text('a')\n",
            "BUILD.marin": DATA
            + 'raw_download(name = "x", function = "f.py:f")\nraw_download(name = "y", function = "f.py:f")\n',
        }
    )
    assert executed(mini, "//...") == 1
    assert (mini.root / "cache/out/x/a").is_file()
    assert (mini.root / "cache/out/y/a").is_file()


def slow(mini: Mini, tmp_path: Path) -> Path:
    go = tmp_path / "go"
    mini.write(
        {
            "f.py": SLOW,
            "BUILD.marin": DATA + f'raw_download(name = "x", function = "f.py:slow", params = {{"go": "{go}"}})\n',
        }
    )
    return go


def wait_for(done, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def test_ctrl_c_ends_politely_and_the_next_build_goes_on(mini: Mini, tmp_path: Path) -> None:
    go = slow(mini, tmp_path)
    process = mini.start("build", "//:x")
    wait_for(lambda: list((mini.root / "cache").glob("work/*/*/out")))
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 8, err
    assert "Traceback" not in err
    assert not list((mini.root / "cache/work").glob("*/*"))
    go.write_text("")
    assert executed(mini, "//:x") == 1


def test_a_killed_build_leaves_nothing_to_clean_up(mini: Mini, tmp_path: Path) -> None:
    go = slow(mini, tmp_path)
    process = mini.start("build", "//:x")
    wait_for(lambda: list((mini.root / "cache").glob("work/*/*/out")))
    time.sleep(0.5)
    process.kill()
    process.communicate()
    go.write_text("")
    assert executed(mini, "//:x") == 1
    assert mini.ok("cache", "verify").out == ""


def test_two_builds_at_once_run_an_action_once(mini: Mini, tmp_path: Path) -> None:
    go = slow(mini, tmp_path)
    first = mini.start("build", "//:x", "--output", "json")
    wait_for(lambda: list((mini.root / "cache").glob("work/*/*/out")))
    second = mini.start("build", "//:x", "--output", "json", "--progress", "plain")
    time.sleep(2)
    go.write_text("")
    reports = [json.loads(process.communicate(timeout=60)[0]) for process in (first, second)]
    assert sorted(report["counts"]["executed"] for report in reports) == [0, 1]


def test_events_are_json_lines_in_order(words: Mini) -> None:
    words.ok("build", "//exp:joined", "--events", "events.jsonl", "--trace", "trace.json")
    events = [json.loads(line) for line in (words.root / "events.jsonl").read_text().splitlines()]
    names = [event["event"] for event in events]
    assert names[0] == "build_started"
    assert names[-1] == "build_finished"
    assert names.count("action_started") == 2
    finished = [event for event in events if event["event"] == "action_finished"]
    assert [(event["label"], event["status"], event["source"]) for event in finished] == [
        ("//exp:words", "succeeded", "executed"),
        ("//exp:joined", "succeeded", "executed"),
    ]
    assert all(len(event["key"]) == 64 for event in finished)
    assert events[-1]["counts"]["executed"] == 2
    assert events[-1]["exit_code"] == 0
    assert all(a["time"] <= b["time"] for a, b in itertools.pairwise(events))
    spans = json.loads((words.root / "trace.json").read_text())["traceEvents"]
    assert [span["name"] for span in spans] == ["//exp:words", "//exp:joined", "build"]


def test_an_events_file_that_cannot_be_written_is_refused_first(words: Mini) -> None:
    ran = words.run("build", "//...", "--events", "no/such/folder/x", code=2)
    assert "cannot write `no/such/folder/x`" in ran.err
    assert "start" not in ran.err


UNSTABLE = "import os\n\ndef f(ctx):\n    (ctx.output_path / 'a').write_bytes(os.urandom(8))\n"
COPY = "def g(ctx):\n    (ctx.output_path / 'b').write_bytes((ctx.inputs['x'] / 'a').read_bytes())\n"


@pytest.fixture
def unstable(mini: Mini) -> Mini:
    """`//:x` gives other bytes each time it runs; `//:y` copies them."""
    mini.write(
        {
            "f.py": UNSTABLE + "\n\n" + COPY,
            "BUILD.marin": DATA
            + 'raw_download(name = "x", function = "f.py:f")\n'
            + 'py_action(name = "y", function = "f.py:g", inputs = {"x": ":x"})\n'
            + 'py_action(name = "z", function = "f.py:g", inputs = {"x": ":x"}, params = {"other": 1})\n',
        }
    )
    return mini


def drop(mini: Mini, label: str) -> None:
    """Removes the bytes of a target's files from the store."""
    for record in mini.ok("cache", "ls", "--output", "json").json:
        if record["label"] == label:
            for output in record["outputs"].values():
                hexed = output["digest"].partition("-")[0]
                (mini.root / f"cache/cas/{hexed[:2]}/{hexed}").unlink()


def test_check_finds_what_does_not_reproduce(unstable: Mini) -> None:
    unstable.ok("build", "//:x")
    ran = unstable.run("build", "//:x", "--check", code=1)
    assert "`//:x` does not reproduce" in ran.err
    assert "differs: `out/files/a`" in ran.err
    assert unstable.ok("build", "//:x").err.startswith("up to date")


def test_check_is_content_with_what_reproduces(words: Mini) -> None:
    words.ok("build", "//exp:words")
    report = words.ok("build", "//exp:words", "--check", "--output", "json").json
    assert report["checked"] == {"//exp:words": []}


def test_again_takes_the_new_bytes(unstable: Mini) -> None:
    unstable.ok("build", "//:y")
    before = (unstable.root / "cache/out/y/b").read_bytes()
    assert executed(unstable, "//:y", "--again", "//:x") == 2
    assert (unstable.root / "cache/out/y/b").read_bytes() != before
    assert executed(unstable, "//:y") == 0
    assert "nothing requested needs it" in unstable.run("build", "//:x", "--again", "//:y", code=2).err


def test_a_hollow_result_that_comes_out_otherwise_stops_and_names_the_consumers(unstable: Mini) -> None:
    unstable.ok("build", "//:y")
    drop(unstable, "//:x")
    assert executed(unstable, "//:y") == 0  # nobody needs the bytes
    ran = unstable.run("build", "//:z", code=1)
    assert "`//:x` was built before and its bytes are gone; built again, it gave other bytes" in ran.err
    assert "`//:y`" in ran.err
    assert "--accept-new" in ran.err
    assert executed(unstable, "//:y") == 0
    assert "hollow" in unstable.ok("cache", "ls").out
    assert executed(unstable, "//:y", "//:z", "--accept-new") == 3
    assert (unstable.root / "cache/out/y/b").read_bytes() == (unstable.root / "cache/out/z/b").read_bytes()


def test_a_hollow_result_is_made_again_for_whoever_needs_it(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    drop(words, "//exp:words")
    assert executed(words, "//exp:joined") == 0
    plan = words.ok("build", "-n", "//exp:words", "--output", "json").json
    assert [each["reason"]["code"] for each in plan] == ["miss_hollow"]
    assert executed(words, "//exp:words") == 1
    assert executed(words, "//exp:joined") == 0


def test_accept_new_and_keep_old_exclude_each_other(words: Mini) -> None:
    assert "exclude each other" in words.run("build", "//...", "--accept-new", "--keep-old", code=2).err


def test_locked_wants_the_environment_of_the_lock(words: Mini) -> None:
    assert "there is no marin.lock" in words.run("build", "//...", "--locked", code=2).err
    words.write({"marin.lock": 'format = 1\n\n[toolchain]\npython = "3.0.0"\n'})
    ran = words.run("build", "//...", "--locked", code=3)
    assert "`python`: locked 3.0.0, here 3." in ran.err
    words.write({"marin.lock": "format = 1\n\n[toolchain]\n"})
    words.ok("build", "//...", "--locked")


def test_lock_is_written_from_what_is_installed(words: Mini) -> None:
    ran = words.ok("lock")
    assert "wrote marin.lock" in ran.err
    assert "[toolchain]" in (words.root / "marin.lock").read_text()
    assert "up to date" in words.ok("lock").err
    assert executed(words, "//...") == 2


def test_keep_work_leaves_the_folder(words: Mini) -> None:
    words.ok("build", "//exp:words")
    assert not list((words.root / "cache/work").glob("*/*"))
    words.ok("build", "//exp:joined", "--keep-work")
    [kept] = (words.root / "cache/work").glob("*/*")
    assert (kept / "in/words/one.txt").is_file()


def test_quiet_and_json_and_progress(words: Mini) -> None:
    ran = words.ok("build", "//exp:words", "-q")
    assert (ran.out, ran.err) == ("", "")
    ran = words.ok("build", "//exp:joined", "--progress", "none")
    assert ran.err.startswith("done: 1 executed, 1 served")
    report = words.ok("build", "//exp:joined", "--output", "json", "-q").json
    assert report["counts"]["up_to_date"] == 2
    assert Path(report["targets"]["//exp:joined"]["outputs"]["files"]).is_dir()


def test_negative_patterns_and_defines(words: Mini) -> None:
    assert executed(words, "//...", "-//exp:joined") == 1
    assert "NAME=VALUE" in words.run("build", "//...", "--define", "x", code=2).err


def test_jobs_must_be_a_number(words: Mini) -> None:
    assert "`--jobs` must be a whole number" in words.run("build", "//...", "-j", "0", code=2).err


def test_secrets_reach_the_tool_and_no_file(mini: Mini) -> None:
    canary = "canary-7c1f33e2-secret"
    mini.write(
        {
            "f.py": "import os\n\ndef f(ctx):\n    print(os.environ['MY_TOKEN'])\n"
            "    (ctx.output_path / 'n').write_text(str(len(os.environ['MY_TOKEN'])))\n",
            "BUILD.marin": DATA + 'raw_download(name = "x", function = "f.py:f", secrets = ["MY_TOKEN"])\n',
        }
    )
    assert "`MY_TOKEN`" in mini.run("build", "//:x", code=3).err
    ran = mini.ok("build", "//:x", "-v", "--events", "events.jsonl", env={"MY_TOKEN": canary})
    assert (mini.root / "cache/out/x/n").read_text() == str(len(canary))
    assert canary not in ran.out + ran.err
    shown = mini.ok("logs", "//:x").out + mini.ok("aquery", "//:x").out + mini.ok("why", "//:x").out
    assert canary not in shown
    assert "MY_TOKEN" in shown
    for folder, _, names in os.walk(mini.root):
        for name in names:
            assert canary.encode() not in (Path(folder) / name).read_bytes(), f"{folder}/{name}"


def test_a_file_that_changes_meanwhile_is_not_published(mini: Mini, tmp_path: Path) -> None:
    go = tmp_path / "go"
    mini.write(
        {
            "data.txt": "before\n",
            "f.py": SLOW,
            "BUILD.marin": DATA
            + 'py_action(name = "x", function = "f.py:slow", inputs = {"d": "data.txt"}, '
            + f'params = {{"go": "{go}"}})\n',
        }
    )
    process = mini.start("build", "//:x")
    wait_for(lambda: list((mini.root / "cache").glob("work/*/*/out")))
    mini.write({"data.txt": "after!\n"})
    go.write_text("")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "`data.txt` changed while `//:x` ran, so its result was not published" in err
    assert mini.ok("cache", "ls").out == ""


def test_clean_removes_links_and_executes_nothing_after(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    shown = words.ok("clean", "-n")
    assert str(words.root / "cache/out") in shown.out
    assert (words.root / "cache/out").exists()
    words.ok("clean")
    assert not (words.root / "cache/out").exists()
    assert executed(words, "//exp:joined") == 0
    assert (words.root / "cache/out/exp/joined/all.txt").is_file()
