"""`marin cache get` and `marin cache cat`: bytes out of the store, by whatever name people have for them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from marin_cas.digest import Digest
from tests.cli.conftest import DATA, Mini
from tests.cli.inside import run_inside

FUNCTIONS = """
def words(ctx):
    (ctx.output_path / "deep").mkdir()
    (ctx.output_path / "one.txt").write_text("one\\n")
    (ctx.output_path / "deep/run").write_text("#!/bin/sh\\n")
    (ctx.output_path / "deep/run").chmod(0o755)
    (ctx.output_path / "link").symlink_to("one.txt")


def big(ctx):
    with open(ctx.output_path / "big", "wb") as file:
        file.write(b"x")
        file.truncate(70 << 20)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Mini:
    base = tmp_path_factory.mktemp("get")
    for name in ("w", "home"):
        (base / name).mkdir()
    mini = Mini(base / "w", base / "home")
    mini.write(
        {
            "marin.toml": "",
            "exp/f.py": FUNCTIONS,
            "exp/note.txt": "a source",
            "exp/BUILD.marin": DATA
            + """
raw_download(name = "words", function = "exp/f.py:words", version = "2026.01.31")
raw_download(name = "a/big", function = "exp/f.py:big")
raw_download(name = "other", function = "exp/f.py:words", params = {"n": 1})
filegroup(name = "group", srcs = ["note.txt"])
""",
        }
    )
    mini.ok("build", "//exp:words", "//exp:a/big")
    return mini


def key(mini: Mini, label: str = "//exp:words") -> str:
    [found] = [each for each in run_inside(mini, "cache", "ls", "--output", "json").json if each["label"] == label]
    return found["key"]


def digest(mini: Mini) -> str:
    [found] = [
        each for each in run_inside(mini, "cache", "ls", "--output", "json").json if each["label"] == "//exp:words"
    ]
    return found["outputs"]["files"]["digest"]


def test_every_name_of_it_works(built: Mini, tmp_path: Path) -> None:
    key_, digest_ = key(built), digest(built)
    names = ["//exp:words", "//exp:words%files", "exp/words@2026.01.31", key_, key_[:10], digest_, digest_[:10]]
    for n, name in enumerate(names):
        ran = run_inside(built, "cache", "get", name, f"{tmp_path}/{n}")
        assert ran.out == "" and f"copied `{name.removesuffix('%files')}` to `{tmp_path}/{n}`" in ran.err
        assert (tmp_path / f"{n}/one.txt").read_text() == "one\n"
        assert os.readlink(tmp_path / f"{n}/link") == "one.txt"
        run_inside(built, "cache", "get", f"{name}/deep/run", f"{tmp_path}/{n}-run")
        assert (tmp_path / f"{n}-run").stat().st_mode & 0o777 == 0o755
        assert run_inside(built, "cache", "cat", f"{name}/one.txt").out == "one\n"
    run_inside(built, "cache", "get", ":words/deep", f"{tmp_path}/deep", cwd="exp")
    assert os.listdir(tmp_path / "deep") == ["run"]


def test_a_tree_is_listed(built: Mini) -> None:
    run, one = Digest.of(b"#!/bin/sh\n").short, Digest.of(b"one\n").short
    lines = run_inside(built, "cache", "cat", "//exp:words").out.splitlines()
    assert lines[0] == "# marin-cas tree 1"
    assert [line.split() for line in lines[1:]] == [
        ["d", lines[1].split()[1], "deep/"],
        ["l", "link", "->", "one.txt"],
        ["f", one, "4", "B", "one.txt"],
    ]
    assert run_inside(built, "cache", "cat", "//exp:words/deep").out.splitlines()[1].split() == [
        "x",
        run,
        "10",
        "B",
        "run",
    ]
    assert (
        run_inside(built, "cache", "cat", lines[1].split()[1]).out
        == run_inside(built, "cache", "cat", "//exp:words/deep").out
    )


def test_a_large_file_is_streamed(built: Mini, tmp_path: Path) -> None:
    with (tmp_path / "shown").open("wb") as file:
        command = built.command("cache", "cat", "//exp:a/big/big")
        subprocess.run(command, cwd=built.root, env=built.environ(), stdout=file, check=True)
    assert (tmp_path / "shown").stat().st_size == 70 << 20
    run_inside(built, "cache", "get", "//exp:a/big/big", f"{tmp_path}/big")
    assert (tmp_path / "big").read_bytes() == (tmp_path / "shown").read_bytes()


