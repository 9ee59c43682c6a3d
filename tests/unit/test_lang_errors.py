"""What a wrong BUILD or rule file is told: the whole message, word for word."""

from __future__ import annotations

import pytest

from marin_cas.errors import MarinError, RequestError
from marin_cas.label import Label
from tests.unit.lang_workspace import LOAD, workspace

BUILD = {
    "unknown rule": (
        LOAD + '\n\ntrain_ln(name = "x")\n',
        "error: exp/BUILD.marin:4: `train_ln` is not defined\n  hint: did you mean `train_lm`?",
    ),
    "rule not loaded": (
        'train_lm(name = "x")\n',
        'error: exp/BUILD.marin:1: `train_lm` is not defined\n  hint: load it first: load("//rules:x.bzl", "train_lm")',
    ),
    "rule of marin-cas not loaded": (
        'tokenized(name = "x")\n',
        "error: exp/BUILD.marin:1: `tokenized` is not defined\n"
        '  hint: load it first: load("@marin//rules/sets:y.bzl", "tokenized")',
    ),
    "unknown builtin": (
        'filegroup(name = "f", srcs = glib(["*"]))\n',
        "error: exp/BUILD.marin:1: `glib` is not defined\n  hint: did you mean `glob`?",
    ),
    "builtin of rule files": (
        "x = rule()\n",
        "error: exp/BUILD.marin:1: `rule` is not defined\n  hint: it is for .bzl files",
    ),
    "positional": (
        LOAD + 'train_lm(\n    "x",\n)\n',
        "error: exp/BUILD.marin:2: `train_lm` takes its attributes by name\n"
        '  hint: write `train_lm(name = "...", ...)`',
    ),
    "no name": (LOAD + "train_lm(lr = 1)\n", "error: exp/BUILD.marin:2: this `train_lm` has no `name`"),
    "name of a wrong type": (
        LOAD + "train_lm(name = 3)\n",
        "error: exp/BUILD.marin:2: this `train_lm` has a `name` that is not a string",
    ),
    "name that is none": (
        LOAD + 'train_lm(name = "a/../b")\n',
        "error: exp/BUILD.marin:2: `a/../b` is not a name for a `train_lm`: "
        "its target `a/../b` has a `.` or `..` component",
    ),
    "name with a colon": (
        LOAD + 'train_lm(name = "a:b")\n',
        "error: exp/BUILD.marin:2: `a:b` is not a name for a `train_lm`: a package starts with `//`",
    ),
    "two targets": (
        LOAD + 'train_lm(name = "a_b", lr = 1)\nfilegroup(name = "z")\npair("a")\n',
        "error: exp/BUILD.marin:4: two targets are named `//exp:a_b`\n"
        "  `train_lm` at exp/BUILD.marin:2\n"
        "  `train_lm` at exp/BUILD.marin:4\n"
        "  exp/BUILD.marin:4 in macro `pair` (rules/x.bzl:30)\n"
        "  hint: give one of them another name",
    ),
    "fail in a macro": (
        LOAD + 'picky("bad")\n',
        "error: exp/BUILD.marin:2: `bad` is not allowed as a name\n"
        "  exp/BUILD.marin:2 in macro `picky` (rules/x.bzl:34)",
    ),
    "fail": ('fail("stop\\n --> here", 1)\n', "error: exp/BUILD.marin:1: stop\n   --> here 1"),
    "builtin's error in a macro": (
        LOAD + 'files("q")\n',
        "error: exp/BUILD.marin:2: the glob pattern `*.nope` matches nothing\n"
        "  exp/BUILD.marin:2 in macro `files` (rules/x.bzl:38)\n"
        "  hint: say `allow_empty = True` if that is meant",
    ),
    "language's error in a macro": (
        LOAD + 'broken("q")\n',
        "error: rules/x.bzl:41: Operation `+` not supported for types `int` and `string`\n"
        "  called from exp/BUILD.marin:2",
    ),
    "endless recursion": (
        LOAD + "\nendless(1)\n",
        "error: rules/x.bzl:45: these functions call each other without an end\n"
        "  called from exp/BUILD.marin:3\n"
        "  hint: Starlark has no unbounded recursion",
    ),
    "NaN": (
        LOAD + 'train_lm(name = "x", lr = float("nan"))\n',
        "error: exp/BUILD.marin:2: `lr` is not a finite number\n  hint: NaN and infinities are refused",
    ),
    "infinity inside": (
        LOAD + 'train_lm(name = "x", model = {"rope": [{"theta": 1e308 * 10}]})\n',
        "error: exp/BUILD.marin:2: `model.rope.theta` is not a finite number\n  hint: NaN and infinities are refused",
    ),
    "infinity below zero": (
        LOAD + 'train_lm(name = "x", lr = -float("inf"))\n',
        "error: exp/BUILD.marin:2: `lr` is not a finite number\n  hint: NaN and infinities are refused",
    ),
    "key that is no text": (
        LOAD + 'train_lm(name = "x", model = {1: 2})\n',
        'error: exp/BUILD.marin:2: `model` has the key `1`: keys are strings\n  hint: write `"1"`',
    ),
    "function as a value": (
        LOAD + 'train_lm(name = "x", lr = pair)\n',
        "error: exp/BUILD.marin:2: `lr` is a function, not a plain value\n  hint: use text, numbers, lists and dicts",
    ),
    "unclosed bracket": ("\nx = [\n    1,\n", "error: exp/BUILD.marin:2: syntax error: `[` was never closed"),
    "unclosed string": ('\nx = "abc\n', "error: exp/BUILD.marin:2: syntax error: unterminated string literal"),
    "missing comma": (
        LOAD + 'train_lm(name = "a"\n    lr = 1)\n',
        "error: exp/BUILD.marin:3: syntax error: unexpected identifier 'lr'",
    ),
    "missing comma between strings": (
        'x = ["a"\n"b"]\n',
        'error: exp/BUILD.marin:2: syntax error: unexpected string literal "b"\n'
        "  hint: a comma may be missing before it; strings are joined with `+`",
    ),
    "def": (
        "\ndef f():\n    pass\n",
        "error: exp/BUILD.marin:2: `def` is not allowed in a BUILD file\n"
        "  hint: put the function in a .bzl file and load it",
    ),
    "for": (
        "x = 1\nfor i in [1]:\n    x\n",
        "error: exp/BUILD.marin:2: `for` is not allowed in a BUILD file\n"
        "  hint: use a comprehension: `[rule(...) for x in xs]`, or a macro in a .bzl file",
    ),
    "if": (
        "x = 1\nif x:\n    y = 1\n",
        "error: exp/BUILD.marin:2: `if` is not allowed in a BUILD file\n"
        "  hint: use a conditional expression, or a macro in a .bzl file",
    ),
    "lambda": (
        "x = lambda: 1\n",
        "error: exp/BUILD.marin:1: `lambda` is not allowed in a BUILD file\n"
        "  hint: put a function in a .bzl file and load it",
    ),
    "import": (
        "import os\n",
        "error: exp/BUILD.marin:1: `import` is not allowed in a BUILD file\n  hint: use `load(...)`",
    ),
    "f-string": (
        'x = f"{1}"\n',
        'error: exp/BUILD.marin:1: f-strings are not allowed\n  hint: use `"...{}".format(x)` or `"...%s" % x`',
    ),
    "not UTF-8": (b'x = 1\ny = "\xff"\n', "error: exp/BUILD.marin:2: the file is not UTF-8 text"),
    "file to load is missing": (
        '"""Doc."""\nload(\n    "//rules:y.bzl",\n    "z",\n)\n',
        "error: exp/BUILD.marin:3: `//rules:y.bzl` cannot be loaded: there is no such file\n"
        "  hint: did you mean `//rules:x.bzl`?",
    ),
    "file to load is one of marin-cas": (
        'load("//rules/sets:y.bzl", "z")\n',
        "error: exp/BUILD.marin:1: `//rules/sets:y.bzl` cannot be loaded: there is no such file\n"
        "  hint: did you mean `@marin//rules/sets:y.bzl`?",
    ),
    "name that a file does not define": (
        'load("//rules:x.bzl", "train_ln")\n',
        "error: exp/BUILD.marin:1: `//rules:x.bzl` does not define `train_ln`\n  hint: did you mean `train_lm`?",
    ),
    "private name": (
        'load("//rules:x.bzl", "_train")\n',
        "error: exp/BUILD.marin:1: `_train` is private to its file\n  hint: names with a leading `_` cannot be loaded",
    ),
    "not a rule file": (
        'load("//rules:x", "z")\n',
        "error: exp/BUILD.marin:1: `//rules:x` cannot be loaded: only .bzl files can\n"
        "  hint: did you mean `//rules:x.bzl`?",
    ),
    "unknown repository": (
        'load("@foo//rules:x.bzl", "z")\n',
        "error: exp/BUILD.marin:1: there is no repository `@foo`\n  hint: the only one is `@marin`",
    ),
    "loading nothing": (
        'load("rules/x.bzl:", "z")\n',
        "error: exp/BUILD.marin:1: `rules/x.bzl:` is not a label: a package starts with `//`",
    ),
    "glob of a string": (
        'filegroup(name = "f", srcs = glob("*.txt"))\n',
        'error: exp/BUILD.marin:1: `include` of `glob` is a list of patterns\n  hint: write `["*.txt"]`',
    ),
    "package twice": (
        'package(default_visibility = ["//a"])\npackage(default_visibility = ["//b"])\n',
        "error: exp/BUILD.marin:2: `package()` is called twice\n  first at exp/BUILD.marin:1",
    ),
    "visibility of a wrong type": (
        'filegroup(name = "f", visibility = "//a")\n',
        "error: exp/BUILD.marin:1: `visibility` is a list of strings",
    ),
    "parameter that a macro has not": (
        LOAD + 'pair("x", lrr = 1)\n',
        "error: exp/BUILD.marin:2: `pair` has no parameter `lrr`",
    ),
    "parameter left out": (
        LOAD + "pair(lr = 1)\n",
        "error: exp/BUILD.marin:2: Missing parameter `name` in the call of `pair`",
    ),
    "empty select": (
        'filegroup(name = "f", srcs = select({}))\n',
        "error: exp/BUILD.marin:1: `select` takes a dict from conditions to values",
    ),
    "value nested too deeply": (
        'filegroup(name = "f", srcs = ' + "[" * 400 + "]" * 400 + ")\n",
        "error: exp/BUILD.marin:1: a value is nested too deeply",
    ),
    "repeated argument": (
        'filegroup(name = "f", name = "g")\n',
        "error: exp/BUILD.marin:1: repeated named argument",
    ),
}


