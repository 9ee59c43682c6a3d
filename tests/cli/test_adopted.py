"""Data that lies elsewhere, at the command line: locked, built, kept when it moves, refused when it changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Mini

BUILD = """
load("@marin//rules:data.bzl", "adopted", "py_action", "raw_download")

adopted(name = "words", source = "%s/")

raw_download(name = "pinned", urls = ["https://no.such.host.invalid/a"], pin = "%s")

py_action(name = "joined", function = "exp/f.py:join", inputs = {"words": ":words"})
"""
FUNCTION = """
def join(ctx):
    text = "".join(path.read_text() for path in sorted(ctx.inputs["words"].rglob("*.txt")))
    (ctx.output_path / "all.txt").write_text(text)
"""


@pytest.fixture
def there(mini: Mini, tmp_path: Path) -> Path:
    """A folder with two files outside of the workspace, which two targets take in."""
    folder = tmp_path / "there"
    (folder / "deep").mkdir(parents=True)
    (folder / "one.txt").write_text("one\n")
    (folder / "deep/two.txt").write_text("two\n")
    mini.write({"exp/f.py": FUNCTION, "exp/BUILD.marin": BUILD % (folder, folder)})
    return folder


def test_what_lies_elsewhere_is_taken_in(mini: Mini, there: Path) -> None:
    refused = mini.run("build", "//exp:joined", code=2).err
    assert f"`file://{there}/` is not in marin.lock" in refused
    assert "not on a terminal" in refused, "nothing is asked where nobody sits in front of it"
    mini.ok("lock")
    [line] = [line for line in (mini.root / "marin.lock").read_text().splitlines() if "file://" in line]
    assert line.endswith(', 2 files, 8 bytes"'), "one entry for both"
    counts = mini.counts("//exp:joined", "//exp:pinned")
    assert counts["executed"] == 2, "both are the same data"
    assert mini.ok("cache", "cat", "//exp:pinned/deep/two.txt").out == "two\n"
    shutil.rmtree(there)
    assert mini.counts("//exp:joined", "//exp:pinned")["executed"] == 0, "nobody asks for it any more"


def test_it_may_move_and_may_not_change(mini: Mini, there: Path, tmp_path: Path) -> None:
    mini.ok("lock")
    mini.ok("build", "//exp:joined")
    moved = tmp_path / "moved"
    shutil.copytree(there, moved)
    mini.write({"exp/BUILD.marin": BUILD % (moved, moved)})
    mini.ok("lock")
    assert mini.counts("//exp:joined")["executed"] == 0, "the same data elsewhere"
    other = tmp_path / "other"
    shutil.copytree(there, other)
    mini.write({"exp/BUILD.marin": BUILD % (other, other)})
    (other / "one.txt").write_text("eins\n")
    mini.ok("lock")
    (other / "one.txt").write_text("ein\n")
    error = mini.run("build", "//exp:joined", code=1).err
    assert f"`file://{other}/` has changed" in error and f"marin lock --upgrade=file://{other}/" in error


@pytest.mark.parametrize("env", [{}, {"CI": "true"}])
def test_an_unresolved_target_is_not_resolved_by_a_build_in_ci(mini: Mini, there: Path, env: dict[str, str]) -> None:
    error = mini.run("build", "//exp:words", code=2, env=env).err
    assert ("`CI` is set" if env else "not on a terminal") in error
    assert not (mini.root / "marin.lock").exists()
    assert "`--locked`" in mini.run("build", "--locked", "//exp:words", code=2, env=env).err
