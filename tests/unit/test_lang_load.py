"""BUILD files to declarations: values, places, macro chains, loads, and what is watched."""

from __future__ import annotations

import _thread
import json
import math
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marin_cas.errors import Interrupted, Location, RequestError
from marin_cas.label import Label
from marin_cas.lang.loader import Loader
from marin_cas.lang.values import AttrSpec, Select
from tests.unit.lang_workspace import LOAD, workspace


def test_declarations_keep_order_values_and_places(tmp_path):
    loader = workspace(
        tmp_path,
        {
            "exp/BUILD.marin": LOAD + "\n"
            'train_lm(name = "one", lr = 1e-3, visibility = ["//visibility:public"])\n'
            'pair(\n    "two",\n    lr = 2,\n)\n'
            '[train_lm(name = "n%d" % i, lr = 0.1) for i in range(2)]\n'
            'alias(name = "short", actual = ":one")\n'
        },
    )
    package = loader.package("exp")
    declared = package.declarations
    assert list(declared) == ["one", "two_a", "two_b", "n0", "n1", "short"]
    assert declared["one"].label == Label("exp", "one")
    assert declared["one"].attrs == {"lr": 0.001}
    assert declared["one"].visibility == ("//visibility:public",)
    assert declared["one"].location == Location("exp/BUILD.marin", 3)
    assert declared["one"].chain == ()
    assert declared["two_b"].attrs == {"lr": 2} and type(declared["two_b"].attrs["lr"]) is int
    assert declared["two_b"].visibility is None
    assert declared["two_b"].location == Location("exp/BUILD.marin", 4)
    assert declared["two_b"].chain == ("exp/BUILD.marin:4 in macro `pair` (rules/x.bzl:30)",)
    assert declared["n1"].location.line == 8
    assert declared["short"].rule.name == "alias" and declared["short"].rule.native
    assert not declared["one"].rule.native
    assert package.loads == (Label("rules", "x.bzl"),)
    assert package.default_visibility == ("//visibility:private",)


def test_each_package_runs_once(tmp_path):
    loader = workspace(tmp_path, {"BUILD.marin": 'alias(name = "a", actual = ":b")\n'})
    first = loader.package("")
    (tmp_path / "BUILD.marin").write_text("")
    assert loader.package("") is first
    assert first.declarations["a"].label == Label("", "a")


def test_nested_macros_are_all_in_the_chain(tmp_path):
    loader = workspace(
        tmp_path,
        {
            "m.bzl": '# macros\nload("//rules:x.bzl", "pair")\ndef outer(name):\n    inner(name)\n\n'
            "def inner(name):\n    pair(name)\n",
            "BUILD.marin": 'load(":m.bzl", "outer")\nouter("x")\n',
        },
    )
    assert loader.package("").declarations["x_a"].chain == (
        "BUILD.marin:2 in macro `outer` (m.bzl:4)",
        "m.bzl:4 in macro `inner` (m.bzl:7)",
        "m.bzl:7 in macro `pair` (rules/x.bzl:29)",
    )
    assert loader.package("").loads == (Label("", "m.bzl"), Label("rules", "x.bzl"))


@given(st.lists(st.sampled_from(["", "# comment", "x = [\n    1,\n]"]), max_size=8), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_are_exact_whatever_comes_before(tmp_path, before, load_first):
    text = "".join(line + "\n" for line in before)
    text = LOAD + text if load_first else text + LOAD
    line = text.count("\n") + 1
    loader = workspace(tmp_path, {"BUILD.marin": text + 'train_lm(name = "t")\ntrain_ln(name = "u")\n'})
    with pytest.raises(RequestError) as caught:
        loader.package("")
    assert caught.value.where == Location("BUILD.marin", line + 1)
    (tmp_path / "BUILD.marin").write_text(text + 'train_lm(name = "t")\n')
    assert loader.package("").declarations["t"].location.line == line


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _starlark(value) -> str:
    """The literal of a value in Starlark, whose float literals are read exactly."""
    if value is None or isinstance(value, (bool, int)):
        return repr(value)
    if isinstance(value, float):
        return f"float({json.dumps(repr(value))})"
    if isinstance(value, str):
        return "".join(['"', *(f"\\U{ord(c):08x}" for c in value), '"'])
    if isinstance(value, list):
        return f"[{', '.join(map(_starlark, value))}]"
    return f"{{{', '.join(f'{_starlark(k)}: {_starlark(v)}' for k, v in value.items())}}}"


def _exactly(value):
    """What tells values apart: types, the bits of floats, the order of keys."""
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, list):
        return [_exactly(item) for item in value]
    if isinstance(value, dict):
        return [(key, _exactly(item)) for key, item in value.items()]
    return (type(value).__name__, value)


