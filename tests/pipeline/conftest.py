"""The project's own experiment in workspaces of its own, through the command line as a user would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A copy of the checkout's workspace files at `root`; compilations are shared at `compiled`."""

    root: Path
    compiled: Path

    def start(self, *args: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "marin_cas", *args],
            cwd=self.root,
            env={**os.environ, "MARIN_COMPILATION_CACHE": str(self.compiled), "PYTHONPATH": str(CHECKOUT), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, code: int = 0, **environ: str) -> str:
        process = self.start(*args, **environ)
        out, err = process.communicate(timeout=900)
        assert TRACEBACK not in out + err, err
        assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return out

    def build(self, *args: str) -> Mapping[str, Any]:
        return json.loads(self.run("build", *args, "--output", "json"))

    def executed(self, *args: str) -> set[str]:
        """Builds, and gives the labels of what ran."""
        return {a["label"] for a in self.build(*args)["actions"] if a["source"] == "executed"}

    def misses(self, *args: str) -> set[str]:
        """The labels of what a build would run."""
        planned = json.loads(self.run("build", "-n", *args, "--output", "json"))
        return {decision["label"] for decision in planned if decision["status"] == "miss"}

    def keys(self, expression: str) -> dict[str, str]:
        return {a["action"]: a["key"] for a in json.loads(self.run("aquery", expression, "--output", "json"))}

    def path(self, label: str) -> Path:
        return Path(self.run("path", label).strip())

    def edit(self, name: str, before: str, after: str) -> None:
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert before in text, f"{name} has no {before!r}"
        path.write_text(text.replace(before, after), encoding="utf-8")


def copy_experiment(root: Path, compiled: Path) -> Experiment:
    root.mkdir(parents=True)
    for name in ("BUILD.marin", "marin.toml", "marin.lock"):
        shutil.copy2(CHECKOUT / name, root / name)
    shutil.copytree(CHECKOUT / "exp", root / "exp", ignore=shutil.ignore_patterns("__pycache__"))
    # Only the experiment: its packages load the rules as any other workspace does.
    return Experiment(root, compiled)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of XLA's compilations for all pipelines; it is outside every key."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> Iterator[Experiment]:
    yield copy_experiment(tmp_path_factory.mktemp("experiment") / "w", compiled)
