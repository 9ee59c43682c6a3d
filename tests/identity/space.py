"""Mini workspaces from a list of targets whose attributes are Starlark text, and the commands run in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from marin_cas.analysis.lock import Lock, installed_lock, lock_text
from marin_cas.digest import hash_file
from marin_cas.lang.loader import Loader
from marin_cas.lang.values import RuleDef
from marin_cas.tools.manifest import Manifest

CHECKOUT = Path(__file__).resolve().parents[2]
RULES = CHECKOUT / "rules"
PACKAGE = "exp"
# What the pipeline adopts.
ELSEWHERE = Path(__file__).parent / "elsewhere"

LOADS = """
load("@marin//rules:data.bzl", "adopted", "hf_download", "pretokenized", "py_action", "raw_download")
load("@marin//rules:data.bzl", "tokenized", "tokenizer", "trained_tokenizer")
load("@marin//rules:eval.bzl", "eval_suite", "lm_eval")
load("@marin//rules:mixture.bzl", "mixture")
load("@marin//rules:models.bzl", "adam", "llama")
load("@marin//rules:resources.bzl", "cpu")
load("@marin//rules:train.bzl", "train_lm")
"""

type Attrs = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Declared:
    """One target: each attribute's value as Starlark text."""

    name: str
    rule: str
    attrs: Attrs

    @property
    def label(self) -> str:
        return f"//{PACKAGE}:{self.name}"

    def text(self) -> str:
        lines = "".join(f"    {name} = {value},\n" for name, value in self.attrs.items())
        return f'{self.rule}(\n    name = "{self.name}",\n{lines})\n'


@cache
def all_rules() -> Mapping[str, RuleDef]:
    """Every rule of every rule file that comes with marin-cas, by name."""
    loader = Loader(CHECKOUT, RULES)
    for file in sorted(RULES.rglob("*.bzl")):
        loader.load_bzl(_rule_file(file))
    return {name: rule for name, rule in loader.rules().items() if not rule.native}


def _rule_file(file: Path):
    from marin_cas.label import parse_label

    folder = file.parent.relative_to(RULES)
    package = "rules" if folder == Path() else f"rules/{folder.as_posix()}"
    return parse_label(f"@marin//{package}:{file.name}")


@cache
def lock() -> Lock:
    """The installed versions of all that any rule lists, and what lies elsewhere."""
    held = str(Manifest.of({path.name: hash_file(path) for path in ELSEWHERE.iterdir()}))
    before = Lock({}, prefix={f"file://{ELSEWHERE}/": held})
    return installed_lock({name for rule in all_rules().values() for name in rule.toolchain} | {"click"}, before)


@dataclass(frozen=True, slots=True)
class Space:
    """A workspace at `root`. Its commands run below `prefix` (such as `taskset -c 0`), with `env` added."""

    root: Path
    files: Mapping[str, str]
    loads: str = LOADS
    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def write(self, targets: Sequence[Declared]) -> None:
        files = {"marin.toml": "", "marin.lock": lock_text(lock()), **self.files}
        files[f"{PACKAGE}/BUILD.marin"] = "\n".join([self.loads, *(target.text() for target in targets)])
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def marin(self, *args: str, cwd: str = "", codes: Sequence[int] = (0,), timeout: float = 900) -> str:
        """What the command prints. Its exit code must be one of `codes`."""
        home = self.root.parent / f"{self.root.name}-home"
        home.mkdir(exist_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(CHECKOUT),
            **self.env,
        }
        ran = subprocess.run(
            [*self.prefix, sys.executable, "-m", "marin_cas", *args],
            cwd=self.root / cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert ran.returncode in codes, f"`marin {' '.join(args)}` ended with {ran.returncode}\n{ran.stderr[-6000:]}"
        return ran.stdout

    def build(self, *labels: str, codes: Sequence[int] = (0,), options: Sequence[str] = ()) -> Mapping[str, Any]:
        """The report of a build."""
        return json.loads(self.marin("build", *labels, *options, "-q", "--output", "json", codes=codes))

    def actions(self, expression: str = "//...", cwd: str = "") -> Mapping[str, Mapping[str, Any]]:
        """What `marin aquery` says of each action, by its id."""
        return {
            record["action"]: record
            for record in json.loads(self.marin("aquery", expression, "--output", "json", cwd=cwd))
        }
