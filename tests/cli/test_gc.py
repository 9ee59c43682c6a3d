"""Collecting, as a user does it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, Mini

FUNCTIONS = """
import time


def words(ctx):
    for word in ctx.params["words"]:
        (ctx.output_path / f"{word}.txt").write_text(word * 1000 + "\\n")


def join(ctx):
    text = "".join(p.read_text() for name in sorted(ctx.inputs) for p in sorted(ctx.inputs[name].rglob("*.txt")))
    (ctx.output_path / "all.txt").write_text(text)


def slow(ctx):
    (ctx.output_path / "begun.txt").write_text("x" * 1000)
    time.sleep(ctx.params["seconds"])
    join(ctx)
"""
BUILD = (
    DATA
    + """
raw_download(name = "words", function = "exp/functions.py:words", params = {"words": ["one", "two"]})
py_action(name = "joined", function = "exp/functions.py:join", inputs = {"words": ":words"})
"""
)
NOW = ("--grace", "0s")


@pytest.fixture
def exp(mini: Mini) -> Mini:
    mini.write({"exp/functions.py": FUNCTIONS, "exp/BUILD.marin": BUILD})
    return mini


def edit(mini: Mini, old: str, new: str) -> None:
    mini.write({"exp/BUILD.marin": (mini.root / "exp/BUILD.marin").read_text().replace(old, new)})


def gc(mini: Mini, *args: str, code: int = 0):
    return mini.run("cache", "gc", *args, "--output", "json", code=code).json


def all_text(mini: Mini) -> str:
    return (mini.root / "cache/out/exp/joined/all.txt").read_text()


def kinds(made: dict) -> list[tuple[str, str]]:
    return [(item["kind"], item.get("label", "")) for item in made["items"]]


def test_build_edit_collect_and_build_again(exp: Mini) -> None:
    exp.ok("build", "//exp:joined")
    first = all_text(exp)
    edit(exp, '"two"', '"three"')
    exp.ok("build", "//exp:joined")
    cache = exp.root / "cache"
    before = sorted(path.name for path in cache.glob("cas/*/*"))
    made = gc(exp, *NOW, "--max-age", "0s", "--dry-run")
    assert sorted(label for kind, label in kinds(made) if kind == "result") == ["//exp:joined", "//exp:words"]
    assert made["freed"] > 4000 and "collected" not in made
    assert sorted(path.name for path in cache.glob("cas/*/*")) == before
    text = exp.ok("cache", "gc", *NOW, "--max-age", "0s", "--dry-run")
    assert "age" in text.out and "//exp:words" in text.out and "would free" in text.err
    done = gc(exp, *NOW, "--max-age", "0s")
    assert done["collected"]["freed"] == done["freed"] == made["freed"]
    assert gc(exp, *NOW, "--max-age", "0s")["items"] == []
    # What is built now is served as before; what was edited away is made again, and comes out the same.
    assert exp.counts("//exp:joined")["executed"] == 0
    hollow = exp.ok("cache", "ls", "--hollow", "--output", "json").json
    assert [record["label"] for record in hollow] == ["//exp:words", "//exp:joined"]
    edit(exp, '"three"', '"two"')
    assert exp.counts("//exp:joined")["executed"] == 2
    assert all_text(exp) == first
    assert "0 wrong" in exp.ok("cache", "verify").err


def test_a_size_takes_the_cheap_and_says_what_holds_the_rest(exp: Mini) -> None:
    exp.ok("build", "//...")
    listed = exp.ok("cache", "roots").out
    # `words` was found by a wildcard, below something else of it.
    assert "//exp:joined" in listed and "//exp:words" not in listed and str(exp.root) in listed
    ran = exp.run("cache", "gc", *NOW, "--max-size", "1KiB", code=3)
    assert "more than `--max-size` allows" in ran.err and f"//exp:joined of {exp.root}" in ran.err
    assert "//exp:words" in ran.out
    assert not os.path.lexists(exp.root / "cache/out/exp/words")
    assert all_text(exp).startswith("oneone")
    # The input of a root is made again only for whoever needs its bytes.
    assert exp.counts("//exp:joined")["executed"] == 0
    assert exp.counts("//exp:words")["executed"] == 1
    assert "//exp:words" in exp.ok("cache", "roots").out
    # Now it was asked for by its name. Without deleting, a size that cannot be met is no error.
    assert {kind for kind, _ in kinds(gc(exp, *NOW, "--max-size", "1KiB", "--dry-run"))} == {"blobs"}


def test_young_things_stay_by_default(exp: Mini) -> None:
    exp.ok("build", "//exp:joined")
    made = gc(exp, "--max-age", "0s")
    assert made["items"] == [] and made["collected"]["freed"] == 0
    assert "used within the last 24 h" in exp.ok("cache", "gc").err
    exp.write({"marin.toml": 'gc_grace = "0s"\nmax_age = "0s"\n'})
    assert gc(exp)["collected"]["blobs"] > 0


def test_pin_and_unpin(exp: Mini) -> None:
    exp.ok("build", "//exp:joined")
    assert "pinned: key" in exp.ok("cache", "pin", "//exp:words", "--because", "in  the\npaper").err
    assert "pinned by" in exp.ok("cache", "roots").out and "in the paper" in exp.ok("cache", "roots").out
    assert "(pinned)" in exp.ok("cache", "ls").out and "(root)" in exp.ok("cache", "ls").out
    assert gc(exp, *NOW, "--max-size", "0", code=3)["items"][0]["kind"] == "blobs"
    assert exp.counts("//exp:joined")["executed"] == 0
    exp.ok("cache", "unpin", ":words", cwd="exp")
    assert ("result", "//exp:words") in kinds(gc(exp, *NOW, "--max-size", "0", code=3))
    hint = exp.run("cache", "unpin", "//exp:words", code=2).err
    assert "is not pinned" in hint
    assert "did you mean `//exp:joined`" in exp.run("cache", "pin", "//exp:joine", code=2).err
    # A digest, cut short, and a version.
    [record] = [r for r in exp.ok("cache", "ls", "--output", "json").json if r["label"] == "//exp:joined"]
    digest = record["outputs"]["files"]["digest"].partition("-")[0]
    exp.ok("cache", "pin", digest[:12])
    exp.ok("cache", "pin", "exp/joined@dev", "--deps")
    assert "its bytes are gone" in exp.ok("cache", "pin", "//exp:words").err
    pins = [row for row in exp.ok("cache", "roots", "--output", "json").json if row["kind"] == "pin"]
    assert [(pin["name"], pin["deps"], bool(pin["bytes"])) for pin in pins] == [
        ("//exp:words", False, False),
        (digest, False, True),
        ("exp/joined@dev", True, True),
    ]
    assert "with `--deps`" in exp.run("cache", "pin", digest[:12], "--deps", code=2).err
    exp.ok("cache", "unpin", digest[:8])
    exp.ok("cache", "unpin", "exp/joined@dev")


def test_two_workspaces_and_one_that_is_gone(exp: Mini, tmp_path: Path) -> None:
    exp.write({"marin.toml": f'cache = "{tmp_path}/shared"\n'})
    other = Mini(tmp_path / "other", exp.home)
    shutil.copytree(exp.root, other.root)
    edit(other, '"two"', '"three"')
    exp.ok("build", "//exp:joined")
    other.ok("build", "//exp:joined")
    made = gc(exp, *NOW, "--max-age", "0s")
    assert all(kind == "blobs" or kind == "trees" for kind, _ in kinds(made))
    os.rename(other.root, tmp_path / "moved")
    ran = exp.ok("cache", "gc", *NOW, "--max-age", "0s")
    assert f"the workspace `{other.root}` is not there; what it has built is kept" in ran.err
    assert "(not there now)" in exp.ok("cache", "roots").out
    assert (
        f"not kept any more: //exp:joined of {other.root}" in exp.ok("cache", "roots", "--forget", str(other.root)).err
    )
    made = gc(exp, *NOW, "--max-age", "0s")
    assert sorted(label for kind, label in kinds(made) if kind == "result") == ["//exp:joined", "//exp:words"]
    assert exp.counts("//exp:joined")["executed"] == 0
    assert "nothing is kept for" in exp.run("cache", "roots", "--forget", str(other.root), code=2).err


def test_forgetting_a_target_is_undone_by_building_it(exp: Mini) -> None:
    exp.ok("build", "//exp:joined")
    exp.ok("build", "//exp:joined")
    exp.ok("cache", "roots", "--forget", ":joined", cwd="exp")
    assert exp.ok("cache", "roots").out == ""
    # It is not "nothing changed".
    exp.ok("build", "//exp:joined")
    assert "//exp:joined" in exp.ok("cache", "roots").out


def test_what_is_collected_is_noticed_by_an_unchanged_build(exp: Mini) -> None:
    exp.ok("build", "//exp:joined")
    exp.ok("build", "//exp:joined")
    exp.ok("cache", "roots", "--forget", "//exp:joined")
    exp.ok("build", "//exp:joined")
    exp.ok("cache", "roots", "--forget", "//exp:joined")
    assert "recipes, versions, logs" in exp.run("cache", "gc", *NOW, "--max-size", "0", code=3).err
    assert not os.path.lexists(exp.root / "cache/out/exp/joined")
    assert exp.counts("//exp:joined")["executed"] == 2
    assert all_text(exp).startswith("oneone")


def test_a_size_in_the_configuration_is_kept_without_asking(exp: Mini) -> None:
    exp.write({"marin.toml": 'max_size = "40KiB"\ngc_grace = "0s"\n'})
    for number in range(12):
        edit(exp, "params = {", f'params = {{"n{number}": 0, ')
        edit(exp, '"two"', f'"two", "{number}{number}"')
        ran = exp.ok("build", "//exp:joined")
        used = exp.ok("cache", "stat", "--output", "json").json
        assert used["blob_bytes"] <= 40 << 10 or "holds" in ran.err
        if "collected" in ran.err:
            assert f"of {40} KiB" in ran.err
    log = [exp.ok("build", "//exp:joined").err for _ in range(2)]
    assert "up to date" in log[1]
    assert exp.counts("//exp:joined")["executed"] == 0


def test_a_budget_that_cannot_be_kept_does_not_fail_a_build(exp: Mini) -> None:
    exp.write({"marin.toml": "max_size = 100\n"})
    ran = exp.ok("build", "//exp:joined")
    assert "the cache has" in ran.err and "holds" in ran.err
    (exp.root / "cache/size").write_text("nonsense")
    exp.ok("build", "//exp:joined", "--again", "//exp:joined")
    for path in (exp.root / "cache/roots/workspaces").glob("*/*"):
        path.write_text("{")
    edit(exp, '"two"', '"three"')
    ran = exp.run("build", "//exp:words")
    assert ran.code == 0 and "warning: the cache was not brought below its `max_size`" in ran.err


def test_what_a_running_build_reads_and_writes_is_not_collected(exp: Mini) -> None:
    exp.write(
        {
            "exp/BUILD.marin": BUILD
            + 'py_action(name = "slow", function = "exp/functions.py:slow", inputs = {"words": ":words"}, '
            'params = {"seconds": 3})\n'
        }
    )
    exp.ok("build", "//exp:words")
    exp.ok("cache", "roots", "--forget", "//exp:words")
    running = exp.start("build", "//exp:slow")
    work = exp.root / "cache/work"
    ends = time.monotonic() + 60
    while not list(work.glob("*/*/out/*/begun.txt")) and not list(work.glob("*/*/out/begun.txt")):
        assert running.poll() is None and time.monotonic() < ends
        time.sleep(0.05)
    exp.run("cache", "gc", *NOW, "--max-size", "0")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    text = (exp.root / "cache/out/exp/slow/all.txt").read_text()
    assert text == "one" * 1000 + "\n" + "two" * 1000 + "\n"


def test_interrupted_collection(exp: Mini) -> None:
    exp.ok("build", "//exp:joined")
    running = exp.start("cache", "gc", *NOW, "--max-age", "0s")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode in (0, 8, 130, -2), err
    assert exp.counts("//exp:joined")["executed"] == 0
    exp.ok("cache", "gc", *NOW)


def test_clean_after_a_collection_and_before_one(exp: Mini) -> None:
    exp.ok("build", "//exp:joined")
    exp.ok("cache", "gc", *NOW)
    exp.ok("clean")
    assert exp.counts("//exp:joined")["executed"] == 0
    assert all_text(exp).startswith("oneone")
    exp.ok("clean")
    exp.ok("cache", "gc", *NOW)
    assert exp.counts("//exp:joined")["executed"] == 0
    assert all_text(exp).startswith("oneone")


@pytest.mark.parametrize(
    "args",
    [
        ("--max-size", "many"),
        ("--max-size", "-5"),
        ("--max-age", "30"),
        ("--max-age", "soon"),
        ("--grace", "1y"),
    ],
)
def test_wrong_sizes_and_ages(exp: Mini, args: tuple[str, ...]) -> None:
    err = exp.run("cache", "gc", *args, code=2).err
    assert "must be" in err and "Traceback" not in err


def test_an_empty_cache(mini: Mini) -> None:
    assert "would free 0 B" in mini.ok("cache", "gc", "--dry-run").err
    assert "freed 0 B" in mini.ok("cache", "gc", "--max-size", "0").err
    assert mini.ok("cache", "ls").out == mini.ok("cache", "roots").out == ""
    assert mini.ok("cache", "stat", "--output", "json").json["blobs"] == 0
    assert not (mini.root / "cache" / "epoch").exists()
