"""The graph: closure, order, cycles, sources, visibility and names, over workspaces on disk and a fake loader."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.errors import Location, RequestError
from marin_cas.graph.cycles import find_cycles
from marin_cas.graph.graph import load_graph
from marin_cas.graph.visibility import parse_visibility
from marin_cas.label import Label, parse_label
from marin_cas.lang.loader import Loader
from marin_cas.lang.values import AttrSpec, Declaration, Package, RuleDef

RULES = '''"""Rules of the tests."""

def _impl(ctx):
    return [DefaultInfo(outputs = {})]

step = rule(implementation = _impl, attrs = {"deps": attr.label_list(), "docs": attr.label()})
'''
LOAD = 'load("//lib:rules.bzl", "step")\n'


@pytest.fixture
def graph(tmp_path):
    """Writes files and loads a graph: graph({path: text}, *roots)."""

    def load(files, *roots, **options):
        for name, text in {"lib/BUILD.marin": "", "lib/rules.bzl": RULES, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text if not name.endswith("BUILD.marin") or not text else LOAD + text)
        return load_graph(Loader(tmp_path, tmp_path / "rules"), [parse_label(root) for root in roots], **options)

    return load


def refusal(graph, files, *roots) -> RequestError:
    with pytest.raises(RequestError) as caught:
        graph(files, *roots)
    return caught.value


def names(labels) -> str:
    return " ".join(map(str, labels))


def test_dependencies_come_first_and_the_order_is_the_same_whatever_was_asked(graph):
    files = {
        "exp/BUILD.marin": (
            'step(name = "top", deps = [":b", ":a", "x.txt"])\nstep(name = "a", docs = "x.txt")\n'
            'step(name = "b", deps = [":a", "//data:raw"])\nstep(name = "unrelated", deps = [":nothing"])\n'
        ),
        "data/BUILD.marin": 'step(name = "raw", visibility = ["//exp:__pkg__"])\n',
        "exp/x.txt": "",
    }
    found = graph(files, "//exp:top", "//exp:a")
    assert names(found.targets) == "//data:raw //exp:a //exp:b //exp:top"
    assert names(found.files) == "//exp:x.txt"
    assert list(graph(files, "//exp:a", "//exp:top").targets) == list(found.targets)
    top = found.targets[Label("exp", "top")]
    assert [(edge.attr, str(edge.label), str(edge.location)) for edge in top.deps] == [
        ("deps", "//exp:b", "exp/BUILD.marin:2"),
        ("deps", "//exp:a", "exp/BUILD.marin:2"),
        ("deps", "//exp:x.txt", "exp/BUILD.marin:2"),
    ]
    assert top.given == ("deps",)
    assert top.ref == "exp/top@dev"
    assert names(found.dependencies[top.label]) == "//exp:b //exp:a //exp:x.txt"
    assert set(found.closure([Label("exp", "a")])) == {Label("exp", "a"), Label("exp", "x.txt")}


@given(st.lists(st.sets(st.integers(0, 11), max_size=4), min_size=12, max_size=12), st.permutations(range(12)))
def test_any_acyclic_graph_is_ordered_and_any_other_is_refused_with_real_cycles(edges, roots):
    labels = [Label("p", f"t{i}") for i in range(12)]
    loader = FakeLoader({f"t{i}": [f":t{j}" for j in sorted(deps)] for i, deps in enumerate(edges)})
    successors = {labels[i]: [labels[j] for j in deps] for i, deps in enumerate(edges)}
    on_cycle = set()
    for start in labels:
        seen, stack = set(), list(successors[start])
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack += successors[node]
        if start in seen:
            on_cycle.add(start)
    cycles = find_cycles(labels, successors)
    for cycle in cycles:
        assert cycle[0] == cycle[-1] and all(b in successors[a] for a, b in pairwise(cycle))
    assert {label for cycle in cycles for label in cycle} == on_cycle
    if on_cycle:
        with pytest.raises(RequestError, match="cycle"):
            load_graph(loader, [labels[i] for i in roots])
        return
    order = list(load_graph(loader, [labels[i] for i in roots]).targets)
    assert sorted(order) == sorted(labels)
    assert all(order.index(dep) < order.index(label) for label in labels for dep in successors[label])
    assert order == list(load_graph(loader, labels).targets)


def test_cycles_show_each_edge_with_its_line(graph):
    itself = refusal(graph, {"a/BUILD.marin": 'step(name = "a", deps = [":a"])\n'}, "//a")
    assert itself.message == "a dependency cycle: `//a:a -> //a:a`"
    assert itself.notes == ("a/BUILD.marin:2: `//a:a` needs `//a:a` (attribute `deps`)",)
    public = 'package(default_visibility = ["//visibility:public"])\n'
    files = {
        "a/BUILD.marin": public + 'step(name = "a", deps = ["//b"])\nstep(name = "x", deps = [":x", ":a"])\n',
        "b/BUILD.marin": public + 'step(name = "b", docs = "//a")\n',
    }
    two = refusal(graph, files, "//a")
    assert two.message == "a dependency cycle: `//a:a -> //b:b -> //a:a`"
    assert two.notes == (
        "a/BUILD.marin:3: `//a:a` needs `//b:b` (attribute `deps`)",
        "b/BUILD.marin:3: `//b:b` needs `//a:a` (attribute `docs`)",
    )
    assert two.where == Location("a/BUILD.marin", 3)
    several = refusal(graph, files, "//a:x")
    assert several.message == "2 dependency cycles, the first: `//a:a -> //b:b -> //a:a`"
    assert "`//a:x -> //a:x`" in several.notes


def test_a_label_that_is_the_target_and_not_the_folder_of_its_name(graph):
    files = {"a/BUILD.marin": 'step(name = "letters", deps = ["letters"])\n', "a/letters/x.txt": ""}
    error = refusal(graph, files, "//a:letters")
    assert error.hint == (
        "`//a:letters` means the target, not the file or folder `a/letters`: give one of them another name"
    )


def test_a_cycle_of_a_hundred_and_cycles_that_share_a_node():
    loader = FakeLoader({f"t{i:02}": [f":t{(i + 1) % 100:02}"] for i in range(100)})
    with pytest.raises(RequestError) as caught:
        load_graph(loader, [Label("p", "t50")])
    assert len(caught.value.notes) == 100
    assert caught.value.message.startswith("a dependency cycle: `//p:t00 -> //p:t01 -> ")
    assert caught.value.message.endswith(" -> //p:t99 -> //p:t00`")
    shared = FakeLoader({"a": [":b", ":c"], "b": [":a"], "c": [":a"]})
    with pytest.raises(RequestError) as caught:
        load_graph(shared, [Label("p", "a")])
    assert {note for note in caught.value.notes if note.startswith("`")} == {
        "`//p:a -> //p:b -> //p:a`",
        "`//p:c -> //p:a -> //p:c`",
    }


def test_aliases_are_followed_and_a_cycle_of_them_is_refused(graph):
    files = {
        "exp/BUILD.marin": (
            'alias(name = "demo", actual = ":other")\nalias(name = "other", actual = ":a")\n'
            'step(name = "a")\nalias(name = "file", actual = "x.txt")\n'
            'alias(name = "p", actual = ":q")\nalias(name = "q", actual = ":p")\n'
        ),
        "exp/x.txt": "",
    }
    found = graph(files, "//exp:demo", "//exp:file")
    assert found.actual(Label("exp", "demo")) == Label("exp", "a")
    assert found.actual(Label("exp", "file")) == Label("exp", "x.txt")
    assert names(found.targets) == "//exp:a //exp:file //exp:other //exp:demo"
    assert "`//exp:p -> //exp:q -> //exp:p`" in refusal(graph, files, "//exp:p").message


def test_sources_are_files_and_folders_of_the_package(graph):
    files = {
        "exp/BUILD.marin": 'filegroup(name = "g", srcs = ["x.txt", "docs", "docs/a/b.txt"])\n',
        "exp/x.txt": "",
        "exp/docs/a/b.txt": "",
    }
    found = graph(files, "//exp:g")
    assert {str(file.label): (file.kind, file.path) for file in found.files.values()} == {
        "//exp:docs": ("tree", "exp/docs"),
        "//exp:docs/a/b.txt": ("file", "exp/docs/a/b.txt"),
        "//exp:x.txt": ("file", "exp/x.txt"),
    }


@pytest.mark.parametrize(
    ("dep", "says", "hint"),
    [
        (":tokenzr", "no target `//exp:tokenzr`: `exp/BUILD.marin` declares none", "did you mean `//exp:tokenizer`?"),
        (":cleen.py", "no target `//exp:cleen.py`", "did you mean `//exp:clean.py`?"),
        ("//dat:raw", "no package `//dat`", "did you mean `//data`?"),
        ("//exp/tokenizer", "no package `//exp/tokenizer`", "did you mean `//exp:tokenizer`?"),
        ("sub/y.txt", "`//exp:sub/y.txt` reaches into `//exp/sub`, which is a package", "write `//exp/sub:y.txt`"),
        ("sub", "`//exp:sub` reaches into `//exp/sub`", "name a target of `//exp/sub`"),
        ("sub/deep", "`//exp:sub/deep` reaches into `//exp/sub`", "write `//exp/sub:deep`"),
        ("//data:d.txt", "names the file `//data:d.txt` of another package", None),
        ("@marin//rules:data.bzl", "holds rule files, no targets", None),
        ("pipe", "neither a file nor a folder", None),
    ],
)
def test_dependencies_that_are_not_there(graph, tmp_path, dep, says, hint):
    files = {
        "exp/BUILD.marin": f'step(name = "tokenizer")\nstep(name = "x", deps = ["{dep}"])\n',
        "exp/clean.py": "",
        "exp/sub/BUILD.marin": "",
        "exp/sub/y.txt": "",
        "exp/sub/deep/z.txt": "",
        "data/BUILD.marin": "",
        "data/d.txt": "",
    }
    if dep == "pipe":
        (tmp_path / "exp").mkdir()
        os.mkfifo(tmp_path / "exp/pipe")
    error = refusal(graph, files, "//exp:x")
    assert says in error.message
    assert error.where == Location("exp/BUILD.marin", 3)
    if hint:
        assert error.hint == hint


def test_all_that_is_missing_is_listed_at_once(graph):
    files = {"exp/BUILD.marin": 'step(name = "x", deps = [":one", ":two", "//no:three"])\n'}
    text = refusal(graph, files, "//exp:x").render()
    assert text.startswith("error: exp/BUILD.marin:2: no target `//exp:one`")
    assert "also: exp/BUILD.marin:2: no target `//exp:two`" in text
    assert "also: exp/BUILD.marin:2: no package `//no`" in text


def test_hints_that_are_equal_are_told_once(graph):
    files = {"exp/BUILD.marin": 'step(name = "x", deps = [":oone", ":ttwo", "//no:a", "//no:b"])\n'}
    text = refusal(graph, files, "//exp:x").render()
    assert text.count("no target") == 2 and text.count("no package") == 2
    assert text.count("hint: targets there") == 1
    assert text.count("hint: packages here") == 1
    assert text.splitlines()[-1].startswith("  hint: targets there")


def test_a_broken_package_is_told_once(graph):
    files = {
        "exp/BUILD.marin": 'step(name = "x", deps = ["//bad:a", "//bad:b"])\n',
        "bad/BUILD.marin": "step(name = )\n",
    }
    error = refusal(graph, files, "//exp:x")
    assert error.where == Location("bad/BUILD.marin", 2)
    assert not any("also" in note for note in error.notes)


def test_exported_files_and_visible_targets_may_be_used(graph):
    files = {
        "exp/BUILD.marin": 'step(name = "x", docs = "//data:d.txt", deps = ["//data:a", "//data:b", "//data:c"])\n',
        "data/BUILD.marin": (
            'package(default_visibility = ["//exp:__subpackages__"])\nexports_files(["d.txt"])\nstep(name = "a")\n'
            'step(name = "b", visibility = ["//visibility:public"])\nstep(name = "c", visibility = ["//exp:__pkg__"])\n'
            'step(name = "hidden", visibility = ["//visibility:private"])\n'
        ),
        "data/d.txt": "",
        "exp/sub/BUILD.marin": 'step(name = "ok", deps = ["//data:a"])\nstep(name = "no", deps = ["//data:c"])\n',
        "other/BUILD.marin": 'step(name = "y", deps = ["//data:hidden", "//data:a"])\n',
    }
    assert len(graph(files, "//exp:x", "//exp/sub:ok").targets) == 5
    error = refusal(graph, files, "//exp/sub:no")
    assert error.message == "`//data:c` is not visible to `//exp/sub:no` (attribute `deps`)"
    assert error.where == Location("exp/sub/BUILD.marin", 3)
    assert error.notes == ('data/BUILD.marin:6: `//data:c` is visible to "//exp:__pkg__"',)
    assert error.hint == 'add `"//exp/sub:__pkg__"` to the visibility of `//data:c`'
    assert "`//data:a` is not visible to `//other:y`" in refusal(graph, files, "//other:y").render()
    assert graph(files, "//other:y", strict=False).targets


def test_an_alias_shows_only_what_it_may_see(graph):
    files = {
        "exp/BUILD.marin": 'alias(name = "x", actual = "//data:hidden")\n',
        "data/BUILD.marin": 'step(name = "hidden")\nalias(name = "door", actual = ":hidden")\n',
        "other/BUILD.marin": 'step(name = "y", deps = ["//data:door"])\n',
    }
    assert "`//data:hidden` is not visible to `//exp:x`" in refusal(graph, files, "//exp:x").message
    assert "`//data:door` is not visible to `//other:y`" in refusal(graph, files, "//other:y").message


def test_a_visibility_that_is_none_is_refused(graph):
    error = refusal(graph, {"a/BUILD.marin": 'step(name = "a", visibility = ["//visibility:pubic"])\n'}, "//a")
    assert "the visibility of `//a:a` has `//visibility:pubic`" in error.message
    assert error.hint == "did you mean `//visibility:public`?"


@given(st.sampled_from(["", "a", "a/b", "ab", "b"]))
def test_subpackages_are_those_below(package):
    assert parse_visibility(("//a:__subpackages__",), "x").allows(package) == (package in ("a", "a/b"))
    assert parse_visibility(("//:__subpackages__",), "x").allows(package)
    assert parse_visibility((":__pkg__",), "b").allows(package) == (package == "b")
    assert not parse_visibility(("//visibility:private",), "x").allows(package)


def test_one_name_and_version_belongs_to_one_target(graph):
    files = {
        "a/BUILD.marin": 'step(name = "x", artifact = "fine", version = "2026.01.31")\n',
        "b/BUILD.marin": (
            'package(default_visibility = ["//visibility:public"])\n'
            'step(name = "y", artifact = "fine", version = "2026.01.31")\nstep(name = "z")\n'
        ),
    }
    graph(files, "//a:x")
    for roots in (["//a:x", "//b:y"], ["//a:x", "//b:z"]):
        error = refusal(graph, files, *roots)
        assert error.message.startswith("`//a:x` and `//b:y` both are `fine@2026.01.31`")
        assert error.notes == (
            "a/BUILD.marin:2: `//a:x` is `fine@2026.01.31`",
            "b/BUILD.marin:3: `//b:y` is `fine@2026.01.31`",
        )
    clash = {
        "c/BUILD.marin": 'step(name = "p", artifact = "c/q")\nstep(name = "q")\nalias(name = "r", actual = ":q")\n'
    }
    assert "both are `c/q@dev`" in refusal(graph, clash, "//c:p").message


def test_without_the_closure_what_is_named_need_not_exist(graph):
    files = {"exp/BUILD.marin": 'step(name = "x", deps = ["//no:where"])\n'}
    assert names(graph(files, "//exp:x", closure=False).targets) == "//exp:x"


STEP = RuleDef("step", Label("lib", "r.bzl"), Location("lib/r.bzl", 1), {"deps": AttrSpec("label_list", default=[])})


class FakeLoader:
    """One package `p` of `step`s, from name to dependencies."""

    root = Path("nowhere")

    def __init__(self, targets):
        declared = {
            name: Declaration(Label("p", name), STEP, {"deps": deps}, Location("p/BUILD.marin", line))
            for line, (name, deps) in enumerate(targets.items(), 1)
        }
        self._package = Package("p", "p/BUILD.marin", declared)

    def has_package(self, name):
        return name == "p"

    def package(self, name):
        return self._package

    def packages(self, below=""):
        return ["p"]

    def rules(self):
        return {"step": STEP}


def test_a_chain_of_twenty_thousand_needs_no_recursion():
    count = 20_000
    loader = FakeLoader({f"t{i}": [f":t{i + 1}"] if i + 1 < count else [] for i in range(count)})
    began = time.process_time()
    found = load_graph(loader, [Label("p", "t0")])
    assert time.process_time() - began < 10
    assert len(found.targets) == count
    assert next(iter(found.targets)) == Label("p", f"t{count - 1}")
    assert found.heights[Label("p", "t0")] == count - 1


def test_a_cycle_of_thousands_needs_no_recursion():
    ring = FakeLoader({f"t{i}": [f":t{(i + 1) % 3000}"] for i in range(3000)})
    with pytest.raises(RequestError, match=r"\(2994 more\)") as caught:
        load_graph(ring, [Label("p", "t0")])
    assert caught.value.notes[-1] == "and 2500 more edges"
