"""Globs and `.marinignore`: what matches, in which order, and what a wrong pattern is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marin_cas.errors import Location, RequestError
from marin_cas.lang.folders import Folders
from marin_cas.lang.glob import glob
from marin_cas.lang.ignore import path_pattern, read_ignore


def tree(root: Path, *paths: str) -> Folders:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")
    return Folders(root, set())


def found(folders: Folders, package: str, *include: str, exclude: tuple[str, ...] = (), allow_empty: bool = False):
    return glob(folders, package, list(include), list(exclude), allow_empty=allow_empty)


def test_wildcards(tmp_path):
    folders = tree(tmp_path, *(f"p/{path}" for path in ("a.txt", "b.md", ".h", "d/a.txt", "d/e/f/a.txt", "d/.x/a.txt")))
    assert found(folders, "p", "*") == [".h", "a.txt", "b.md"]
    assert found(folders, "p", "*.txt") == ["a.txt"]
    assert found(folders, "p", "**") == [".h", "a.txt", "b.md", "d/a.txt", "d/e/f/a.txt"]
    assert found(folders, "p", "**/a.txt") == ["a.txt", "d/a.txt", "d/e/f/a.txt"]
    assert found(folders, "p", "d/**/a.txt") == ["d/a.txt", "d/e/f/a.txt"]
    assert found(folders, "p", "d/*/f/*") == ["d/e/f/a.txt"]
    assert found(folders, "p", "**/f/**") == ["d/e/f/a.txt"]
    assert found(folders, "p", "d/.x/*", "*/.x/a*") == ["d/.x/a.txt"]
    assert found(folders, "p", "a.txt", "d/a.txt") == ["a.txt", "d/a.txt"]


def test_exclude_takes_away(tmp_path):
    folders = tree(tmp_path, "a.txt", "d/b.txt", "d/e/c.txt")
    assert found(folders, "", "**", exclude=("d/**",)) == ["a.txt"]
    assert found(folders, "", "**", exclude=("**/c.txt", "nothing")) == ["a.txt", "d/b.txt"]
    assert found(folders, "", "**", exclude=("d",)) == ["a.txt", "d/b.txt", "d/e/c.txt"]


def test_order_is_by_utf8_bytes(tmp_path):
    names = ["Z", "a", "é", "\uffee", "\U0001f600", "a-b", "a/b", "a.b"]
    folders = tree(tmp_path, *(f"d/{name}x" for name in names))
    assert found(folders, "d", "**") == sorted((f"{name}x" for name in names), key=str.encode)


def test_each_pattern_must_match(tmp_path):
    folders = tree(tmp_path, "p/data/a.jsonl", "p/sub/BUILD.marin", "p/sub/x.txt")
    with pytest.raises(RequestError, match=r"the glob pattern `data/\*.json` matches nothing"):
        found(folders, "p", "data/*.jsonl", "data/*.json")
    assert found(folders, "p", "data/*.jsonl", "data/*.json", allow_empty=True) == ["data/a.jsonl"]
    with pytest.raises(RequestError) as caught:
        found(folders, "p", "date/*")
    assert caught.value.message.endswith("there is no folder `p/date`") and caught.value.hint == "did you mean `data`?"
    with pytest.raises(RequestError) as caught:
        found(folders, "p", "data/b.jsonl")
    assert caught.value.hint == "did you mean `a.jsonl`?"
    with pytest.raises(RequestError, match="`exclude` takes away all"):
        found(folders, "p", "data/*", exclude=("**",))


def test_a_walk_stops_at_packages(tmp_path):
    folders = tree(tmp_path, "p/BUILD.marin", "p/a.txt", "p/sub/BUILD.marin", "p/sub/b.txt", "p/sub/deep/c.txt")
    assert found(folders, "p", "**/*.txt") == ["a.txt"]
    assert found(folders, "p/sub", "**/*.txt") == ["b.txt", "deep/c.txt"]
    with pytest.raises(RequestError) as caught:
        found(folders, "p", "sub/b.txt")
    assert "`p/sub` is a package of its own" in caught.value.message and "//p/sub:" in str(caught.value.hint)


@pytest.mark.parametrize("pattern", ["", "/a", "a/../b", "./a", "a//b", "a**", "a?", "a/"])
def test_patterns_that_are_none(tmp_path, pattern):
    with pytest.raises(RequestError, match="is not a glob pattern"):
        found(tree(tmp_path, "a"), "", pattern)
    with pytest.raises(RequestError, match="is not a glob pattern"):
        found(tree(tmp_path, "a"), "", "a", exclude=(pattern,))


def test_characters_of_regular_expressions_are_literal(tmp_path):
    folders = tree(tmp_path, "a[1].t+t", "a1.ttt", "a\nb.t+t")
    assert found(folders, "", "a[1].*") == ["a[1].t+t"]
    assert found(folders, "", "*.t+t") == ["a\nb.t+t", "a[1].t+t"]


def test_links_to_folders_are_entered_only_by_name(tmp_path):
    folders = tree(tmp_path, "p/a.txt", "store/b.txt")
    (tmp_path / "p/data").symlink_to(tmp_path / "store")
    (tmp_path / "p/loop").symlink_to(tmp_path / "p")
    (tmp_path / "p/gone.txt").symlink_to("nowhere")
    watched: set[Path] = set()
    folders = Folders(tmp_path, watched)
    assert found(folders, "p", "**") == ["a.txt", "gone.txt"]
    assert found(folders, "p", "data/*.txt") == ["data/b.txt"]
    assert {tmp_path / "p/data", tmp_path / "store"} <= watched


def test_a_name_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / os.fsdecode(b"bad\xff.txt")).write_text("")
    with pytest.raises(RequestError, match=r"bad\\xff.txt.*not UTF-8"):
        found(Folders(tmp_path, set()), "", "*.txt")


_SEGMENTS = st.sampled_from(["a", "b", "ab", "*", "a*", "*b", "**"])


@given(
    st.sets(st.lists(st.sampled_from(["a", "b", "ab", "ba"]), min_size=1, max_size=4).map("/".join), max_size=12),
    st.lists(_SEGMENTS, min_size=1, max_size=4).map("/".join),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_walking_agrees_with_matching_whole_paths(tmp_path_factory, paths, pattern):
    files = {path for path in paths if not any(other.startswith(path + "/") for other in paths)}
    folders = tree(tmp_path_factory.mktemp("glob"), *files)
    expected = sorted(path for path in files if path_pattern(pattern).fullmatch(path))
    assert found(folders, "", pattern, allow_empty=True) == expected


def test_marinignore(tmp_path):
    (tmp_path / ".marinignore").write_text("# comment\n\n*.tmp\nbuild/\n/top.txt\nexp/**/raw/*.bin\nnotes\n")
    folders = tree(
        tmp_path,
        *("a.txt", "b.tmp", "top.txt", "exp/top.txt", "exp/x.tmp", "build/c", "exp/build/c", "exp/notes/deep/n"),
        *("exp/raw/d.bin", "exp/raw/d.txt", "exp/q/raw/d.bin", "x/build", "cache/blob", "x/cache/kept"),
    )
    assert found(folders, "", "**") == sorted(
        [".marinignore", "a.txt", "exp/raw/d.txt", "exp/top.txt", "x/build", "x/cache/kept"]
    )
    with pytest.raises(RequestError, match="matches nothing"):
        found(folders, "exp", "notes/**")
    ignore = read_ignore(tmp_path)
    assert ignore.covers("exp/notes/deep") and not ignore.covers("exp/q")


def test_marinignore_has_no_negation(tmp_path):
    (tmp_path / ".marinignore").write_text("a\n!a/b\n")
    with pytest.raises(RequestError) as caught:
        Folders(tmp_path, set())
    assert caught.value.where == Location(".marinignore", 2)
