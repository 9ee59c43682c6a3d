"""Every command block of the README and of the pages with commands is run, and prints what the page says it prints.

A block's first line says where it belongs: `console workspace` and `console clone` are run (in a new workspace, and in
a copy of this one's experiment), `python FILE` and `starlark FILE` are files, `+FILE` is added to one, `diff FILE` is
applied. A block of commands of any other kind fails the test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\S*) ?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
COMMANDS = {"sh", "console", "bash", "shell"}


@dataclass(frozen=True, slots=True)
class Block:
    """`language` and `about` are the first line's; `line` is where it stands."""

    page: str
    language: str
    about: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    return [Block(page, m[1], m[2], m[3], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]


class Reader:
    """Does what a page says, as a newcomer would."""

    def __init__(self, folder: Path) -> None:
        self.roots = {"workspace": folder / "workspace", "clone": folder / "clone"}
        home, programs = folder / "home", folder / "bin"
        for path in (self.roots["workspace"], home, programs):
            path.mkdir()
        self._copy_experiment(self.roots["clone"])
        program = programs / "marin"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m marin_cas "$@"\n')
        program.chmod(0o755)
        self.env = {
            "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONUNBUFFERED": "1",  # so that both streams come out in the order in which they were written
            "COLUMNS": "120",
        }

    def _copy_experiment(self, clone: Path) -> None:
        ignored = shutil.ignore_patterns("__pycache__")
        for folder in ("exp", "docs"):
            shutil.copytree(CHECKOUT / folder, clone / folder, ignore=ignored)
        for name in ("marin.toml", "marin.lock", "BUILD.marin", ".marinignore"):
            if (CHECKOUT / name).exists():
                shutil.copy(CHECKOUT / name, clone / name)

    def read(self, page: str) -> None:
        for block in blocks(page):
            self.follow(block)

    def follow(self, block: Block) -> None:
        match block.language, block.about.split():
            case "console", [place, *rest] if place in self.roots:
                self._run_all(block, self.roots[place], int(rest[0].removeprefix("exit=")) if rest else 0)
            case "sh", ["make"]:
                check_make(block)
            case "sh", ["demo"]:
                self._run_script(block, self.roots["clone"])
            case "sh", ["install"]:
                check_install(block)
            case "sh", ["ci"]:
                self._run_script(block, self.roots["workspace"], may_fail=True)
            case language, _ if language in COMMANDS:
                pytest.fail(f"{block}: a block of commands that no test runs")
            case "diff", [name]:
                apply(block, self._file(name))
            case "python" | "starlark", [name]:
                self._write(name, block.text)
            case "python" | "starlark", []:
                compile(block.text, str(block), "exec")  # what Starlark and Python share
            case _:
                pass

    def _file(self, name: str) -> Path:
        return self.roots["clone" if name.startswith("exp/") else "workspace"] / name

    def _write(self, name: str, text: str) -> None:
        path = self._file(name.removeprefix("+"))
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("+"):
            text = f"{path.read_text()}\n{text}"
        path.write_text(text)

    def _run(self, command: str, root: Path) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=root,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout

    def _run_all(self, block: Block, root: Path, last: int) -> None:
        """`last` is the exit code of the block's last command; all others end well."""
        steps = list(sessions(block))
        for number, (command, expected) in enumerate(steps, 1):
            code, printed = self._run(command, root)
            told = f"{block}: `{command}`\n{printed}"
            assert code == (last if number == len(steps) else 0), told
            assert "Traceback" not in printed or "Traceback" in "".join(expected), told
            check_printed(expected, printed, told)

    def _run_script(self, block: Block, root: Path, *, may_fail: bool = False) -> None:
        for command in block.text.splitlines():
            code, printed = self._run(command, root)
            unbuilt = code == 1 and "is not built as it is declared now" in printed
            assert code == 0 or unbuilt or (may_fail and code == 1), f"{block}: `{command}`\n{printed}"


def sessions(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines that it should print."""
    assert block.text.startswith("$ "), f"{block}: begins without a command"
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *expected = part.splitlines()
        yield command, expected


def normal(line: str) -> str:
    """A line without what differs from run to run: digests, durations, times, column widths."""
    line = re.sub(r"\b[0-9a-f]{64}\b", "<key>", line)
    line = re.sub(r"~?\b[0-9a-f]{12}\b", "<key>", line)
    line = re.sub(r"\d+(\.\d+)? (s|min)\b( \d\d s)?", "<time>", line)
    return re.sub(r"\s+", " ", line).strip()


def check_printed(expected: list[str], printed: str, told: str) -> None:
    """The expected lines come out in this order; `...` stands for any lines. Others may come in between."""
    lines = iter([normal(line) for line in printed.splitlines()])
    for line in expected:
        if line.strip() != "...":
            assert normal(line) in lines, f"missing, or not in this order: {line}\n{told}"


def apply(block: Block, path: Path) -> None:
    """A diff without line numbers: lines that stay or go are found in the file; with none of these it is appended."""
    lines = block.text.splitlines()
    before = [line[1:] for line in lines if not line.startswith("+")]
    after = [line[1:] for line in lines if not line.startswith("-")]
    text = path.read_text()
    if not before:
        path.write_text(text + "\n".join(after) + "\n")
        return
    old = "\n".join(before) + "\n"
    assert text.count(old) == 1, f"{block}: these lines are not in {path.name} once:\n{old}"
    path.write_text(text.replace(old, "\n".join(after) + "\n"))


def check_make(block: Block) -> None:
    targets = set(re.findall(r"^([\w-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    for command in block.text.splitlines():
        assert command.split()[0] == "make" and command.split()[1] in targets, f"{block}: `{command}`"


def check_install(block: Block) -> None:
    import tomllib

    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for command in block.text.splitlines():
        found = re.match(r"pip install '?\.(?:\[(\w+)\])?'?\s", command)
        assert found, f"{block}: `{command}`"
        assert found[1] is None or found[1] in extras, f"{block}: no extra `{found[1]}`"


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def test_the_readme_does_what_it_says(reader: Reader):
    reader.read("README.md")
    # The newcomer's dataset is in the plan: tokenized and trained on, and nothing that does not read it.
    code, printed = reader._run("marin build -n //exp:tiny_eval", reader.roots["clone"])
    planned = {line.split()[1] for line in printed.splitlines() if line.startswith(("hit", "miss"))}
    assert code == 0 and {"//exp:pages", "//exp:pages_tokens", "//exp:tiny"} <= planned, printed
    _, needed = reader._run("marin query 'deps(//exp:tokenizer)'", reader.roots["clone"])
    assert "pages" not in needed


def test_the_recipes_do_what_they_say(reader: Reader):
    for block in blocks("README.md"):
        if block.language in ("python", "starlark") and block.about:
            reader.follow(block)
    reader.roots["workspace"].joinpath("marin.toml").touch()
    raw = reader.roots["workspace"] / "corpus" / "raw"
    raw.mkdir(parents=True)
    (raw / "ada.txt").write_text("Ada wrote the first program.\nShe was 27.\n")
    code, printed = reader._run("marin lock", reader.roots["workspace"])
    assert code == 0, printed
    reader.read("docs/recipes.md")


@pytest.mark.parametrize("page", ["training", "memory", "evaluation", "marin"])
def test_the_pages_about_models_do_what_they_say(reader: Reader, page: str):
    reader.read(f"docs/{page}.md")
    code, printed = reader._run("marin query //exp:all", reader.roots["clone"])
    assert code == 0, printed


def test_the_page_about_python_does_what_it_says(reader: Reader):
    reader.roots["workspace"].joinpath("marin.toml").touch()
    reader.read("docs/python.md")


def test_the_example_of_a_rule_works(reader: Reader):
    for page in ("README.md", "docs/build-files.md"):
        for block in blocks(page):
            if block.language in ("python", "starlark") and block.about and not block.about.startswith("exp/"):
                reader.follow(block)
    root = reader.roots["workspace"]
    (root / "marin.toml").touch()
    (root / "corpus" / "raw").mkdir(parents=True)
    (root / "corpus" / "raw" / "ada.txt").write_text("A line, and a line, and a line.\n")
    code, printed = reader._run("marin build //corpus:words_3 && cat cache/out/corpus/words_3/counts.json", root)
    assert code == 0, printed
    assert '[["a", 3], ["and", 2], ["line,", 2]]' in printed, printed
