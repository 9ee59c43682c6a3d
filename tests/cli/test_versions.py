"""Versions and refs at the command line: what may be published, what is refused afterwards, and what is served."""

from __future__ import annotations

import getpass
import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, FUNCTIONS, Mini

WORDS = """
raw_download(
    name = "words",
    function = "exp/words.py:words",
    params = {"words": [%(words)s]},
    version = "%(below)s",
)

py_action(
    name = "joined",
    function = "exp/functions.py:join",
    inputs = {"words": ":words"},
    version = "%(version)s",%(more)s
)
"""


def declare(mini: Mini, **given: str) -> None:
    fields = {"words": '"one", "two"', "version": "2026.01.31", "below": "2026.01.30", "more": "", **given}
    mini.write({"exp/functions.py": FUNCTIONS, "exp/words.py": FUNCTIONS, "exp/BUILD.marin": DATA + WORDS % fields})


@pytest.fixture
def fixed(mini: Mini) -> Mini:
    """`//exp:joined` (2026.01.31) is made from `//exp:words` (2026.01.30)."""
    declare(mini)
    return mini


@pytest.fixture
def published(fixed: Mini) -> Mini:
    fixed.ok("build", "//exp:joined")
    fixed.ok("publish", "//exp:joined")
    return fixed


# What a version is


@pytest.mark.parametrize("version", ["v1", "2026.1.31", "latest", "2026.01.31-rc", "devel"])
def test_a_version_is_a_date_or_a_dev_one(fixed: Mini, version: str) -> None:
    declare(fixed, version=version)
    error = fixed.run("build", "//exp:joined", code=2).err
    assert f'the version `"{version}"` is neither `YYYY.MM.DD`' in error and "exp/BUILD.marin:10" in error


@pytest.mark.parametrize("version", ["2026.01.31", "2026.01.31.2"])
def test_nothing_fixed_is_made_from_what_may_move(fixed: Mini, version: str) -> None:
    declare(fixed, version=version, below="try-dev")
    for command in (["build"], ["build", "-n"], ["why"], ["aquery"]):
        error = fixed.run(*command, "//exp:joined", code=2).err
        assert f"`//exp:joined` has the fixed version `{version}`" in error
        assert "made from `//exp:words`, whose version `try-dev` may move" in error
    declare(fixed, version="dev", below="try-dev")
    fixed.ok("build", "//exp:joined")


def test_the_whole_way_to_what_may_move_is_told(fixed: Mini) -> None:
    declare(fixed, below="dev")
    more = """
        alias(name = "other", actual = ":joined")
        py_action(
            name = "top",
            function = "exp/functions.py:join",
            inputs = {"words": ":other"},
            version = "2026.02.01",
        )
    """
    build = fixed.root / "exp/BUILD.marin"
    build.write_text(build.read_text() + textwrap.dedent(more))
    error = fixed.run("build", "//exp:top", code=2).err
    steps = [
        "`//exp:top` -> `//exp:other`",
        "`//exp:other` -> `//exp:joined` (`2026.01.31`)",
        "exp/BUILD.marin:10: `//exp:joined` -> `//exp:words` (`dev`)",
    ]
    places = [error.index(step) for step in steps]
    assert places == sorted(places), error
    assert "give `//exp:words` a fixed `version`" in error


def test_a_version_left_out_is_dev(fixed: Mini) -> None:
    build = fixed.root / "exp/BUILD.marin"
    build.write_text(build.read_text().replace('    version = "2026.01.30",\n', ""))
    assert "whose version `dev` may move" in fixed.run("build", "//exp:joined", code=2).err


# Publishing


def test_what_is_not_built_cannot_be_published(fixed: Mini) -> None:
    error = fixed.run("publish", "//exp:joined", code=1).err
    assert "`//exp:joined` is not built as it is declared now" in error and "marin build //exp:joined" in error
    fixed.ok("build", "//exp:joined")
    declare(fixed, words='"three"')
    assert "is not built as it is declared now" in fixed.run("publish", "//exp:joined", code=1).err
    assert fixed.ok("refs", "-o", "json").json[0]["published"] is False


def test_a_dev_version_cannot_be_published(fixed: Mini) -> None:
    declare(fixed, version="dev")
    fixed.ok("build", "//exp:joined")
    assert "`exp/joined@dev` is a dev version" in fixed.run("publish", "//exp:joined", code=2).err
    made = fixed.ok("publish", "//exp/...", "-o", "json").json
    assert [row["name"] for row in made] == ["exp/words@2026.01.30"], "a wildcard passes it over"
    declare(fixed, version="dev", below="dev")
    assert "nothing of what is named has a fixed version" in fixed.run("publish", "//exp/...", code=2).err


