"""What people decide about results, at the command line: taint, untaint, equate; and what is hollow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from blake3 import blake3

from tests.cli.conftest import DATA, Mini

FUNCTIONS = '''
def crawl(ctx):
    """Reads what lies outside: the test's weather."""
    (ctx.output_path / "docs.txt").write_text(open(ctx.params["from"]).read())


def tokens(ctx):
    for path in sorted(ctx.inputs["docs"].rglob("*.txt")):
        (ctx.output_path / "ids.txt").write_text(" ".join(str(ord(c)) for c in path.read_text()))


def count(ctx):
    text = "".join(path.read_text() for path in sorted(ctx.inputs["docs"].rglob("*.txt")))
    (ctx.output_path / "n.txt").write_text(f"{len(text)} {text}")


def read(ctx):
    source = ctx.inputs["docs"]
    files = [source] if source.is_file() else sorted(source.rglob("*.txt"))
    (ctx.output_path / "copy.txt").write_text("".join(path.read_text() for path in files).upper())
'''


@pytest.fixture
def chain(mini: Mini, tmp_path: Path) -> Mini:
    """`//exp:raw` reads the weather; tokens, counts and a report stand above; `//exp:doc` reads a workspace file."""
    weather = tmp_path / "weather"
    weather.write_text("sunny")
    mini.write(
        {
            "exp/f.py": FUNCTIONS,
            "exp/doc.txt": "hello\n",
            "exp/files/a.txt": "a\n",
            "exp/files/sub/b.txt": "b\n",
            "exp/BUILD.marin": DATA
            + f"""
raw_download(name = "raw", function = "exp/f.py:crawl", params = {{"from": "{weather}"}})
py_action(name = "tokens", function = "exp/f.py:tokens", inputs = {{"docs": ":raw"}})
py_action(name = "counts", function = "exp/f.py:count", inputs = {{"docs": ":tokens"}})
py_action(name = "report", function = "exp/f.py:count", inputs = {{"docs": ":counts"}})
py_action(name = "doc", function = "exp/f.py:read", inputs = {{"docs": "doc.txt"}})
py_action(name = "folder", function = "exp/f.py:read", inputs = {{"docs": "files"}})
exports_files(["doc.txt"])
""",
        }
    )
    return mini


ABOVE = ["//exp:counts", "//exp:raw", "//exp:report", "//exp:tokens"]


def sources(mini: Mini, *args: str) -> dict[str, str]:
    report = mini.ok("build", *args, "--output", "json", "--events", "events").json
    return {each["label"]: each["source"] for each in report["actions"]}


def tainted(mini: Mini) -> list[str]:
    return mini.ok("query", "tainted()").out.split()


def key(mini: Mini, label: str) -> str:
    return mini.ok("aquery", label, "--output", "json").json[0]["key"]


def hexed(mini: Mini, path: str) -> str:
    return blake3((mini.root / path).read_bytes()).hexdigest()


def plan(mini: Mini, *args: str) -> dict[str, dict[str, str]]:
    return {each["label"]: each for each in mini.ok("build", "-n", *args, "--output", "json").json}


def test_a_taint_at_the_bottom_is_felt_at_the_top(chain: Mini, tmp_path: Path) -> None:
    chain.ok("build", "//exp:report")
    assert tainted(chain) == []
    ran = chain.ok("cache", "taint", "//exp:raw", "--because", "the crawl was cut short")
    rows = [line.split()[1:] for line in ran.out.splitlines()]
    assert rows[0] == ["tainted", "exp/raw@dev", "//exp:raw"]
    assert sorted(row[-1] for row in rows) == ABOVE
    assert tainted(chain) == ABOVE
    assert chain.ok("query", "tainted() ^ rdeps(//exp/..., :tokens)", cwd="exp").out.split() == [
        "//exp:report",
        "//exp:counts",
        "//exp:tokens",
    ]
    assert chain.ok("query", "//exp:report - tainted()").out == ""
    decided = plan(chain, "//exp:report")
    assert {name: each["status"] for name, each in decided.items()} == dict.fromkeys(ABOVE, "miss")
    assert {each["reason"]["code"] for each in decided.values()} == {"miss_tainted"}  # type: ignore[index]
    assert "its result is tainted: the crawl was cut short (" in decided["//exp:raw"]["reason"]["text"]  # type: ignore[index]
    why = chain.ok("why", "//exp:report").out
    assert "made from `//exp:raw`, which is tainted: the crawl was cut short (" in why
    # The snapshot of the build before must not answer, and the bytes come out as they were: all above is served.
    before = (chain.root / "cache/out/exp/report/n.txt").read_text()
    assert sources(chain, "//exp:report") == {
        "//exp:raw": "executed",
        "//exp:tokens": "local",
        "//exp:counts": "local",
        "//exp:report": "local",
    }
    events = [json.loads(line) for line in (chain.root / "events").read_text().splitlines()]
    [started] = [event for event in events if event["event"] == "action_started"]
    assert started["reason"]["code"] == "miss_tainted"
    assert tainted(chain) == []
    # Other bytes: everything runs again, and says why.
    chain.ok("cache", "taint", "exp/raw@dev", "--because", "again")
    (tmp_path / "weather").write_text("rain")
    assert set(sources(chain, "//exp:report").values()) == {"executed"}
    events = [json.loads(line) for line in (chain.root / "events").read_text().splitlines()]
    started = {event["label"]: event["reason"]["text"] for event in events if event["event"] == "action_started"}
    assert "made from `//exp:raw`, which is tainted: again (" in started["//exp:report"]
    assert (chain.root / "cache/out/exp/report/n.txt").read_text() != before


def test_untaint_serves_again_without_a_run(chain: Mini) -> None:
    chain.ok("build", "//exp:report")
    hexes = key(chain, "//exp:tokens")
    record = chain.ok("cache", "taint", hexes[:8], "--because", "a doubt", "--output", "json").json
    assert record["because"] == "a doubt" and "@" in record["who"]
    assert {row["labels"][0]: row["how"] for row in record["reached"]} == {
        "//exp:tokens": "named",
        "//exp:counts": "below",
        "//exp:report": "below",
    }
    assert all(row["artifact"] and len(row["key"]) == 64 for row in record["reached"])
    again = chain.run("cache", "taint", "//exp:tokens", "--because", "a doubt", code=2)
    assert "is tainted already: a doubt (" in again.err
    assert "is not tainted itself" in chain.run("cache", "untaint", "//exp:report", "--because", "x", code=2).err
    freed = chain.ok("cache", "untaint", "//exp:tokens", "--because", "none", "--output", "json").json["freed"]
    assert sorted(row["labels"][0] for row in freed) == ["//exp:counts", "//exp:report", "//exp:tokens"]
    assert set(sources(chain, "//exp:report").values()) == {"local"}
    assert "is not tainted" in chain.run("cache", "untaint", "//exp:tokens", "--because", "x", code=2).err


@pytest.mark.parametrize(("label", "path"), [("//exp:doc", "exp/doc.txt"), ("//exp:folder", "exp/files/sub/b.txt")])
@pytest.mark.parametrize("built", [True, False])
def test_a_tainted_source_is_refused(chain: Mini, label: str, path: str, built: bool) -> None:
    if built:
        chain.ok("build", label)
    hexes = hexed(chain, path)
    ran = chain.ok("cache", "taint", hexes, "--because", "holds personal data")
    assert (label in ran.out) is built
    for args in (("build", label), ("build", "-n", label)):
        ran = chain.run(*args, code=1)
        assert f"`{label}` reads `{path}`, which is tainted, so it does not run: holds personal data (" in ran.err
        assert f"marin cache untaint {hexes[:12]}" in ran.err
    assert f"{label}  is refused: " in chain.ok("why", label).out
    # What does not read it is built all the same.
    chain.run("build", "-k", label, "//exp:raw", code=1)
    assert chain.ok("build", "//exp:raw").err.startswith("up to date")
    text = (chain.root / path).read_text()
    (chain.root / path).write_text("without names\n")
    chain.ok("build", label)
    (chain.root / path).write_text(text)
    chain.run("build", label, code=1)
    chain.ok("cache", "untaint", hexes[:8], "--because", "it was made up")
    assert set(sources(chain, label).values()) == {"local" if built else "executed"}


def test_a_tainted_output_is_not_made_again(chain: Mini, tmp_path: Path) -> None:
    chain.ok("build", "//exp:report")
    hexes = blake3(b"sunny").hexdigest()
    chain.ok("cache", "taint", hexes, "--because", "somebody's letters")
    assert tainted(chain) == ABOVE
    for _ in range(2):
        ran = chain.run("build", "//exp:report", code=1)
        assert "`//exp:raw` made `files/docs.txt`, which is tainted, so nothing of the run was published" in ran.err
        assert "somebody's letters (" in ran.err
    assert tainted(chain) == ABOVE
    (tmp_path / "weather").write_text("rain")
    assert set(sources(chain, "//exp:report").values()) == {"executed"}
    assert tainted(chain) == []
    # Taken back: the newer result stays.
    chain.ok("cache", "untaint", hexes, "--because", "they agreed")
    assert set(sources(chain, "//exp:report").values()) == {"local"}
    chain.ok("build", "//exp:raw")
    assert (chain.root / "cache/out/exp/raw/docs.txt").read_text() == "rain"


def test_what_is_no_key_no_digest_and_no_target(chain: Mini) -> None:
    def refused(what: str, because: str = "x", code: int = 2) -> str:
        return chain.run("cache", "taint", what, "--because", because, code=code).err

    assert "is not built as it is declared now" in refused("//exp:raw", code=1)
    assert "there is no `exp/raw@dev` in this cache" in refused("exp/raw@dev")
    chain.ok("build", "//exp:raw")
    assert "did you mean `exp/raw@dev`?" in refused("exp/row@dev")
    assert "is not a key, a digest, a label or `name@version`" in refused("raw")
    assert "give all 64 digits" in refused("0000000")
    assert "say why, in a few words" in refused("//exp:raw", " \n ")
    assert "is a source file, not a target" in refused("//exp:doc.txt")
    assert chain.ok("cache", "taint", "0" * 64, "--because", "seen elsewhere").out == ""


def renamed(mini: Mini, params: str) -> None:
    path, inputs = mini.root / "exp/BUILD.marin", 'inputs = {"docs": ":raw"}'
    path.write_text(path.read_text().replace(inputs, f"{inputs}, params = {params}"))


def test_equate_instead_of_running(chain: Mini) -> None:
    chain.ok("build", "//exp:report")
    old = key(chain, "//exp:tokens")
    renamed(chain, '{"spelt": "out"}')
    assert plan(chain, "//exp:report")["//exp:tokens"]["status"] == "miss"
    new = key(chain, "//exp:tokens")
    ran = chain.ok("cache", "equate", old[:8], "//exp:tokens", "--because", "a default, spelt out")
    note = f"equated with {old[:12]} (//exp:tokens): a default, spelt out ("
    assert ran.out.startswith(f"{new[:12]}  //exp:tokens  {note}")
    decided = plan(chain, "//exp:report")
    assert decided["//exp:tokens"]["reason"]["text"].startswith(note)  # type: ignore[index]
    assert set(sources(chain, "//exp:report").values()) == {"local"}
    assert set(plan(chain, "//exp:report")) == {"//exp:report"}  # by fingerprint, with one look
    assert f"note         {note}" in chain.ok("why", "//exp:tokens").out
    made = chain.ok("why", "//exp:tokens", "--output", "json").json[-1]["made"]
    assert made["key"] == new and made["note"].startswith(note)
    twice = chain.run("cache", "equate", old, "//exp:tokens", "--because", "x", code=2)
    assert "is equated with" in twice.err and "--revoke" in twice.err
    # A taint of the old one reaches the new one, and all above.
    chain.ok("cache", "taint", old, "--because", "it was wrong")
    assert tainted(chain) == ["//exp:counts", "//exp:report", "//exp:tokens"]
    assert "it was wrong (" in chain.ok("build", "-n", "//exp:report").out
    refused = chain.run("cache", "equate", old, "//exp:doc", "--because", "x", code=1)
    assert "is tainted" in refused.err
    chain.ok("cache", "untaint", old, "--because", "it was right")
    assert set(sources(chain, "//exp:report").values()) == {"local"}
    # Taken back, it runs; and what is above is looked at again.
    ran = chain.ok("cache", "equate", "--revoke", "//exp:tokens", "--because", "not a default")
    assert ran.out.startswith(f"{new[:12]}  //exp:tokens  has no result any more")
    assert sources(chain, "//exp:report") == {
        "//exp:raw": "local",
        "//exp:tokens": "executed",
        "//exp:counts": "local",
        "//exp:report": "local",
    }
    taken = chain.run("cache", "equate", old, "//exp:tokens", "--because", "x", code=2)
    assert "has a result of its own" in taken.err
    assert "is not equated" in chain.run("cache", "equate", "--revoke", "//exp:tokens", "--because", "x", code=2).err


def test_an_equated_result_whose_source_is_tainted_is_made_by_a_run(chain: Mini) -> None:
    chain.ok("build", "//exp:report")
    old = key(chain, "//exp:tokens")
    renamed(chain, '{"spelt": "out"}')
    chain.ok("cache", "equate", old, "exp/tokens@dev", "--because", "a default")
    chain.ok("cache", "taint", old, "--because", "it was wrong")
    assert sources(chain, "//exp:tokens")["//exp:tokens"] == "executed"
    assert tainted(chain) == []
    assert "note" not in chain.ok("why", "//exp:tokens").out


def test_equate_refuses_what_does_not_fit(chain: Mini) -> None:
    chain.ok("build", "//exp:raw")
    raw = key(chain, "//exp:raw")
    waits = chain.run("cache", "equate", raw, "//exp:counts", "--because", "x", code=1)
    assert "the key of `//exp:counts` is not known until `//exp:tokens` is built" in waits.err
    assert "there is nothing to equate" in chain.run("cache", "equate", raw, "//exp:raw", "--because", "x", code=2).err
    assert "give OLD and NEW" in chain.run("cache", "equate", raw, "--because", "x", code=2).err


def test_why_shows_what_is_hollow(chain: Mini, tmp_path: Path) -> None:
    chain.ok("build", "//exp:report")
    lost = blake3(b"sunny").hexdigest()
    (chain.root / f"cache/cas/{lost[:2]}/{lost}").unlink()
    assert set(sources(chain, "//exp:report").values()) == {"local"}
    why = chain.ok("why", "//exp:raw").out
    assert "built before, but its bytes are gone" in why
    assert f"hollow       the bytes of `files` are gone (blob {lost[:12]})" in why
    [record] = chain.ok("why", "//exp:raw", "--output", "json").json
    assert record["hollow"] is True
    # Whoever needs the bytes makes them again; other bytes are a decision of a person's.
    (tmp_path / "weather").write_text("rain")
    renamed(chain, '{"more": 1}')
    ran = chain.run("build", "//exp:tokens", code=1)
    assert "`//exp:raw` was built before and its bytes are gone; built again, it gave other bytes" in ran.err
    for text in ("differs: `out/files/docs.txt`", "`//exp:tokens`", "--accept-new", "--keep-old"):
        assert text in ran.err
    assert "hollow" in chain.ok("cache", "ls").out
    kept = chain.run("build", "//exp:tokens", "--keep-old", code=1)
    assert "its old bytes are gone and were asked to be kept" in kept.err
    assert set(sources(chain, "//exp:tokens", "--accept-new").values()) == {"executed"}
    assert "hollow" not in chain.ok("why", "//exp:raw").out