def test_what_is_there_is_kept(built: Mini, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    ran = run_inside(built, "cache", "get", "//exp:words/one.txt", f"{tmp_path}/f", code=2)
    assert ran.err == f"error: `{tmp_path}/f` exists\n  hint: `--force` replaces it\n"
    ran = run_inside(built, "cache", "get", "//exp:words/one.txt", str(tmp_path), code=2)
    assert "or name a place in it" in ran.err
    run_inside(built, "cache", "get", "//exp:words/one.txt", f"{tmp_path}/f", "--force")
    assert (tmp_path / "f").read_text() == "one\n"
    assert "is not replaced" in run_inside(built, "cache", "get", "--force", "//exp:words", ".", code=2).err
    assert "is not replaced" in run_inside(built, "cache", "get", "--force", "//exp:words", "cache", code=2).err
    assert "does not exist" in run_inside(built, "cache", "get", "//exp:words", "no/where", code=2).err


@pytest.mark.parametrize(
    ("what", "code", "message", "hint"),
    [
        ("//exp:wordz", 2, "wordz", "did you mean"),
        ("//exp:wordz/one.txt", 2, "wordz", "words"),
        ("//exp:words/onne.txt", 2, "`//exp:words` has no `onne.txt` in it", "did you mean `one.txt`?"),
        ("//exp:words/deep/none", 2, "`//exp:words/deep` has no `none` in it", "marin cache cat //exp:words/deep"),
        ("//exp:words/one.txt/x", 2, "`//exp:words/one.txt` is no folder", ""),
        ("//exp:words/link", 2, "is a link to `one.txt`", "name what it leads to"),
        ("//exp:words%filez", 2, "`//exp:words` has no output `filez`", "did you mean `files`?"),
        ("//exp:other", 1, "`//exp:other` is not built as it is declared now", "marin build //exp:other"),
        ("//exp:group", 2, "files of the workspace", ""),
        ("exp/wordz@2026.01.31", 2, "exp/wordz@2026.01.31", "did you mean `exp/words@2026.01.31`?"),
        ("0123456789", 2, "begins with `0123456789`", ""),
        ("0" * 64, 1, "the store does not have it", ""),
        ("nonsense", 2, "`nonsense` is not a key, a digest, a label or `name@version`", "begin with `//`"),
    ],
)
def test_what_is_not_there_has_a_hint(
    built: Mini, tmp_path: Path, what: str, code: int, message: str, hint: str
) -> None:
    ran = run_inside(built, "cache", "get", what, f"{tmp_path}/f", code=code)
    assert message in ran.err.partition("hint:")[0]
    assert hint in ran.err.partition("hint:")[2]
    assert not os.listdir(tmp_path)


def test_bytes_that_are_gone(words: Mini, tmp_path: Path) -> None:
    words.ok("build", "//exp:words")
    hexed = Digest.of(b"one\n").hex
    (words.root / f"cache/cas/{hexed[:2]}/{hexed}").unlink()
    for what in ("//exp:words", "//exp:words/one.txt"):
        ran = run_inside(words, "cache", "get", what, f"{tmp_path}/x", code=1)
        assert f"the bytes of `{what}` are gone" in ran.err and "`marin build //exp:words` makes them again" in ran.err
    assert not (tmp_path / "x").exists()
    assert "are gone" in run_inside(words, "cache", "cat", "//exp:words/one.txt", code=1).err


def test_wrong_bytes_are_not_copied(words: Mini, tmp_path: Path) -> None:
    words.ok("build", "//exp:words")
    hexed = Digest.of(b"one\n").hex
    blob = words.root / f"cache/cas/{hexed[:2]}/{hexed}"
    before = blob.stat()
    blob.chmod(0o644)
    blob.write_bytes(b"ONE\n")
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))
    for command in (["get", "//exp:words", f"{tmp_path}/x"], ["cat", "//exp:words/one.txt"]):
        ran = run_inside(words, "cache", *command, code=4)
        assert hexed[:12] in ran.err and "ONE" not in ran.out
    assert not (tmp_path / "x").exists()


def test_a_tainted_result_is_handed_out_with_a_warning(words: Mini, tmp_path: Path) -> None:
    words.ok("build", "//exp:words")
    key_ = key(words)
    run_inside(words, "cache", "taint", "//exp:words", "--because", "cut short")
    ran = run_inside(words, "cache", "get", key_, f"{tmp_path}/x")
    assert "warning: it is tainted" in ran.err and "cut short" in ran.err
    assert "is not built" in run_inside(words, "cache", "get", "//exp:words", f"{tmp_path}/y", code=1).err