def test_publishing_the_same_again_is_fine(fixed: Mini) -> None:
    fixed.ok("build", "//exp:joined")
    first = fixed.ok("publish", "//exp:joined", "-o", "json").json
    assert [row["status"] for row in first] == ["published"]
    again = fixed.ok("publish", "//exp:joined", "-o", "json").json
    assert [row["status"] for row in again] == ["stands"]
    assert {**first[0], "status": ""} == {**again[0], "status": ""}
    fixed.ok("build", "//exp:joined")
    assert fixed.counts("//exp:joined")["executed"] == 0


def test_all_or_nothing_is_published(fixed: Mini) -> None:
    fixed.ok("build", "//exp:words")
    fixed.run("publish", "//exp/...", code=1)
    assert not any(ref["published"] for ref in fixed.ok("refs", "-o", "json").json)


def test_refs_are_listed(published: Mini) -> None:
    user = getpass.getuser()
    declare(published, version="mine-dev")
    published.ok("build", "//exp:joined")
    refs = {ref["ref"]: ref for ref in published.ok("refs", "-o", "json").json}
    assert list(refs) == ["exp/joined@2026.01.31", f"users/{user}/exp/joined@mine-dev", "exp/words@2026.01.30"]
    assert [ref["published"] for ref in refs.values()] == [True, False, False]
    assert refs["exp/joined@2026.01.31"]["user"] == user and refs["exp/joined@2026.01.31"]["time"] > 0
    text = published.ok("refs").out
    assert text.splitlines()[0].startswith("published  exp/joined@2026.01.31") and f"by {user}@" in text
    for pattern, count in (
        ("exp/words", 1),
        ("*@2026.*", 2),
        ("users/*", 1),
        ("//exp:joined", 2),
        ("//exp/...", 3),
        ("no*", 0),
    ):
        assert len(published.ok("refs", pattern, "-o", "json").json) == count, pattern
    assert published.ok("refs", "no*").err == "there are no such refs in this cache\n"
    one = published.ok("cache", "cat", f"users/{user}/exp/joined@mine-dev/all.txt").out
    assert one == published.ok("cache", "cat", "exp/joined@2026.01.31/all.txt").out == "one\ntwo\n"


def test_a_dev_version_is_its_users_own(fixed: Mini) -> None:
    declare(fixed, version="dev", below="dev")
    fixed.ok("build", "//exp:joined", env={"LOGNAME": "ann"})
    declare(fixed, version="dev", below="dev", words='"three"')
    fixed.ok("build", "//exp:joined", env={"LOGNAME": "bob"})
    refs = {ref["ref"]: ref["key"] for ref in fixed.ok("refs", "exp/joined", "-o", "json").json}
    assert set(refs) == {"users/ann/exp/joined@dev", "users/bob/exp/joined@dev"} and len(set(refs.values())) == 2
    for user, text in (("ann", "one\ntwo\n"), ("bob", "three\n")):
        assert fixed.ok("cache", "cat", "exp/joined@dev/all.txt", env={"LOGNAME": user}).out == text


def test_unpublished_versions_move(fixed: Mini) -> None:
    fixed.ok("build", "//exp:joined")
    before = fixed.ok("refs", "exp/joined", "-o", "json").json[0]["key"]
    declare(fixed, words='"three"')
    fixed.ok("build", "//exp:joined")
    assert fixed.ok("refs", "exp/joined", "-o", "json").json[0]["key"] != before


def test_what_is_published_is_kept(published: Mini) -> None:
    declare(published, version="2026.02.01", words='"three"', below="2026.02.01")
    published.ok("build", "//exp:joined")
    published.ok("cache", "roots", "--forget", str(published.root))
    published.ok("cache", "gc", "--max-age", "0s", "--grace", "0s")
    assert published.ok("cache", "cat", "exp/joined@2026.01.31/all.txt").out == "one\ntwo\n"
    assert published.run("cache", "cat", "exp/joined@2026.02.01/all.txt", code=1)


# Another identity


def test_another_identity_under_a_published_version_is_refused(published: Mini) -> None:
    declare(published, words='"one", "three"')
    plan = published.run("build", "-n", "//exp:joined", code=2)
    assert "//exp:joined" in plan.out and "not what was published as `exp/joined@2026.01.31`" in plan.out
    error = published.run("build", "//exp:joined", code=2).err
    assert "exp/BUILD.marin:10: `//exp:joined` is not what was published as `exp/joined@2026.01.31`" in error
    assert '//exp:words: params.words[1]: "two" -> "three"' in error
    assert "give it a new `version`, or undo the change" in error
    assert 'params.words[1]: "two" -> "three"' in published.run("why", "//exp:joined").out
    declare(published, words='"one", "three"', version="2026.02.01")
    published.ok("build", "//exp:joined")
    declare(published)
    assert published.counts("//exp:joined")["executed"] == 0, "what was published is served as ever"