@pytest.mark.parametrize("case", BUILD)
def test_build_file(tmp_path, case):
    text, expected = BUILD[case]
    lib = {"lib/sets/y.bzl": "# y\ntokenized = rule(implementation = None)\n"}
    with pytest.raises(RequestError) as caught:
        workspace(tmp_path, {"exp/BUILD.marin": text, **lib}).package("exp")
    assert caught.value.render() == expected


_IMPL = "def _impl(ctx):\n    return []\n"
RULE_FILES = {
    "first line": (
        '\nload("//rules:x.bzl", "pair")\n',
        "error: r.bzl:1: the first line of a .bzl file is a docstring or a comment",
    ),
    "empty": ("", "error: r.bzl:1: the first line of a .bzl file is a docstring or a comment"),
    "bears": (
        "# r\nx = 1\na = attr.string(\n    bears = 'name',\n)\n",
        "error: r.bzl:3: `bears = 'name'` is not one of `identity`, `execution`, `reporting`",
    ),
    "argument of an attribute": (
        "# r\na = attr.string(manditory = True)\n",
        "error: r.bzl:2: `attr.string` has no argument `manditory`\n  hint: did you mean `mandatory`?",
    ),
    "attribute by position": ("# r\na = attr.int(3)\n", "error: r.bzl:2: `attr.int` takes its arguments by name"),
    "kind of attribute": (
        "# r\na = attr.strin()\n",
        "error: r.bzl:2: Object of type `struct` has no attribute `strin`\n  hint: did you mean `string`?",
    ),
    "mandatory with a default": (
        "# r\na = attr.int(mandatory = True, default = 3)\n",
        "error: r.bzl:2: a mandatory attribute has no default",
    ),
    "default that is no number": (
        '# r\na = attr.float(default = float("inf"))\n',
        "error: r.bzl:2: `default` is not a finite number\n  hint: NaN and infinities are refused",
    ),
    "attribute that is none": (
        f'# r\n{_IMPL}a = rule(implementation = _impl, attrs = {{"x": "string"}})\n',
        "error: r.bzl:4: the attribute `x` is not made by `attr.*`",
    ),
    "reserved attribute": (
        f'# r\n{_IMPL}a = rule(implementation = _impl, attrs = {{"name": attr.string()}})\n',
        "error: r.bzl:4: a rule cannot define an attribute `name`",
    ),
    "rule without a name": (
        f"# r\n{_IMPL}rules = [rule(implementation = _impl)]\nrule(\n    implementation = _impl,\n)\n",
        "error: r.bzl:5: this rule has no name\n  hint: assign it to a global: `my_rule = rule(...)`",
    ),
    "implementation": (
        "# r\na = rule(implementation = 3)\n",
        "error: r.bzl:2: `implementation` of a rule is a function, not a int",
    ),
    "provider without fields": (
        "# r\nInfo = provider('doc')\n",
        "error: r.bzl:2: Missing parameter `fields` in the call of `provider`",
    ),
    "rule called at the top": (
        f"# r\n{_IMPL}a = rule(implementation = _impl)\na(name = 'x')\n",
        "error: r.bzl:5: a rule is called from a BUILD file, not while its own file is loaded",
    ),
    "glob at the top": (
        "# r\nx = glob(['*'])\n",
        "error: r.bzl:2: `glob` is called from a BUILD file or a macro that one calls, not from here",
    ),
    "identity at the top": (
        "# r\nx = identity('a')\n",
        "error: r.bzl:2: `identity` is called from a rule's implementation, not from here",
    ),
    "syntax": (f"# r\n{_IMPL}\n\nx = (1,\n", "error: r.bzl:6: syntax error: `(` was never closed"),
    "unknown name": (
        "# r\nx = provder(fields = [])\n",
        "error: r.bzl:2: `provder` is not defined\n  hint: did you mean `provider`?",
    ),
    "error in a helper": (
        '# r\ndef f(x):\n    y = x + 1\n    return y\n\nz = f("a")\n',
        "error: r.bzl:3: Operation `+` not supported for types `string` and `int`\n  called from r.bzl:6",
    ),
}


