"""docs/marin.md has every argument of Marin's documentation, and what it says stands here is here."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from marin_cas import api
from marin_cas.label import Label
from marin_cas.lang.loader import Loader
from tests.unit.marin_signatures import NAMES, SIGNATURES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/marin.md").read_text(encoding="utf-8")
NOT_HERE = "—"
HERE = re.compile(r"^Here: `(\w+)` of `([\w/]+\.bzl)`\.$", re.MULTILINE)
TEST = re.compile(r"\[`(test_\w+)`\]\((\.\./tests/[\w/]+\.py)\)")


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of its tables' rows, without headings."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        found += [[cell.strip() for cell in line[1:-1].split(" | ")] for line in table.splitlines()[2:]]
    return found


def defined(file: str) -> ast.Module:
    return ast.parse((ROOT / "rules" / file).read_text(encoding="utf-8"))


@cache
def taken(name: str, file: str) -> Mapping[str, str]:
    """What a rule or a function takes, each as the page writes it: with its default where it has one."""
    loader = Loader(ROOT, ROOT / "rules")
    folder, _, last = f"rules/{file}".rpartition("/")
    loader.load_bzl(Label(folder, last, "marin"))
    rule = loader.rules().get(name)
    if rule is not None:
        return {
            attr: attr if spec.mandatory else f"{attr} = {shown(spec.default)}" for attr, spec in rule.attrs.items()
        }
    (node,) = [node for node in defined(file).body if isinstance(node, ast.FunctionDef) and node.name == name]
    plain = node.args.args
    defaults = [None] * (len(plain) - len(node.args.defaults)) + [
        ast.unparse(each).replace("'", '"') for each in node.args.defaults
    ]
    return {
        arg.arg: arg.arg if default is None else f"{arg.arg} = {default}"
        for arg, default in zip(plain, defaults, strict=True)
    }


def shown(default: object) -> str:
    if isinstance(default, dict) and default:
        return "..."
    return str(default) if default is None or isinstance(default, bool) else json.dumps(default)


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_builder_has_the_arguments_of_the_documentation(name: str) -> None:
    written = {cells[0]: cells[1] for cells in rows(section(name))}
    assert written == {
        f"`{argument}`": "required" if default is None else f"`{default}`"
        for argument, default in SIGNATURES[name].items()
    }


@pytest.mark.parametrize("name", SIGNATURES)
def test_what_stands_for_an_argument_is_here(name: str) -> None:
    text = section(name)
    here = HERE.search(text)
    assert here, "which rule or function it is"
    known = taken(here[1], here[2])
    for argument, _, ours, differs, _ in rows(text):
        if ours == NOT_HERE:
            assert differs, f"{name}: why {argument} is not here"
            continue
        attr = ours.strip("`").split(" = ")[0]
        assert known.get(attr) == ours.strip("`"), f"{name}: {argument}"
        assert differs or f"`{attr}`" == argument, f"{name}: {argument} is called `{attr}`, and nothing says so"


def test_every_row_names_a_test_that_exists() -> None:
    tested = [*SIGNATURES, "Other names", "Known defects of Marin"]
    for cells in (cells for name in tested for cells in rows(section(name))):
        found = TEST.fullmatch(cells[-1])
        assert found, cells
        source = (ROOT / "docs" / found[2]).resolve().read_text(encoding="utf-8")
        assert re.search(rf"^def {found[1]}\(", source, re.MULTILINE), cells


def test_every_other_name_of_the_documentation_is_there() -> None:
    names = {name: cells[1] for cells in rows(section("Other names")) for name in re.findall(r"`(\w+)`", cells[0])}
    assert set(names) == NAMES
    for name, here in names.items():
        if same := re.search(r"the same names? in `([\w/]+\.bzl)`", here):
            assigned = [node.targets[0] for node in defined(same[1]).body if isinstance(node, ast.Assign)]
            assert name in {target.id for target in assigned if isinstance(target, ast.Name)}


def test_python_has_every_name_of_the_documentation() -> None:
    assert not [name for name in {*NAMES, *(each.split(".")[0] for each in SIGNATURES)} if not hasattr(api, name)]