def test_its_own_values_are_told(published: Mini) -> None:
    declare(published, more='\n    params = {"way": {"deep": 1.5}},')
    error = published.run("build", "//exp:joined", code=2).err
    assert '  params.way: (absent) -> {"deep": 1.5}\n' in error and "//exp:words:" not in error


def test_what_stands_on_it_is_refused_too(published: Mini) -> None:
    build = published.root / "exp/BUILD.marin"
    top = '\npy_action(name = "top", function = "exp/functions.py:join", inputs = {"a": ":joined"})\n'
    declare(published, words='"three"', version="2026.02.01")
    build.write_text(build.read_text() + top)
    published.ok("build", "//exp:top")
    declare(published, words='"three"')
    build.write_text(build.read_text() + top)
    ran = published.run("build", "//exp:top", code=2)
    assert "not what was published" in ran.err, "though the top was built from this very identity"


def test_an_unchanged_build_notices_what_is_published_since(fixed: Mini) -> None:
    """The quick answer of an unchanged build knows nothing of refs."""
    fixed.ok("build", "//exp:joined")
    other = fixed.root.parent / "other"
    other.mkdir()
    there = Mini(other, fixed.home)
    there.write({"marin.toml": f'cache = "{fixed.root}/cache"\n'})
    declare(there, words='"three"')
    there.ok("build", "//exp:joined")
    there.ok("publish", "//exp:joined")
    assert "not what was published" in fixed.run("build", "//exp:joined", code=2).err
    assert "not what was published" in fixed.run("publish", "//exp:joined", code=2).err
    assert [ref["published"] for ref in there.ok("refs", "exp/joined", "-o", "json").json] == [True]


def test_the_same_result_by_another_way_is_the_same(published: Mini) -> None:
    """The source of a function below changed, and it wrote the same bytes: the key is the published one."""
    functions = published.root / "exp/words.py"
    functions.write_text(functions.read_text().replace("word + ", "str(word) + "))
    published.ok("build", "//exp:words")
    assert published.counts("//exp:joined")["executed"] == 0
    assert published.ok("publish", "//exp:joined", "-o", "json").json[0]["status"] == "stands"


# Row 64 of what users of other tools suffered: a changed value is named wherever a key is shown.


def test_64_one_nested_float_is_named_by_why_plans_and_refusals(fixed: Mini) -> None:
    way = '\n    params = {"way": {"deep": [1, %s]}},'
    declare(fixed, more=way % "0.25")
    fixed.ok("build", "//exp:joined")
    declare(fixed, more=way % "0.5")
    change = "params.way.deep[1]: 0.25 -> 0.5"
    [decision] = [
        row for row in fixed.ok("build", "-n", "//exp:joined", "-o", "json").json if row["label"] == "//exp:joined"
    ]
    assert decision["reason"]["changes"] == [{"path": "params.way.deep[1]", "before": "0.25", "after": "0.5"}]
    assert change in fixed.ok("build", "-n", "//exp:joined").out and change in fixed.ok("why", "//exp:joined").out
    [action] = [row for row in fixed.ok("aquery", "//exp:joined", "-o", "json").json if row["action"] == "//exp:joined"]
    assert action["key"] == decision["key"] and action["fingerprint"] == decision["fingerprint"]
    declare(fixed, more=way % "0.25")
    fixed.ok("publish", "//exp:joined")
    declare(fixed, more=way % "0.5")
    assert f"\n  {change}\n" in fixed.run("build", "//exp:joined", code=2).err


# Drift

RULES = '''"""A rule for tests."""

def _step(ctx):
    made = ctx.actions.run(
        tool = "function",
        revision = 1,
        params = {"function": "exp/functions.py:words", "params": {"words": ["one"]}},
        outputs = {"files": "tree"},
        code = "exp/functions.py:words",
        toolchain = %s,
    )
    return [DefaultInfo(outputs = made)]

step = rule(implementation = _step, attrs = {})
'''
STEP = """
load("//rules:step.bzl", "step")
step(name = "step", version = "2026.01.31")
"""


def lock(mini: Mini, **versions: str) -> None:
    lines = "".join(f'"{name}" = "{version}"\n' for name, version in versions.items())
    mini.write({"marin.lock": f"format = 1\n\n[toolchain]\n{lines}"})


def installed(name: str) -> str:
    from importlib.metadata import version

    return version(name)