@pytest.mark.parametrize("case", RULE_FILES)
def test_rule_file(tmp_path, case):
    text, expected = RULE_FILES[case]
    with pytest.raises(RequestError) as caught:
        workspace(tmp_path, {"r.bzl": text}).load_bzl(Label("", "r.bzl"))
    assert caught.value.render() == expected


def test_a_rule_made_by_a_macro(tmp_path):
    files = {
        "r.bzl": f"# r\n{_IMPL}def macro():\n    return rule(implementation = _impl)\n",
        "BUILD.marin": 'load(":r.bzl", "macro")\nmacro()\n',
    }
    with pytest.raises(RequestError) as caught:
        workspace(tmp_path, files).package("")
    assert caught.value.message == "`rule` is called at the top of a .bzl file, not from here"
    assert str(caught.value.where) == "BUILD.marin:2"


def test_load_cycles_show_each_edge(tmp_path):
    files = {
        "a.bzl": '# a\nload(":b.bzl", "y")\nx = 1\n',
        "b.bzl": '# b\n\nload("//:c.bzl", "z")\ny = 1\n',
        "c.bzl": '# c\nload(":b.bzl", "y")\nz = 1\n',
        "self.bzl": '# s\nload(":self.bzl", "q")\nq = 1\n',
        "BUILD.marin": 'load(":a.bzl", "x")\n',
    }
    loader = workspace(tmp_path, files)
    with pytest.raises(RequestError) as caught:
        loader.package("")
    assert caught.value.render() == (
        "error: b.bzl:3: `//:b.bzl` loads itself\n"
        "  `//:b.bzl` loads `//:c.bzl` (b.bzl:3)\n"
        "  `//:c.bzl` loads `//:b.bzl` (c.bzl:2)\n"
        "  hint: move what both need into a third file"
    )
    with pytest.raises(RequestError) as caught:
        loader.load_bzl(Label("", "self.bzl"))
    assert caught.value.notes == ("`//:self.bzl` loads `//:self.bzl` (self.bzl:2)",)


def test_a_package_that_is_not_there(tmp_path):
    loader = workspace(tmp_path, {"exp/tiny/BUILD.marin": ""})
    with pytest.raises(MarinError) as caught:
        loader.package("exp/tinny")
    assert caught.value.render() == (
        "error: there is no package `//exp/tinny`: `exp/tinny/BUILD.marin` does not exist\n"
        "  hint: did you mean `exp/tiny`?"
    )


def test_a_bug_of_ours_is_not_dressed_up(tmp_path, monkeypatch):
    loader = workspace(tmp_path, {"BUILD.marin": 'exports_files(["a"])\n'})
    monkeypatch.setattr("marin_cas.lang.package.PackageBuilder.export", lambda self, files: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        loader.package("")