@given(_PLAIN)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_come_through_exactly(tmp_path, value):
    loader = workspace(tmp_path, {"BUILD.marin": f"{LOAD}train_lm(name = 't', model = {_starlark(value)})\n"})
    declared = loader.package("").declarations["t"].attrs["model"]
    assert _exactly(declared) == _exactly(value)


@given(_PLAIN)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_reach_an_implementation_and_return_exactly(tmp_path, value):
    loader = workspace(
        tmp_path,
        {
            "echo.bzl": "# echo\n"
            'EchoInfo = provider(fields = ["value", "item"])\n'
            "def _echo(ctx):\n"
            "    ctx.actions.run(tool = 't', revision = 1, params = {'p': ctx.attr.value}, outputs = {'o': 'file'})\n"
            "    return [EchoInfo(value = ctx.attr.value)]\n"
            'echo = rule(implementation = _echo, attrs = {"value": attr.dict()})\n',
            "BUILD.marin": 'load(":echo.bzl", "echo")\necho(name = "e")\n',
        },
    )
    seen = {}

    def run(name, arguments):
        seen.update(arguments)
        return {"o": object()}

    made = loader.implement(loader.package("").declarations["e"], {"value": value}, run)
    assert _exactly(made["EchoInfo"]["value"]) == _exactly(value)
    assert _exactly(seen["params"]["p"]) == _exactly(value)


def test_float_literals_are_typed(tmp_path):
    text = '[train_lm(name = "t", model = [1e-3, 0.001, 1.0e-3, "1e-3", 1, 1.0, True, 1e22, -0.0, 1 << 70])]\n'
    values = workspace(tmp_path, {"BUILD.marin": LOAD + text}).package("").declarations["t"].attrs["model"]
    assert values == [0.001, 0.001, 0.001, "1e-3", 1, 1.0, True, 1e22, -0.0, 1 << 70]
    assert [type(v) for v in values] == [float] * 3 + [str, int, float, bool, float, float, int]
    assert math.copysign(1, values[8]) == -1


def test_select_alone_and_inside_a_list(tmp_path):
    text = (
        'filegroup(name = "f", srcs = ["a"] + select({"define:x": ["b"], "//conditions:default": []}) + ["c"])\n'
        'alias(name = "g", actual = select({"profile:ci": ":b"}), tags = select({"define:y": ["t"]}))\n'
    )
    declared = workspace(tmp_path, {"BUILD.marin": text}).package("").declarations
    branches = {"define:x": ["b"], "//conditions:default": []}
    assert declared["f"].attrs["srcs"] == ["a", Select(branches), "c"]
    assert declared["g"].attrs == {"actual": Select({"profile:ci": ":b"}), "tags": Select({"define:y": ["t"]})}


def test_defaults_and_exports(tmp_path):
    text = 'package(default_visibility = ["//visibility:public"])\nexports_files(["a.txt", "b/c.txt"])\n'
    package = workspace(tmp_path, {"BUILD.marin": text}).package("")
    assert package.default_visibility == ("//visibility:public",)
    assert package.exports == {"a.txt", "b/c.txt"}


def test_rules_carry_their_attributes_documentation_and_the_implicit_ones(tmp_path):
    loader = workspace(tmp_path, {})
    loader.load_bzl(Label("rules", "x.bzl"))
    rule = loader.rules()["train_lm"]
    assert rule.doc == "Trains." and rule.toolchain == ("jax", "marin-levanter") and rule.bzl == Label("rules", "x.bzl")
    assert rule.location == Location("rules/x.bzl", 16)
    assert rule.attrs["lr"] == AttrSpec("float", mandatory=True, doc="Peak rate.")
    assert rule.attrs["init"] == AttrSpec("label", providers=("CheckpointInfo",))
    assert rule.attrs["model"] == AttrSpec("dict", default={}, schema="levanter.LmConfig")
    assert rule.attrs["tracker"].values == ("none", "wandb") and rule.attrs["tracker"].bears == "reporting"
    assert {name: rule.attrs[name].bears for name in ("tags", "artifact", "version", "resources", "secrets")} == {
        "tags": "reporting",
        "artifact": "reporting",
        "version": "identity",
        "resources": "execution",
        "secrets": "execution",
    }
    info = loader.providers()["CheckpointInfo"]
    assert info.fields == {"hf": "For evals.", "native": "To resume."} and info.doc == "A checkpoint."


