"""The program itself: what it answers without a workspace, wrong commands, exit codes, speed of the bare minimum."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CHECKOUT, Mini

HEAVY = ("click", "rich", "jax", "levanter", "pyarrow", "fsspec", "grpc", "starlark", "sqlite3", "datasets")


def test_version_needs_nothing(mini: Mini) -> None:
    code = (
        "import sys; from marin_cas.cli.main import main; assert main(['--version']) == 0; "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("marin ")
    assert ran.stdout.endswith("[]\n")
    assert mini.ok("version").out == mini.ok("--version").out


def test_an_unknown_command_is_refused_with_the_closest(mini: Mini) -> None:
    ran = mini.run("biuld", code=2)
    assert ran.err == "error: there is no command `marin biuld`\n  hint: did you mean `build`?\n"
    assert "did you mean `ls`?" in mini.run("cache", "lss", code=2).err


def test_an_unknown_option_is_refused_with_the_closest(mini: Mini) -> None:
    ran = mini.run("build", "--dry-rnu", "//x", code=2)
    assert ran.err == "error: `marin build` has no option `--dry-rnu`\n  hint: did you mean `--dry-run`?\n"


def test_no_command_shows_the_commands(mini: Mini) -> None:
    ran = mini.run(code=2)
    assert "Commands:" in ran.err
    assert ran.out == ""
    helped = mini.ok("--help")
    assert "build" in helped.out
    assert "aquery" in helped.out


def test_outside_a_workspace(mini: Mini) -> None:
    (mini.root / "marin.toml").unlink()
    for command in (["build", "//..."], ["info"], ["query", "//..."], ["cache", "ls"]):
        ran = mini.run(*command, code=2)
        assert "is not inside a workspace" in ran.err
        assert "hint: put an empty `marin.toml`" in ran.err


def test_a_wrong_configuration_is_told_by_every_command(mini: Mini) -> None:
    mini.write({"marin.toml": "\njosb = 1\n"})
    for command in (["build", "//..."], ["info"], ["why", "//x"], ["cache", "stat"]):
        ran = mini.run(*command, code=2)
        assert ran.err == "error: marin.toml:2: unknown key `josb`\n  hint: did you mean `jobs`?\n"


def test_a_bug_of_ours_is_one_line_and_a_file(mini: Mini) -> None:
    (mini.root / "cache").mkdir()
    code = (
        "import sys\n"
        "from marin_cas.cli import main, root\n"
        "def broken(args): raise ZeroDivisionError('secret of\\nthe trade')\n"
        "root.run = broken\n"
        "sys.exit(main.main(['info']))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=mini.root, env=mini.environ(), capture_output=True, text=True
    )
    assert ran.returncode == 70
    assert "error: a bug of marin-cas: ZeroDivisionError: secret of\n" in ran.stderr
    assert "Traceback" not in ran.stderr
    [report] = (mini.root / "cache").glob("bug-*.txt")
    assert str(report) in ran.stderr
    text = report.read_text()
    assert text.startswith("marin info\n")
    assert "Traceback" in text


def test_a_reader_that_goes_away_is_no_error(mini: Mini) -> None:
    process = mini.start("info")
    assert process.stdout
    process.stdout.close()
    assert process.stderr
    assert process.stderr.read() == ""
    assert process.wait(60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_behind_stdout(words: Mini) -> None:
    for command in (["query", "//..."], ["info"], ["build", "//exp:words"]):
        with open("/dev/full", "w") as full:
            ran = subprocess.run(
                words.command(*command), cwd=words.root, env=words.environ(), stdout=full, stderr=-1, text=True
            )
        assert ran.returncode == 3
        assert ran.stderr.endswith("error: stdout cannot be written: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&- >&-", ">&- 2>&-", "2>&-"])
def test_closed_standard_streams(words: Mini, closed: str) -> None:
    """What the program opens must not take their place."""
    command = shlex.join(words.command("build", "//exp:words", "--events", "e.jsonl"))
    ran = subprocess.run(
        ["bash", "-c", f"{command} {closed}"], cwd=words.root, env=words.environ(), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ("//exp:words  cache/out/exp/words\n" if closed == "2>&-" else "")
    lines = (words.root / "e.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["event"] == "build_finished"
    assert not list((words.root / "cache").glob("bug-*"))


def test_info_says_where_each_value_came_from(mini: Mini) -> None:
    mini.write({"marin.toml": "jobs = 3\n", "exp/x": ""})
    facts = mini.run("info", "--output", "json", cwd="exp", code=0, env={"MARIN_RAM": "2GiB"}).json
    assert facts["config"]["jobs"] == {"value": 3, "from": "marin.toml:1"}
    assert facts["config"]["ram"] == {"value": 2 << 30, "from": "MARIN_RAM"}
    assert facts["workspace"]["package"] == "exp"
    text = mini.ok("info").out
    assert "marin.toml:1" in text
    config = mini.ok("info", "--output", "json").json["config"]
    assert config["compilation_cache"] == {"value": f"{mini.root}/cache/jax", "from": "default"}
    assert config["ram"]["value"] > 1 << 20
    mini.write({"marin.toml": ""})
    assert mini.ok("info", "--output", "json").json["config"]["jobs"]["value"] >= 1
    assert "marin.lock: there is none" in text


def test_info_shows_drift_from_the_lock(mini: Mini) -> None:
    mini.write({"marin.lock": 'format = 1\n\n[toolchain]\nclick = "0.0.1"\n"no-such-thing" = "1"\n'})
    text = mini.ok("info").out
    assert "marin.lock: 2 versions differ here" in text
    assert "not installed here" in text
    mini.write({"marin.lock": 'format = 1\n\n[toolchain]\nclick = "0.0.1"\n'})
    assert "marin.lock: 1 version differs here" in mini.ok("info").out


def test_help(mini: Mini) -> None:
    assert "pass_env" in mini.ok("help", "configuration").out
    assert "//exp/..." in mini.ok("help", "patterns").out
    assert "70  a bug" in mini.ok("help", "exit-codes").out
    assert mini.ok("help", "build").out == mini.ok("build", "--help").out
    assert "Topics of" in mini.ok("help").out
    assert "did you mean `build`?" in mini.run("help", "biuld", code=2).err
    assert mini.ok("help", "cache", "ls").out == mini.ok("cache", "ls", "--help").out
    assert "did you mean `ls`?" in mini.run("help", "cache", "lss", code=2).err
    assert "`marin build --help`" in mini.run("help", "build", "ls", code=2).err


def test_wrong_values_of_options(mini: Mini) -> None:
    ran = mini.run("build", "-j", code=2)
    assert ran.err == "error: option `-j` requires an argument\n  hint: `marin build --help` shows how it is called\n"
    ran = mini.run("build", "//x", "--output", "yaml", code=2)
    assert ran.err.startswith("error: invalid value for `-o` / `--output`: `yaml` is not one of `text`, `json`\n")
