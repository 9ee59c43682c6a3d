"""The flags of `marin build` that look into a build: events on stdout, kept work folders, `--again` alone."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.cli.conftest import CHECKOUT, DATA, Mini


@pytest.fixture
def failing(words: Mini) -> Mini:
    """`//exp:bad` fails."""
    build = words.root / "exp/BUILD.marin"
    build.write_text(build.read_text() + 'raw_download(name = "bad", function = "exp/functions.py:fail")\n')
    return words


def test_events_on_stdout_are_alone_there(words: Mini) -> None:
    ran = words.ok("build", "//exp:joined", "--events", "-")
    events = [json.loads(line)["event"] for line in ran.out.splitlines()]
    assert (events[0], events[-1]) == ("build_started", "build_finished")
    assert "//exp:joined  cache/out/exp/joined\n" in ran.err
    ran = words.ok("build", "//exp:joined", "--trace", "-")
    assert "traceEvents" in json.loads(ran.out)
    for other in (["--trace", "-"], ["--output", "json"]):
        both = words.run("build", "//exp:joined", "--events", "-", *other, code=2)
        assert "can go to stdout" in both.err
        assert both.out == ""


def test_events_can_be_followed(mini: Mini, tmp_path: Path) -> None:
    go, events = tmp_path / "go", tmp_path / "events.jsonl"
    mini.write(
        {
            "f.py": "import os, time\n\ndef f(ctx):\n"
            "    ctx.progress(1, 2)\n"
            "    while not os.path.exists(ctx.params['go']):\n        time.sleep(0.05)\n"
            "    (ctx.output_path / 'a').write_text('a')\n",
            "BUILD.marin": DATA + f'raw_download(name = "x", function = "f.py:f", params = {{"go": "{go}"}})\n',
        }
    )
    process = mini.start("build", "//:x", "--events", str(events))
    try:
        end = time.monotonic() + 60
        names: list[str] = []
        while "progress" not in names and time.monotonic() < end:
            time.sleep(0.1)
            lines = events.read_text().splitlines() if events.exists() else []
            names = [json.loads(line)["event"] for line in lines]
        assert names == ["build_started", "target_analysed", "action_started", "log", "progress"]
    finally:
        go.write_text("")
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_kept_work_is_named(failing: Mini) -> None:
    quiet = failing.ok("build", "//exp:words", "--keep-work")
    assert "work folder" not in quiet.err
    ran = failing.ok("build", "//exp:joined", "--keep-work", "-v", "--events", "e.jsonl")
    work = ran.err.partition("its work folder: ")[2].splitlines()[0]
    assert (Path(work) / "in/words/one.txt").is_file()
    finished = [json.loads(line) for line in (failing.root / "e.jsonl").read_text().splitlines()][-2]
    assert finished["work"] == work
    ran = failing.run("build", "//exp:bad", "--keep-work", "-q", code=1)
    work = ran.err.partition("its work folder: `")[2].partition("`")[0]
    assert "about to fail" in (Path(work) / "log").read_text()
    assert "work folder" not in failing.run("build", "//exp:bad", code=1).err


@pytest.mark.parametrize("flags", [(), ("--keep-work",)])
def test_why_names_the_last_failure(failing: Mini, flags: tuple[str, ...]) -> None:
    assert "its last run" not in failing.ok("why", "//exp:bad").out
    failing.run("build", "//exp:bad", *flags, code=1)
    why = failing.ok("why", "//exp:bad").out
    assert "its last run failed" in why
    assert "`marin logs //exp:bad`" in why
    assert ("its work folder: " in why) == bool(flags)
    functions = failing.root / "exp/functions.py"
    text = functions.read_text()
    functions.write_text(text.replace('raise ValueError("no luck")', '(ctx.output_path / "a").write_text("a")'))
    failing.ok("build", "//exp:bad")
    assert "its last run" not in failing.ok("why", "//exp:bad").out


def test_again_alone_builds_its_labels(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    assert words.counts("--again", "//exp:words") == {
        "executed": 1, "local_hits": 0, "remote_hits": 0, "up_to_date": 0, "failed": 0, "skipped": 0
    }  # fmt: skip
    assert "asked for by --again" in words.ok("build", "-n", "--again", "//exp:words").out
    ran = words.run("build", code=2)
    assert ran.err.startswith("error: there is nothing to build: name a target, or `//...`")
    assert "marin build --help" in ran.err


def test_a_folder_as_completion_leaves_it(words: Mini) -> None:
    words.ok("build", "exp/")
    assert words.ok("path", "./exp/joined").out == f"{words.root}/cache/out/exp/joined\n"
    assert words.ok("build", "../exp/", cwd="exp").err.startswith("up to date: 2 served")
    assert "`exp/` names 2 targets, and one is wanted" in words.run("path", "exp/", code=2).err
    assert "`//exp:all` names all of its targets" in words.run("build", "exp", code=2).err


def test_another_version_of_the_program_is_no_no_op(words: Mini, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("marin_cas", "rules"):
        shutil.copytree(CHECKOUT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    here = {"PYTHONPATH": str(copy)}
    words.ok("build", "//exp:joined", env=here)
    assert "nothing changed" in words.ok("build", "//exp:joined", env=here).err
    module = copy / "marin_cas/analysis/actions.py"
    module.write_text(module.read_text() + "\n# Another line.\n")
    assert "nothing changed" not in words.ok("build", "//exp:joined", env=here).err
    assert "nothing changed" in words.ok("build", "//exp:joined", env=here).err
