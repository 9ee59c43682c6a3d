"""The identity of user code: what changes it, what does not, and what is refused with a place."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3
from cbor2 import dumps
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.analysis.code import Code, code_identity
from marin_cas.errors import Location, RequestError

HERE = Location("exp/BUILD.marin", 7)

FUNCTION = '''\
def drop_short(ctx):
    """Drops short documents."""
    for line in ctx.inputs:
        if len(line) > 3:
            print(f"{line!r:>{10}}")
'''


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def identity(root: Path, function: str = "exp/clean.py:drop_short", toolchain: tuple[str, ...] = ("python",)) -> Code:
    return code_identity(root, function, toolchain, where=HERE)


def refused(
    root: Path, function: str = "exp/clean.py:drop_short", toolchain: tuple[str, ...] = ("python",)
) -> RequestError:
    with pytest.raises(RequestError) as caught:
        identity(root, function, toolchain)
    return caught.value


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, exp__clean=FUNCTION)
    return tmp_path


def test_the_digest_can_be_computed_by_someone_else(tmp_path: Path) -> None:
    write(tmp_path, a="def f(ctx):\n  return  1 # one\n\n")
    tokens = [
        ["NAME", "def"], ["NAME", "f"], ["OP", "("], ["NAME", "ctx"], ["OP", ")"], ["OP", ":"], ["NEWLINE", ""],
        ["INDENT", ""], ["NAME", "return"], ["NUMBER", "1"], ["NEWLINE", ""], ["DEDENT", ""],
    ]  # fmt: skip
    expected = blake3(b"marin-cas code 1\n" + dumps(["a", tokens], canonical=True)).digest()
    assert identity(tmp_path, "a.py:f") == Code("a.py:f", expected, ("a.py",))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: "# a comment\n\n" + s,
        lambda s: s.replace("        ", "            ").replace("    for", "    # why\n    for"),
        lambda s: s.replace("if len(line) > 3:", "if len( line )>3:  # short"),
        lambda s: s.replace("\n", "\r\n"),
        lambda s: s + "\n\n\n",
        lambda s: s.replace("if len(line) > 3:", "if len(line) \\\n                > 3:"),
    ],
)
def test_layout_does_not_count(root: Path, change) -> None:
    before = identity(root).digest
    path = root / "exp/clean.py"
    path.write_bytes(change(FUNCTION).encode())
    assert path.read_text() != FUNCTION or b"\r" in path.read_bytes()
    assert identity(root).digest == before


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.replace("3", "4"),
        lambda s: s.replace("3", "3.0"),
        lambda s: s.replace("Drops", "Keeps"),
        lambda s: s.replace("{10}", "{11}"),
        lambda s: s.replace("!r", "!s"),
        lambda s: s.replace(
            '            print(f"{line!r:>{10}}")', '            pass\n        print(f"{line!r:>{10}}")'
        ),
    ],
)
def test_meaning_counts(root: Path, change) -> None:
    before = identity(root).digest
    assert change(FUNCTION) != FUNCTION
    (root / "exp/clean.py").write_text(change(FUNCTION))
    assert identity(root).digest != before


def test_every_module_reached_counts_and_no_other(root: Path) -> None:
    write(
        root,
        exp__clean="def drop_short(ctx):\n    from exp.helpers import deep\n    import lib.text as t\n",
        exp__helpers__deep="from .sibling import x\nfrom .. import top\n",
        exp__helpers__sibling="x = 1\n",
        exp__top="y = 1\n",
        exp__other="z = 1\n",
    )
    for path in ("exp/helpers/__init__.py", "lib/__init__.py"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("")
    write(root, lib__text="from exp.clean import drop_short\n")
    before = identity(root)
    assert before.modules == (
        "exp/clean.py",
        "exp/helpers/__init__.py",
        "exp/helpers/deep.py",
        "exp/helpers/sibling.py",
        "exp/top.py",
        "lib/__init__.py",
        "lib/text.py",
    )
    write(root, exp__other="z = 2\n")
    assert identity(root) == before
    for path in before.modules:
        text = (root / path).read_text()
        (root / path).write_text(text + "\nchanged = 1\n")
        assert identity(root).digest != before.digest, path
        (root / path).write_text(text)
    assert identity(root) == before


def test_where_the_workspace_lies_does_not_count(tmp_path: Path) -> None:
    for place in ("one", "two/deeper"):
        write(tmp_path / place, exp__clean=FUNCTION)
    assert identity(tmp_path / "one") == identity(tmp_path / "two/deeper")


def test_imports_for_the_type_checker_do_not_run_and_do_not_count(root: Path) -> None:
    write(
        root,
        exp__clean=FUNCTION
        + "\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy\n    import no.such\n",
    )
    assert identity(root).modules == ("exp/clean.py",)


def test_a_third_party_import_needs_its_distribution_in_the_toolchain(root: Path) -> None:
    write(root, exp__clean="def drop_short(ctx):\n    pass\n", exp__helpers="\n\ndef g():\n    import yaml\n")
    (root / "exp/clean.py").write_text("import exp.helpers\n" + FUNCTION)
    error = refused(root, toolchain=("python",))
    assert error.where == Location("exp/helpers.py", 4)
    assert "`yaml` comes from `PyYAML`" in error.message
    assert error.hint == 'in the target: toolchain = ["python", "PyYAML"]'
    assert identity(root, toolchain=("python", "PyYAML")).modules == ("exp/clean.py", "exp/helpers.py")


def test_one_of_several_distributions_of_a_namespace_is_enough(root: Path) -> None:
    write(root, exp__clean="import google.protobuf\n" + FUNCTION)
    assert "toolchain" in refused(root).message
    assert identity(root, toolchain=("protobuf",)).digest == identity(root, toolchain=("protobuf", "python")).digest


def test_a_distribution_that_is_not_installed_here_does_not_change_the_identity(root: Path) -> None:
    write(root, exp__clean="import torch\n" + FUNCTION)
    assert "not installed" in refused(root).message
    assert identity(root, toolchain=("torch",)).modules == ("exp/clean.py",)


def test_a_data_folder_does_not_hide_an_installed_package(root: Path) -> None:
    (root / "numpy").mkdir()
    write(root, exp__clean="import numpy as np\nfrom numpy import linalg\n" + FUNCTION)
    assert identity(root, toolchain=("numpy",)).modules == ("exp/clean.py",)


def test_a_module_with_a_name_of_the_standard_library_is_refused(root: Path) -> None:
    write(root, random="", exp__clean="import json\nimport random\n" + FUNCTION)
    error = refused(root)
    assert error.where == Location("exp/clean.py", 2) and "`random.py`" in error.message


@pytest.mark.parametrize(
    ("source", "function", "message", "hint"),
    [
        (FUNCTION, "exp/clean.py:drop_shrot", "no function `drop_shrot`", "did you mean `drop_short`?"),
        (FUNCTION, "exp/claen.py:drop_short", "no file `exp/claen.py`", "did you mean `clean.py`?"),
        (FUNCTION, "exp/clean.py", "is not a function", "for example"),
        (FUNCTION, "exp.clean:drop_short", "is not a function", "for example"),
        (FUNCTION, "/exp/clean.py:drop_short", "not a plain path", None),
        (FUNCTION, "../exp/clean.py:drop_short", "not a plain path", None),
        (FUNCTION, "exp/clean.py:<lambda>", "not a function at the top level", "lambdas"),
        (FUNCTION, "exp/clean.py:f.<locals>.g", "not a function at the top level", "nested"),
        ("f = lambda ctx: 1\n", "exp/clean.py:f", "assigned a value, such as a lambda", "`def`"),
        ("class f: pass\n", "exp/clean.py:f", "a class", "`def`"),
        ("async def f(ctx): pass\n", "exp/clean.py:f", "an async function", "`def`"),
        ("from json import loads as f\n", "exp/clean.py:f", "imported from elsewhere", "holds it"),
        ("def f():\n  def g(): pass\n", "exp/clean.py:g", "no function `g`", "it has `f`"),
    ],
)
def test_what_is_no_function_is_refused_at_the_declaration(root: Path, source, function, message, hint) -> None:
    write(root, exp__clean=source)
    error = refused(root, function)
    assert error.where == HERE
    assert message in error.message
    assert hint is None or hint in (error.hint or "")


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("def f(:\n", 1, "not Python"),
        ("x = 1\nimport exp.helprs\n", 2, "no module `helprs` in `exp`"),
        ("from exp import helprs\n", 1, "no module `helprs` in `exp`"),
        ("from ... import x\n", 1, "beyond the top"),
        ("import nowhere.at_all\n", 1, "not installed"),
    ],
)
def test_what_is_wrong_in_the_source_is_refused_at_its_line(root: Path, source, line, message) -> None:
    write(root, exp__clean=source + FUNCTION, exp__helpers="")
    error = refused(root)
    assert error.where == Location("exp/clean.py", line)
    assert message in error.message
    if "helprs" in message:
        assert error.hint == "did you mean `helpers`?"


def test_bytes_that_are_no_text_are_refused(root: Path) -> None:
    (root / "exp/clean.py").write_bytes(b"x = '\xff'\n" + FUNCTION.encode())
    assert refused(root).where is not None


@given(st.lists(st.sampled_from(["", "# c", "   # indented", "\f"]), max_size=4), st.integers(0, 4))
def test_blank_lines_and_comments_anywhere(tmp_path_factory: pytest.TempPathFactory, extra: list[str], at: int) -> None:
    root = tmp_path_factory.mktemp("w")
    write(root, exp__clean=FUNCTION)
    before = identity(root).digest
    lines = FUNCTION.splitlines()
    write(root, exp__clean="\n".join([*lines[:at], *extra, *lines[at:]]) + "\n")
    assert identity(root).digest == before
