"""Imports run downwards only, and nobody imports the tools."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "marin_cas"
# From the ground up: a room uses only rooms before it.
ROOMS = [
    "store",
    "tree",
    "cache",
    "lang",
    "graph",
    "analysis",
    "query",
    "worker",
    "executors",
    "scheduler",
    "ui",
    "api",
    "cli",
]


def _modules():
    return sorted(ROOT.rglob("*.py"))


def _room(parts: tuple[str, ...]) -> str:
    return parts[0] if len(parts) > 1 or (ROOT / parts[0]).is_dir() else "values"


def _imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("marin_cas") and not node.level:
            names = node.module.split(".")[1:]
            yield (tuple(names) if names else tuple(alias.name for alias in node.names)), node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("marin_cas."):
                    yield tuple(alias.name.split(".")[1:]), node.lineno


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_uses_only_rooms_below_it(path):
    own = _room(path.relative_to(ROOT).with_suffix("").parts)
    if path.name == "__main__.py":
        return
    for target, line in _imports(path):
        other = _room(target) if target else "values"
        where = f"{path.relative_to(ROOT)}:{line}"
        if own == "tools":
            # Only what a worker hands to a tool, and values.
            assert other in ("values", "tools") or target[:2] == ("worker", "context"), where
            continue
        assert other != "tools", f"{where} imports a tool"
        if other == "values":
            continue
        assert own != "values", f"{where}: a value module imports {other}"
        assert ROOMS.index(other) <= ROOMS.index(own), f"{where}: {own} imports {other}, which stands above it"


HEAVY = ("jax", "levanter", "pyarrow", "datasets", "gcsfs", "s3fs", "grpc", "fsspec", "numpy", "rich", "transformers")


def test_the_whole_command_line_imports_nothing_heavy():
    modules = [
        "marin_cas." + ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for p in _modules()
        if not {"tools", "ui"} & set(p.relative_to(ROOT).parts) and p.name not in ("__main__.py", "__init__.py")
    ]
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\n"
    code += f"print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
