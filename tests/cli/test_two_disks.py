"""A workspace on one file system and its cache on another, where no hard link leads from one to the other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, FUNCTIONS, Mini
from tests.cli.inside import run_inside

BUILD = """
raw_download(name = "words", function = "exp/f.py:words", params = {"words": ["one", "two"]})
filegroup(name = "notes", srcs = ["note.txt"])
py_action(name = "joined", function = "exp/f.py:join", inputs = {"words": ":words", "notes": ":notes"})
"""


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize("cache_in_memory", [True, False], ids=["cache-in-memory", "workspace-in-memory"])
def test_everything_works(tmp_path: Path, memory: Path, cache_in_memory: bool) -> None:
    root, cache = (tmp_path / "w", memory / "c") if cache_in_memory else (memory / "w", tmp_path / "c")
    assert tmp_path.stat().st_dev != memory.stat().st_dev
    (tmp_path / "home").mkdir()
    root.mkdir()
    mini = Mini(root, tmp_path / "home")
    mini.write(
        {
            "marin.toml": f'cache = "{cache}"\n',
            "exp/f.py": FUNCTIONS,
            "exp/note.txt": "note\n",
            "exp/BUILD.marin": DATA + BUILD,
        }
    )
    run_inside(mini, "build", "//exp:joined")
    place = Path(run_inside(mini, "path", "//exp:joined").out.strip())
    assert place.is_relative_to(cache)
    assert (place / "all.txt").read_text() == "note\none\ntwo\n"
    run_inside(mini, "cache", "get", "//exp:joined", "mine")
    (root / "mine/all.txt").write_text("changed")
    (root / "exp/note.txt").write_text("other\n")
    assert run_inside(mini, "build", "//exp:joined", "--output", "json").json["counts"]["executed"] == 1
    assert (place / "all.txt").read_text() == "other\none\ntwo\n"
    run_inside(mini, "cache", "verify")


def test_a_folder_of_other_things_is_not_filled(mini: Mini) -> None:
    (mini.root / "data").mkdir()
    (mini.root / "data/corpus.txt").write_text("theirs")
    mini.write({"marin.toml": 'cache = "data"\n', "BUILD.marin": ""})
    ran = run_inside(mini, "cache", "ls", code=2)
    assert "data` is no cache, and it is not empty: it holds `corpus.txt`" in ran.err
    assert "name another folder with `cache = ...`" in ran.err
    assert os.listdir(mini.root / "data") == ["corpus.txt"]


def test_a_cache_of_a_newer_program_is_refused(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    (words.root / "cache/format").write_text("marin-cas cache 999\n")
    (words.root / "exp/functions.py").touch()
    before = sorted(str(path) for path in (words.root / "cache").rglob("*"))
    ran = run_inside(words, "build", "//exp:joined", code=3)
    assert "was made by a newer marin-cas (format 999); this one knows 1" in ran.err
    assert sorted(str(path) for path in (words.root / "cache").rglob("*")) == before
