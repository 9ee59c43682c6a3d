"""Commands that look and change nothing: query, aquery, path, logs, why, cache."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from marin_cas.digest import Digest
from tests.cli.conftest import Mini


def test_query_and_its_shorthand(words: Mini) -> None:
    expected = "//exp:joined\n//exp:words\n"
    assert words.ok("query", "deps(//exp:joined)").out == expected
    assert words.ok("query", "deps", "//exp:joined").out == expected
    assert words.ok("query", "deps", ":joined", cwd="exp").out == expected
    assert words.ok("query", "deps(//exp:joined, 0)").out == "//exp:joined\n"
    assert words.ok("query", "kind(py_action, //...)", "--output", "label_kind").out == "py_action rule //exp:joined\n"
    assert words.ok("query", "//...", "-", "//exp:words").out == "//exp:joined\n"
    assert words.ok("query", "//exp:joined", "--output", "location").out.startswith("exp/BUILD.marin:")
    [record] = words.ok("query", "//exp:words", "--output", "json").json
    assert record["attributes"]["params"] == {"words": ["one", "two"]}
    assert "digraph" in words.ok("query", "deps(//exp:joined)", "--output", "graph").out


def test_a_wrong_query_shows_where(words: Mini) -> None:
    ran = words.run("query", "depz(//exp:joined)", code=2)
    assert "did you mean `deps`?" in ran.err
    assert "^" in ran.err
    assert "//exp:joinde" in words.run("query", "deps(//exp:joinde)", code=2).err


def test_aquery_shows_the_recipe(words: Mini) -> None:
    records = words.ok("aquery", "deps(//exp:joined)", "--output", "json").json
    joined, made = records
    assert (joined["action"], made["action"]) == ("//exp:joined", "//exp:words")
    assert joined["key"] is None
    assert joined["inputs"]["words"] == {
        "kind": "tree",
        "digest": None,
        "producer": "//exp:words",
        "output": "files",
    }
    assert made["recipe"]["params"]["params"] == {"words": ["one", "two"]}
    assert len(made["recipe"]["params"]["code"]) == 64
    words.ok("build", "//exp:joined")
    lines = words.ok("aquery", "deps(//exp:joined)", "--output", "jsonl").out.splitlines()
    built = json.loads(lines[0])
    assert built["built"]
    assert len(built["key"]) == 64
    assert built["inputs"]["words"]["digest"] == json.loads(lines[1])["outputs"]["files"]["digest"]
    assert built["fingerprint"] == joined["fingerprint"]
    text = words.ok("aquery", "//exp:joined").out
    assert f"key          {built['key']}" in text
    assert "from //exp:words (files)" in text


def test_path(words: Mini) -> None:
    ran = words.run("path", "//exp:joined", code=1)
    assert "`//exp:joined` is not built as it is declared now" in ran.err
    assert "hint: `marin build //exp:joined`" in ran.err
    words.ok("build", "//exp:joined")
    place = f"{words.root}/cache/out/exp/joined\n"
    assert words.ok("path", "//exp:joined").out == place
    assert words.ok("path", ":joined%files", cwd="exp").out == place
    assert "`flies`" in words.run("path", "//exp:joined%flies", code=2).err
    assert "did you mean `files`?" in words.run("path", "//exp:joined%flies", code=2).err
    assert "write `LABEL%files`" in words.run("path", "%files", code=2).err
    shutil.rmtree(words.root / "cache/out")
    words.ok("path", "//exp:joined")
    assert (words.root / "cache/out/exp/joined/all.txt").is_file()


def test_logs(words: Mini) -> None:
    assert "there is no log of `//exp:words`" in words.run("logs", "//exp:words", code=1).err
    functions = words.root / "exp/functions.py"
    functions.write_text(functions.read_text().replace('"""Writes', 'print("hello");"""Writes'))
    words.ok("build", "//exp:joined")
    assert "hello\n" in words.ok("logs", "//exp:words").out
    silent = words.ok("logs", "//exp:joined")
    assert (silent.out, silent.err) == ("", "`//exp:joined` ran and wrote nothing\n")


def test_why_tells_who_made_it(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    text = words.ok("why", "//exp:joined").out
    assert "//exp:joined  is served: already built from these declarations" in text
    assert "made " in text
    [record] = words.ok("why", "//exp:joined", "--output", "json").json
    assert record["made"]["label"] == "//exp:joined"
    assert record["made"]["versions"]["python"].startswith("3.")


def test_why_says_where_the_code_is_that_changed(words: Mini) -> None:
    words.ok("build", "//exp:words")
    functions = words.root / "exp/functions.py"
    functions.write_text(functions.read_text().replace('word + "\\n"', 'word.upper() + "\\n"'))
    why = words.ok("why", "//exp:words").out
    assert "`params.code` is what it runs of `exp/functions.py`\n" in why


def test_why_of_what_runs_nothing(words: Mini) -> None:
    build = words.root / "exp/BUILD.marin"
    build.write_text(build.read_text() + 'filegroup(name = "group", srcs = ["functions.py"])\n')
    assert "runs nothing" in words.run("why", "//exp:group", code=2).err
    logs = words.run("logs", "//exp:group", code=1).err
    assert "`//exp:group` runs nothing, so it has no log" in logs
    assert "marin why" not in logs
    ran = words.ok("aquery", "//exp:group")
    assert (ran.out, ran.err) == ("", "no actions: what the query names runs nothing\n")
    assert words.ok("aquery", "//exp:group", "--output", "json").json == []
    build.write_text(build.read_text() + 'filegroup(name = "none", srcs = [])\n')
    assert words.ok("path", "//exp:group").out == f"{words.root}/exp/functions.py\n"


def test_unknown_targets_have_a_hint(words: Mini) -> None:
    for command in (["build"], ["why"], ["path"], ["logs"], ["aquery"]):
        ran = words.run(*command, "//exp:joinde", code=2)
        assert "//exp:joinde" in ran.err
        assert "joined" in ran.err.partition("hint:")[2]


def test_cache_ls_and_stat(words: Mini) -> None:
    assert words.ok("cache", "ls").out == ""
    words.ok("build", "//exp:joined")
    lines = words.ok("cache", "ls").out.splitlines()
    assert [line.split("  ")[-1 - ("(" in line)].strip() for line in lines] == ["//exp:words", "//exp:joined"]
    records = [json.loads(line) for line in words.ok("cache", "ls", "--output", "jsonl").out.splitlines()]
    assert [record["artifact"] for record in records] == ["exp/words@dev", "exp/joined@dev"]
    usage = words.ok("cache", "stat", "--output", "json").json
    assert (usage["results"], usage["keys"], usage["leases"]) == (2, 2, 0)
    assert usage["blobs"] > 4


def test_cache_cat_decodes_records_and_gives_blobs_as_they_are(words: Mini) -> None:
    words.ok("build", "//exp:words")
    [record] = words.ok("cache", "ls", "--output", "json").json
    shown = words.ok("cache", "cat", record["key"][:12]).out
    assert shown.startswith("# marin-cas recipe 1\n")
    assert 'tool      "function"' in shown
    tree = record["outputs"]["files"]["digest"]
    shown = words.ok("cache", "cat", tree).out
    one, two = (Digest.of(text).short for text in (b"one\n", b"two\n"))
    assert shown == f"# marin-cas tree 1\nf  {one}  4 B  one.txt\nf  {two}  4 B  two.txt\n"
    [blob] = [path for path in (words.root / "cache/cas").glob("*/*") if path.read_bytes() == b"one\n"]
    assert words.ok("cache", "cat", blob.name).out == "one\n"
    assert "begins with" in words.run("cache", "cat", "0" * 64, code=2).err
    assert "is not a key, a digest, a label" in words.run("cache", "cat", "xyz", code=2).err


@pytest.mark.skipif(shutil.which("b3sum") is None, reason="the program b3sum is not installed")
def test_a_key_can_be_checked_with_b3sum(words: Mini) -> None:
    words.ok("build", "//exp:words")
    [record] = words.ok("cache", "ls", "--output", "json").json
    raw = subprocess.run(
        words.command("cache", "cat", "--raw", record["key"]),
        cwd=words.root,
        env=words.environ(),
        capture_output=True,
        check=True,
    ).stdout
    summed = subprocess.run(["b3sum"], input=raw, capture_output=True, check=True).stdout
    assert summed.decode().split()[0] == record["key"]


def test_cache_verify_of_a_sample(words: Mini) -> None:
    words.ok("build", "//exp:joined")
    assert "0 wrong" in words.ok("cache", "verify").err
    report = words.ok("cache", "verify", "--sample", "0.5", "--output", "json").json
    assert report["wrong"] == []
