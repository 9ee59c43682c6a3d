"""A mini workspace whose builds are killed, starved of disk and cut from power; what must hold after each."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin_cas.cache.entry import UNREADABLE, Entry
from marin_cas.digest import Digest, hash_file

CHECKOUT = Path(__file__).resolve().parent.parent.parent

# Three actions: a tree with an executable, a file twice and a folder; a single file; and a tree from both and from a
# workspace file.
FUNCTIONS = """
def words(ctx):
    for word in ctx.params["words"]:
        (ctx.output_path / f"{word}.txt").write_text(word + "\\n")
    first = ctx.params["words"][0]
    (ctx.output_path / "again.txt").write_text(first + "\\n")
    (ctx.output_path / "below").mkdir()
    (ctx.output_path / "below" / "tool").write_text("#!/bin/sh\\n")
    (ctx.output_path / "below" / "tool").chmod(0o755)


def count(ctx):
    print("counting")
    ctx.output_path.write_text(f"{len(list(ctx.inputs['words'].rglob('*.txt')))}\\n")


def join(ctx):
    texts = [ctx.inputs["count"].read_text(), ctx.inputs["title"].read_text()]
    texts += [path.read_text() for path in sorted(ctx.inputs["words"].rglob("*.txt"))]
    (ctx.output_path / "all.txt").write_text("".join(texts))
"""
COUNTING = """# A rule with one file as its output.
def _counted(ctx):
    words = ctx.attr.words.TreeInfo.artifact
    made = ctx.actions.run(
        tool = "function", revision = 1, params = {"function": ctx.attr.function, "params": {}},
        inputs = {"words": words}, outputs = {"count": "file"}, code = ctx.attr.function,
    )
    return [DefaultInfo(outputs = made)]

counted = rule(implementation = _counted, attrs = {
    "words": attr.label(mandatory = True, providers = ["TreeInfo"], doc = "the tree"),
    "function": attr.string(mandatory = True, doc = "what counts"),
}, doc = "How many files a tree has.")
"""
BUILD = """
load("@marin//rules:data.bzl", "py_action", "raw_download")
load("//rules:count.bzl", "counted")

raw_download(name = "words", function = "f.py:words", params = {"words": ["one", "two"]})
counted(name = "count", words = ":words", function = "f.py:count")
py_action(
    name = "joined",
    function = "f.py:join",
    inputs = {"words": ":words", "count": ":count", "title": "title.txt"},
)
"""
TARGETS = ("//:joined", "//:words", "//:count")
RIGHT = {
    "joined/all.txt": b"3\nTitle\none\none\ntwo\n",
    "words/one.txt": b"one\n",
    "words/two.txt": b"two\n",
    "words/again.txt": b"one\n",
    "words/below/tool": b"#!/bin/sh\n",
    "count": b"3\n",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; a negative `status` is the signal that killed it. `calls` are [role, n, name, kind]."""

    status: int
    out: str
    err: str
    fired: list[list[str]]
    calls: list[list[Any]]
    seconds: float
    found: list[str]


class Driver:
    """The warm process of driver.py."""

    def __init__(self, home: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, os.fspath(CHECKOUT / "tests/faults/driver.py")],
            env={**kept, "HOME": os.fspath(home), "PYTHONPATH": os.fspath(CHECKOUT), "COLUMNS": "120"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, root: Path, *args: str, **more: Any) -> Ended:
        """One command line in the workspace `root`. `fault`, `trace` and `boot` as driver.py has them."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"cwd": os.fspath(root), "cache": os.fspath(root / "cache"), "args": args, **more}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the driver is gone"
        ended = Ended(**json.loads(line))
        assert "Traceback" not in ended.out + ended.err, ended.err
        assert "a bug of marin-cas" not in ended.err, ended.err
        assert ended.status != 124, f"`marin {' '.join(args)}` hangs\n{ended.err}"
        return ended

    def ok(self, root: Path, *args: str, **more: Any) -> Ended:
        ended = self.run(root, *args, **more)
        assert ended.status == 0, f"exit {ended.status}\n{ended.out}\n{ended.err}"
        return ended

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    made = Driver(tmp_path_factory.mktemp("home"))
    yield made
    made.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace."""
    root = tmp_path / "w"
    files = {"marin.toml": "", "title.txt": "Title\n", "f.py": FUNCTIONS, "rules/count.bzl": COUNTING}
    for name, text in {**files, "rules/BUILD.marin": "", "BUILD.marin": BUILD}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return root


def fresh(root: Path) -> None:
    """Takes the workspace's cache away."""
    if (root / "cache").exists():
        for folder in (root / "cache").rglob("*/"):
            folder.chmod(0o755)
        shutil.rmtree(root / "cache")


def assert_sound(cache: Path) -> None:
    """Nothing is half there under a final name."""
    for path in cache.glob("cas/??/*"):
        assert hash_file(path).hex == path.name.removesuffix(".x"), path
        assert stat.S_IMODE(path.stat().st_mode) == (0o555 if path.name.endswith(".x") else 0o444), path
    for path in cache.glob("ac/??/*/*"):
        assert Entry.parse(1, path.read_bytes()).state != UNREADABLE, path
    for path in cache.glob("fp/*/*"):
        Digest.parse(path.read_text().removesuffix("\n"))
    # A line of a history may be torn; these are replaced whole.
    for name in ("refs/users/*/*", "synced"):
        for path in cache.glob(name):
            json.loads(path.read_text())


def assert_right(root: Path) -> None:
    """Everybody sees the right bytes."""
    for name, data in RIGHT.items():
        assert (root / "cache/out" / name).read_bytes() == data, name
    tool = root / "cache/out/words/below/tool"
    assert tool.stat().st_mode & 0o111 and (root / "cache/out/words/one.txt").stat().st_mode & 0o111 == 0


def assert_recovers(driver: Driver, root: Path, *, executed: int | None = None) -> None:
    """After whatever happened: verify finds nothing wrong, and the next build ends right and at once."""
    args = ("build", *TARGETS, "--output", "json", "--progress", "plain")
    assert_sound(root / "cache")
    built = driver.ok(root, *args, look={"allowed": None, "kept": []})
    assert not built.found, built.found
    assert "wait " not in built.err and "warning" not in built.err, built.err
    assert_right(root)
    assert_sound(root / "cache")
    counts = json.loads(built.out)["counts"]
    assert executed is None or counts["executed"] == executed, counts
    # What the dead left is swept: a process that ended well leaves its heartbeat at most.
    assert all(path.name.endswith("-beat") for path in (root / "cache/tmp").iterdir())


class Totals:
    """What a test tried, added up over all tests in the summary of the run."""

    def __init__(self, note: Callable[[str, object], None]) -> None:
        self._note = note

    def add(self, kind: str, *, listed: int, fired: int, losses: int = 0) -> None:
        self._note("faults", [kind, listed, fired, losses])


@pytest.fixture
def totals(record_property: Callable[[str, object], None]) -> Totals:
    return Totals(record_property)