@pytest.fixture
def drifted(mini: Mini) -> Mini:
    """`//exp:step` was published by click as it is, and the lock has another one since."""
    mini.write({"exp/functions.py": FUNCTIONS, "rules/step.bzl": RULES % '["click"]', "exp/BUILD.marin": DATA + STEP})
    lock(mini, click=installed("click"))
    mini.ok("build", "//exp:step")
    mini.ok("publish", "//exp:step")
    lock(mini, click="0.0.1")
    return mini


def test_an_upgrade_serves_what_was_published(drifted: Mini) -> None:
    change = f'toolchain.click: "{installed("click")}" -> "0.0.1"'
    plan = drifted.ok("build", "-n", "//exp:step")
    assert plan.out.startswith("hit") and change in plan.out
    for _ in range(2):
        ran = drifted.ok("build", "//exp:step")
        [line] = [line for line in ran.err.splitlines() if line.startswith("warning:")]
        assert "`//exp:step` is served as it was published as `exp/step@2026.01.31`" in line and change in line
    assert drifted.ok("cache", "cat", "//exp:step/one.txt").out == "one\n"
    assert drifted.ok("publish", "//exp:step", "-o", "json").json[0]["status"] == "stands"


def test_what_stands_on_a_drifted_one_is_made_from_what_was_published(drifted: Mini) -> None:
    build = drifted.root / "exp/BUILD.marin"
    build.write_text(
        build.read_text() + 'py_action(name = "top", function = "exp/functions.py:join", inputs = {"a": ":step"})\n'
    )
    assert drifted.counts("//exp:top")["executed"] == 1
    assert drifted.counts("//exp:top")["executed"] == 0
    assert drifted.ok("cache", "cat", "//exp:top/all.txt").out == "one\n"
    # The same declarations without the published version are another thing, and nothing is served for them.
    build.write_text(build.read_text().replace("2026.01.31", "dev"))
    plan = drifted.ok("build", "-n", "//exp:top").out
    assert [line.split()[:2] for line in plan.splitlines()] == [["miss", "//exp:step"], ["miss", "//exp:top"]]


def test_an_upgrade_and_a_change_are_another_identity(drifted: Mini) -> None:
    functions = drifted.root / "exp/functions.py"
    functions.write_text(functions.read_text().replace('word + "\\n"', 'word + "."'))
    error = drifted.run("build", "//exp:step", code=2).err
    assert "not what was published" in error and "params.code" in error and "toolchain.click" in error


def test_a_drifted_one_is_never_made_again(drifted: Mini) -> None:
    error = drifted.run("build", "--again", "//exp:step", code=2).err
    assert "another tool or other libraries would make it now" in error
    for blob in drifted.root.glob("cache/cas/*/*"):
        if blob.read_bytes() == b"one\n":
            os.unlink(blob)
    for folder in ("out", "trees"):
        subprocess.run(["rm", "-rf", str(drifted.root / "cache" / folder)], check=True)
    error = drifted.run("build", "//exp:step", code=1).err
    assert "is published as `exp/step@2026.01.31`, its bytes are gone" in error


# Expected fingerprints


def test_an_expected_fingerprint(fixed: Mini) -> None:
    [row] = [row for row in fixed.ok("aquery", "//exp:joined", "-o", "json").json if row["action"] == "//exp:joined"]
    fingerprint = row["fingerprint"]
    for text in (fingerprint[:12], fingerprint, fingerprint[:20].upper()):
        declare(fixed, more=f'\n    expected_fingerprint = "{text}",')
        fixed.ok("build", "-n", "//exp:joined")
    declare(fixed, more=f'\n    expected_fingerprint = "{fingerprint[:12]}",', words='"three"')
    for command in (["build"], ["build", "-n"], ["why"]):
        error = fixed.run(*command, "//exp:joined", code=2).err
        assert "exp/BUILD.marin:10: the fingerprint of `//exp:joined` is not the expected one" in error
        assert f"expected  {fingerprint[:12]}\n" in error and "it is     " in error
    for text in (fingerprint[:11], "x" * 12, fingerprint + "0"):
        declare(fixed, more=f'\n    expected_fingerprint = "{text}",')
        assert "cannot be one" in fixed.run("build", "-n", "//exp:joined", code=2).err


def test_what_damages_a_published_ref_is_noticed(published: Mini) -> None:
    [path] = Path(published.root / "cache/refs/published").iterdir()
    path.write_text("{}")
    declare(published, words='"three"')
    assert "is damaged: what was published under this name is not known" in published.run("refs", code=3).err
    assert "is damaged" in published.run("build", "//exp:joined", code=3).err
    assert "is damaged" in published.run("cache", "gc", code=3).err