def test_a_rule_is_named_by_the_global_it_is_assigned_to(tmp_path):
    loader = workspace(
        tmp_path,
        {
            "r.bzl": "# rules\n"
            "def _impl(ctx):\n    return []\n"
            "def make(test):\n    return rule(implementation = _impl, test = test)\n"
            "_private = make(False)\nchecked: typing.Any = make(\n    True,\n)\n"
            "def macro(name):\n    _private(name = name)\n",
            "BUILD.marin": 'load(":r.bzl", "macro", renamed = "checked")\nmacro("a")\nrenamed(name = "b")\n',
        },
    )
    declared = loader.package("").declarations
    assert (declared["a"].rule.name, declared["a"].rule.test) == ("_private", False)
    assert (declared["b"].rule.name, declared["b"].rule.test) == ("checked", True)
    assert loader.implement(declared["a"], {}, lambda name, given: {}) == {}


INITIALIZED = """# rules
def _impl(ctx):
    return []
beside = rule(implementation = _impl, attrs = {"of": attr.label(mandatory = True)})
def _init(written):
    more = written.get("more")
    if more != None:
        beside(name = written["name"] + ".more", of = ":" + written["name"])
    return {name: value for name, value in written.items() if name != "more"} | {"size": written.get("size", more)}
sized = rule(implementation = _impl, attrs = {"size": attr.int()}, initializer = _init)
"""


def test_an_initializer_changes_what_was_written_and_may_declare_more(tmp_path):
    files = {
        "r.bzl": INITIALIZED,
        "BUILD.marin": 'load(":r.bzl", "sized")\nsized(name = "a", size = 3)\n\nsized(name = "b", more = 5)\n',
    }
    declared = workspace(tmp_path, files).package("").declarations
    assert list(declared) == ["a", "b.more", "b"]
    assert (declared["a"].attrs, declared["b"].attrs) == ({"size": 3}, {"size": 5})
    assert (declared["b"].location, declared["b"].chain) == (Location("BUILD.marin", 4), ())
    assert declared["b.more"].location == Location("BUILD.marin", 4)
    assert declared["b.more"].chain == ("BUILD.marin:4 in macro `_init` (r.bzl:8)",)


@pytest.mark.parametrize(
    ("initializer", "message"),
    [("3", "`initializer` of a rule is a function, not a int"), ("lambda written: 3", "returns a dict of attributes")],
)
def test_an_initializer_that_is_wrong(tmp_path, initializer, message):
    rule = f"# r\nx = rule(implementation = lambda ctx: [], initializer = {initializer})\n"
    with pytest.raises(RequestError, match=message):
        workspace(tmp_path, {"r.bzl": rule, "BUILD.marin": 'load(":r.bzl", "x")\nx(name = "a")\n'}).package("")


def test_two_rules_of_one_name_are_both_known(tmp_path):
    rule = "# r\ndef _impl(ctx):\n    return []\nsame = rule(implementation = _impl)\n"
    loader = workspace(tmp_path, {"a.bzl": rule, "b.bzl": rule})
    for name in ("a.bzl", "b.bzl"):
        loader.load_bzl(Label("", name))
    assert loader.rules()["same"].bzl == Label("", "a.bzl")
    assert loader.rules()["same (//:b.bzl)"].name == "same"


def test_rule_files_of_marin_load_each_other(tmp_path):
    loader = workspace(
        tmp_path,
        {
            "lib/common.bzl": "# common\ndef _impl(ctx):\n    return []\nthing = rule(implementation = _impl)\n",
            "lib/sets/more.bzl": '# more\nload("//rules:common.bzl", "thing")\n'
            "def both(name):\n    thing(name = name)\n",
            "lib/beside.bzl": '# beside\nload(":common.bzl", "thing")\ndef again(name):\n    thing(name = name)\n',
            "BUILD.marin": 'load("@marin//rules/sets:more.bzl", "both")\n'
            'load("@marin//rules:beside.bzl", "again")\nboth("x")\nagain("y")\n',
        },
    )
    package = loader.package("")
    assert package.declarations["x"].rule is package.declarations["y"].rule
    assert package.declarations["x"].rule.bzl == Label("rules", "common.bzl", "marin")
    assert package.declarations["x"].chain == ("BUILD.marin:3 in macro `both` (@marin//rules/sets/more.bzl:4)",)
    assert set(package.loads) == {
        Label("rules/sets", "more.bzl", "marin"),
        Label("rules", "common.bzl", "marin"),
        Label("rules", "beside.bzl", "marin"),
    }


def test_loaded_values_are_frozen(tmp_path):
    text = 'load(":m.bzl", "add")\nadd()\n'
    loader = workspace(tmp_path, {"m.bzl": "# m\nseen = []\ndef add():\n    seen.append(1)\n", "BUILD.marin": text})
    with pytest.raises(RequestError, match="Immutable"):
        loader.package("")


def test_what_is_watched(tmp_path):
    loader = workspace(
        tmp_path,
        {"a/BUILD.marin": LOAD + 'filegroup(name = "f", srcs = glob(["data/**"]))\n', "a/data/b/c.txt": ""},
    )
    loader.package("a")
    assert loader.has_package("none") is False
    below = {path.relative_to(tmp_path).as_posix() for path in loader.watched}
    assert {".marinignore", "a/BUILD.marin", "rules/x.bzl", "a", "a/data", "a/data/b", "none/BUILD.marin"} <= below


