"""A query's answer in every format, word for word."""

from __future__ import annotations

import json

import pytest

from marin_cas.errors import RequestError
from marin_cas.label import Label
from marin_cas.lang.loader import Loader
from marin_cas.query.output import FORMATS, render
from marin_cas.query.query import run
from marin_cas.query.starlark import value

FILES = {
    "lib/BUILD.marin": "",
    "lib/rules.bzl": '''"""Rules."""
def _impl(ctx):
    return [DefaultInfo(outputs = {})]
step = rule(implementation = _impl, attrs = {
    "lr": attr.float(default = 1), "on": attr.bool(), "config": attr.dict(), "docs": attr.label(),
    "parts": attr.label_keyed_float_dict(),
})
def pair(name):
    step(name = name + "_one")
''',
    "exp/BUILD.marin": """load("//lib:rules.bzl", "pair", "step")
step(name = "a", docs = "a.txt", on = True, lr = 1e-05, config = {"x": [1, 2], "y": {}, "z": None, "é": "q\\"\\n"})
step(name = "b", parts = {":a": 1}, visibility = ["//visibility:public"], tags = ["t"])
pair("p")
filegroup(name = "docs", srcs = ["folder"])
""",
    "exp/a.txt": "",
    "exp/folder/x": "",
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    root = tmp_path_factory.mktemp("workspace")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return lambda expression, format: render(run(expression, Loader(root, root)), format)


def test_plain_formats(shown):
    assert shown("deps(//exp:b)", "label") == "//exp:b\n//exp:a\n//exp:a.txt\n"
    assert shown("deps(//exp:b)", "label_kind") == "step rule //exp:b\nstep rule //exp:a\nsource file //exp:a.txt\n"
    assert shown("deps(//exp:b) + //exp:folder", "location") == (
        "exp/BUILD.marin:3: step rule //exp:b\nexp/BUILD.marin:2: step rule //exp:a\n"
        "exp/a.txt:1: source file //exp:a.txt\nexp/folder: source file //exp:folder\n"
    )


def test_build_is_starlark_again(shown, tmp_path):
    text = shown("deps(//exp:b) + //exp:p_one", "build")
    assert text == (
        '# exp/BUILD.marin:3\nstep(\n    name = "b",\n    parts = {"//exp:a": 1.0},\n    tags = ["t"],\n'
        '    visibility = ["//visibility:public"],\n)\n\n'
        '# exp/BUILD.marin:2\nstep(\n    name = "a",\n    lr = 1e-05,\n    on = True,\n    config = {\n'
        '        "x": [\n            1,\n            2,\n        ],\n        "y": {},\n        "z": None,\n'
        '        "é": "q\\"\\n",\n    },\n    docs = "//exp:a.txt",\n)\n\n'
        '# exp/BUILD.marin:4 in macro `pair` (lib/rules.bzl:9)\nstep(\n    name = "p_one",\n)\n'
    )
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "exp/BUILD.marin").write_text('load("//lib:rules.bzl", "step")\n' + text)
    again = json.loads(render(run("deps(//exp:b) + //exp:p_one", Loader(tmp_path, tmp_path)), "json"))
    first = json.loads(shown("deps(//exp:b) + //exp:p_one", "json"))
    assert [node.get("attributes") for node in again] == [node.get("attributes") for node in first]


def test_json_and_jsonl_hold_the_same(shown):
    nodes = json.loads(shown("deps(//exp:b)", "json"))
    assert [json.loads(line) for line in shown("deps(//exp:b)", "jsonl").splitlines()] == nodes
    assert nodes[0] == {
        "label": "//exp:b",
        "kind": "step",
        "location": {"file": "exp/BUILD.marin", "line": 3},
        "macros": [],
        "ref": "exp/b@dev",
        "visibility": ["//visibility:public"],
        "attributes": {
            "name": "b",
            "lr": 1.0,
            "on": None,
            "config": {},
            "docs": None,
            "parts": {"//exp:a": 1.0},
            "tags": ["t"],
            "artifact": "exp/b",
            "version": "dev",
            "expected_fingerprint": "",
            "resources": {},
            "secrets": [],
        },
        "deps": ["//exp:a"],
    }
    assert nodes[2] == {"label": "//exp:a.txt", "kind": "source file", "path": "exp/a.txt", "folder": False}


def test_graph_is_dot(shown):
    assert shown("deps(//exp:b)", "graph") == (
        'digraph marin {\n  node [shape=box];\n  "//exp:b";\n  "//exp:a";\n  "//exp:a.txt" [style=dashed];\n'
        '  "//exp:b" -> "//exp:a";\n  "//exp:a" -> "//exp:a.txt";\n}\n'
    )


@pytest.mark.parametrize("format", FORMATS)
def test_no_nodes(shown, format):
    expected = {"json": "[]\n", "graph": "digraph marin {\n  node [shape=box];\n}\n"}
    assert shown("set()", format) == expected.get(format, "")


def test_an_unknown_format(shown):
    with pytest.raises(RequestError) as caught:
        shown("set()", "lable")
    assert caught.value.hint == "did you mean `label`?"


def test_values_as_source():
    assert value({Label("a", "b"): 0.5}) == '{"//a:b": 0.5}'
    assert value([True, None]) == "[\n    True,\n    None,\n]"
