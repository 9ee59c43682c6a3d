"""Mini workspaces driven through the command line, as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
TRACEBACK = "Traceback (most recent call last)"

DATA = 'load("@marin//rules:data.bzl", "py_action", "raw_download")\n'
FUNCTIONS = '''
def words(ctx):
    """Writes each of its words to a file of its own."""
    for word in ctx.params["words"]:
        (ctx.output_path / f"{word}.txt").write_text(word + "\\n")


def join(ctx):
    """Joins all files of all inputs."""
    text = "".join(p.read_text() for name in sorted(ctx.inputs) for p in sorted(ctx.inputs[name].rglob("*.txt")))
    (ctx.output_path / "all.txt").write_text(text)


def fail(ctx):
    print("about to fail")
    raise ValueError("no luck")
'''


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Mini:
    """A workspace at `root`; `home` is the user's own folder."""

    root: Path
    home: Path

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "marin_cas", *args]

    def environ(self, **extra: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        return {**kept, "HOME": str(self.home), "PYTHONPATH": str(CHECKOUT), "COLUMNS": "120", **extra}

    def start(self, *args: str, cwd: str = "", env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """The command running, for tests that interfere with it."""
        return subprocess.Popen(
            self.command(*args),
            cwd=self.root / cwd,
            env=self.environ(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, cwd: str = "", code: int | None = None, env: Mapping[str, str] | None = None) -> Ran:
        """Runs the command to its end. With `code`, the exit code must be that one."""
        process = self.start(*args, cwd=cwd, env=env)
        out, err = process.communicate(timeout=120)
        assert TRACEBACK not in out + err, err
        assert code is None or process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return Ran(process.returncode, out, err)

    def ok(self, *args: str, cwd: str = "", env: Mapping[str, str] | None = None) -> Ran:
        return self.run(*args, cwd=cwd, code=0, env=env)

    def counts(self, *args: str) -> dict[str, int]:
        """Builds, and says how many actions were executed, served, ..."""
        return self.ok("build", *args, "--output", "json").json["counts"]


@pytest.fixture
def mini(tmp_path: Path) -> Mini:
    """An empty workspace."""
    root, home = tmp_path / "w", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    workspace = Mini(root, home)
    workspace.write({"marin.toml": ""})
    return workspace


@pytest.fixture
def words(mini: Mini) -> Mini:
    """A workspace with two targets: `//exp:words` writes files, `//exp:joined` joins them."""
    mini.write(
        {
            "exp/functions.py": FUNCTIONS,
            "exp/BUILD.marin": DATA
            + textwrap.dedent(
                """
                raw_download(
                    name = "words",
                    function = "exp/functions.py:words",
                    params = {"words": ["one", "two"]},
                )

                py_action(
                    name = "joined",
                    function = "exp/functions.py:join",
                    inputs = {"words": ":words"},
                )
                """
            ),
        }
    )
    return mini