def test_packages_are_found_without_running_them(tmp_path):
    loader = workspace(
        tmp_path,
        {
            **dict.fromkeys(["BUILD.marin", "a/BUILD.marin", "a/b/c/BUILD.marin", "z/BUILD.marin"], "broken ("),
            **dict.fromkeys([".git/BUILD.marin", "cache/BUILD.marin", "old/BUILD.marin", "other/x/BUILD.marin"], ""),
            "other/marin.toml": "",
            ".marinignore": "# hidden\n/old/\n",
        },
    )
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert loader.packages() == ["", "a", "a/b/c", "z"]
    assert loader.packages("a") == ["a", "a/b/c"]
    assert loader.packages("old") == loader.packages("nowhere") == []
    assert [loader.has_package(name) for name in ("", "a/b/c", "a/b", "old", "cache")] == [
        *(True, True),
        *(False, False, False),
    ]
    with pytest.raises(RequestError, match="no package"):
        loader.package("old")


@pytest.mark.parametrize("lines", [True, False])
def test_twenty_thousand_targets_in_one_file(tmp_path, lines):
    if lines:
        text = "".join(f'train_lm(name = "t{i}", lr = 0.1, init = ":t{i - 1}")\n' for i in range(20000))
    else:
        text = '[train_lm(name = "t%d" % i, lr = 0.1, init = ":t%d" % (i - 1)) for i in range(20000)]\n'
    declared = workspace(tmp_path, {"BUILD.marin": LOAD + text}).package("").declarations
    assert len(declared) == 20000
    assert declared["t19999"].attrs == {"lr": 0.1, "init": ":t19998"}
    assert declared["t19999"].location.line == (20001 if lines else 2)


def test_a_thousand_files_that_load_each_other(tmp_path):
    files = {f"f{i}.bzl": f'# f\nload(":f{i + 1}.bzl", y = "x{i + 1}")\nx{i} = y\n' for i in range(1000)}
    files["f1000.bzl"] = "# f\nx1000 = 7\n"
    text = LOAD + 'load(":f0.bzl", "x0")\ntrain_lm(name = "t", lr = x0)\n'
    loader = workspace(tmp_path, {**files, "BUILD.marin": text})
    assert loader.package("").declarations["t"].attrs == {"lr": 7}


def test_evaluation_can_be_cancelled(tmp_path):
    stop = threading.Event()
    text = "[x for x in range(1000000000) if x < 0]\n"
    loader = workspace(tmp_path, {"BUILD.marin": text}, cancelled=stop.is_set)
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(Interrupted):
        loader.package("")


def test_keyboard_interrupt_comes_through(tmp_path):
    asked = []

    def interrupted() -> bool:
        asked.append(1)
        if len(asked) > 20:
            raise KeyboardInterrupt
        return False

    loader = workspace(tmp_path, {"BUILD.marin": "[x for x in range(1000000000) if x < 0]\n"}, cancelled=interrupted)
    with pytest.raises(KeyboardInterrupt):
        loader.package("")


def test_a_signal_comes_through(tmp_path):
    loader = workspace(tmp_path, {"BUILD.marin": "[x for x in range(1000000000) if x < 0]\n"})
    threading.Timer(0.05, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        loader.package("")


def test_the_cache_may_lie_elsewhere(tmp_path):
    files = {"store/trees/BUILD.marin": "broken (", "cache/BUILD.marin": "", "store/other/a.txt": "", "BUILD.marin": ""}
    loader = workspace(tmp_path, files, cache=tmp_path / "store/trees")
    assert loader.packages() == ["", "cache"]
    assert not loader.has_package("store/trees")


def test_a_failed_file_leaves_the_loader_usable(tmp_path):
    loader = workspace(
        tmp_path, {"bad.bzl": "# bad\ndef _i(ctx):\n    return []\nr = rule(implementation = _i)\nfail()\n"}
    )
    for _ in range(2):
        with pytest.raises(RequestError):
            loader.load_bzl(Label("", "bad.bzl"))
    loader.load_bzl(Label("rules", "x.bzl"))
    assert set(loader.rules()) == {"alias", "filegroup", "train_lm"}


def test_places_are_relative_for_another_folder(tmp_path):
    root = tmp_path / "some where"
    root.mkdir()
    loader = workspace(root, {"BUILD.marin": LOAD + "\n\nfoo\n"})
    assert isinstance(loader, Loader) and loader.root == Path(root)
    with pytest.raises(RequestError) as caught:
        loader.package("")
    assert caught.value.where == Location("BUILD.marin", 4)
