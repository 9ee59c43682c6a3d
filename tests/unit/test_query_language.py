"""The query language: grammar and its errors, every verb, order and speed, over a workspace on disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.errors import Location, RequestError
from marin_cas.label import Label
from marin_cas.lang.loader import Loader
from marin_cas.lang.values import AttrSpec, Declaration, Package, RuleDef
from marin_cas.query.parser import parse
from marin_cas.query.query import run, shorthand
from marin_cas.query.syntax import Chain, Let, Word

FILES = {
    "lib/BUILD.marin": "",
    "lib/base.bzl": '"""Base."""\nX = 1\n',
    "lib/rules.bzl": '''"""Rules."""
load("//lib:base.bzl", "X")
def _impl(ctx):
    return [DefaultInfo(outputs = {})]
tokenized = rule(implementation = _impl, attrs = {
    "raw": attr.label(), "lr": attr.float(default = 1), "fast": attr.bool(bears = "execution"),
    "more": attr.label_list(bears = "reporting"),
})
mixture = rule(implementation = _impl, attrs = {"components": attr.label_keyed_float_dict()})
score_test = rule(implementation = _impl, attrs = {"eval": attr.label()}, test = True)
test_suite = rule(implementation = _impl, attrs = {"tests": attr.label_list()})
''',
    "exp/BUILD.marin": """load("//lib:rules.bzl", "mixture", "score_test", "test_suite", "tokenized")
package(default_visibility = ["//visibility:public"])
tokenized(name = "a", raw = "a.txt", lr = 1e-3, tags = ["manual", "text"])
tokenized(name = "b", raw = "//data:b", fast = True,
    more = select({"define:extra": [":a"], "//conditions:default": []}))
mixture(name = "mix", components = {":a": 0.7, ":b": 0.3})
alias(name = "demo", actual = ":mix")
score_test(name = "score", eval = ":demo")
score_test(name = "other", eval = ":a")
test_suite(name = "some", tests = [":score"])
test_suite(name = "every")
test_suite(name = "nested", tests = [":some", ":nested2"])
test_suite(name = "nested2", tests = [":some"])
""",
    "exp/a.txt": "",
    "data/BUILD.marin": """load("//lib:rules.bzl", "tokenized")
tokenized(name = "b", visibility = ["//visibility:public"])
tokenized(name = "unused")
""",
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    root = tmp_path_factory.mktemp("workspace")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def ask(workspace):
    def asked(expression, package="exp", **options):
        return " ".join(map(str, run(expression, Loader(workspace, workspace), package, **options).labels))

    return asked


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("//exp:a", "//exp:a"),
        ("a.txt", "//exp:a.txt"),
        ("deps(:mix)", "//exp:mix //exp:a //exp:b //data:b //exp:a.txt"),
        ("deps(:mix, 0)", "//exp:mix"),
        ("deps(:mix, 1)", "//exp:mix //exp:a //exp:b"),
        ("deps(:demo, 2)", "//exp:demo //exp:mix //exp:a //exp:b"),
        (
            "rdeps(//..., //data:b)",
            "//exp:nested //exp:nested2 //exp:some //exp:score //exp:demo //exp:mix //exp:b //data:b",
        ),
        ("rdeps(//..., //data:b, 1)", "//exp:b //data:b"),
        ("rdeps(:mix, //data:b)", "//exp:mix //exp:b //data:b"),
        ("rdeps(:a, //data:b)", ""),
        ("rdeps(//..., a.txt ^ :a)", ""),
        ("allpaths(:score, //data:b)", "//exp:score //exp:demo //exp:mix //exp:b //data:b"),
        ("allpaths(//data:b, :score)", ""),
        ("somepath(:mix, :a.txt)", "//exp:mix //exp:a //exp:a.txt"),
        ("somepath(:score + :mix, //data:b)", "//exp:mix //exp:b //data:b"),
        ("somepath(//data:b, :mix)", ""),
        ("kind(tokenized, //...)", "//data:b //data:unused //exp:a //exp:b"),
        ("kind('^mixture$', //...)", "//exp:mix"),
        ("kind('mixture rule', //...)", "//exp:mix"),
        ("kind('source file', deps(:mix))", "//exp:a.txt"),
        ("attr(lr, '^0.001$', //...)", "//exp:a"),
        ("attr(lr, 1.0, //exp:all)", "//exp:b"),
        ("attr(fast, True, //...)", "//exp:b"),
        ("attr(tags, '[\\[ ]text[,\\]]', //...)", "//exp:a"),
        ("attr(components, '//exp:a: 0.7', //...)", "//exp:mix"),
        ("attr(name, '^b$', //...)", "//data:b //exp:b"),
        ("attr(visibility, public, //data:all)", "//data:b"),
        ("filter('/data', deps(:mix))", "//data:b"),
        ("labels(raw, //exp:all)", "//data:b //exp:a.txt"),
        ("labels(components, :mix)", "//exp:a //exp:b"),
        ("deps(labels(components, :mix)) - :b", "//exp:a //data:b //exp:a.txt"),
        ("siblings(//data:b)", "//data:b //data:unused"),
        ("deps(siblings(//data:b))", "//data:b //data:unused"),
        ("tests(:all)", "//exp:other //exp:score"),
        ("tests(:every)", "//exp:other //exp:score"),
        ("tests(:nested)", "//exp:score"),
        ("tests(:a)", ""),
        ("buildfiles(:a)", "//exp:BUILD.marin //lib:base.bzl //lib:rules.bzl"),
        ("filter(bzl, buildfiles(//...))", "//lib:base.bzl //lib:rules.bzl"),
        ("set()", ""),
        ("set(:b :a //data:b)", "//data:b //exp:a //exp:b"),
        ("//data:all + :a", "//data:b //data:unused //exp:a"),
        ("//data:all union :a", "//data:b //data:unused //exp:a"),
        ("//...-:a ^ //data:all", None),
        ("//... - :a ^ //data:all", "//data:b //data:unused"),
        ("//... ^ (:a + :b) - :b", "//exp:a"),
        ("//... intersect :a except :a", ""),
        ("(//data:all - //data:b) + //data:b", "//data:b //data:unused"),
        ("let v = deps(:mix) in kind(tokenized, $v) - :a", "//exp:b //data:b"),
        ("let v = :a in let w = $v + :b in $w - $v", "//exp:b"),
        ("let v = :a in let v = :b in $v", "//exp:b"),
        ('"//exp:a"', "//exp:a"),
        ("deps(:a)-:a.txt", "//exp:a"),
        ("deps(\n  :a, 1\n)", "//exp:a //exp:a.txt"),
    ],
)
def test_answers(ask, expression, answer):
    if answer is None:
        with pytest.raises(RequestError):
            ask(expression)
    else:
        assert ask(expression) == answer


def test_selects_follow_the_flags(ask):
    assert ask("labels(more, :b)") == ""
    assert ask("labels(more, :b)", defines={"extra": "1"}) == "//exp:a"


@pytest.mark.parametrize(
    ("expression", "says", "column", "hint"),
    [
        ("", "the query is empty", 0, None),
        ("dpes(//exp:a)", "no query function `dpes`", 0, "did you mean `deps`?"),
        ("deps(//exp:a", "expected `)` to close `deps(`, found the end", 12, "write `deps(x[, depth])`"),
        ("deps(//exp:a, x)", "`depth` of `deps(x[, depth])` is a whole number, not `x`", 14, None),
        ("deps(//exp:a, 1, 2)", "expected `)` to close `deps(`, found `,`", 15, None),
        ("deps()", "expected a target pattern or a function, found `)`", 5, None),
        ("rdeps(//...)", "expected `,` and `x`, found `)`", 11, "write `rdeps(universe, x[, depth])`"),
        ("deps :a", "`deps` needs parentheses", 5, "write `deps(x[, depth])`"),
        ("kind(a|b, //...)", "`|` has no meaning here", 6, "put names"),
        ("kind(^a, //...)", "expected `regex` of `kind(regex, x)`, found `^`", 5, "needs quotes"),
        ("kind('a(', //...)", "`a(` is not a regular expression", 7, None),
        ("filter('a, //...)", "the quote ' is never closed", 7, None),
        (":a :b", "`:b` was not expected here", 3, "join two expressions"),
        (":a=1", "`=` was not expected here", 2, "needs quotes"),
        ("deps", "no target `//exp:deps`", 0, "write `deps(x[, depth])`"),
        ("deps(:a, -1)", "expected `depth` of `deps(x[, depth])`, found `-`", 9, None),
        (":a +", "expected a target pattern or a function, found the end", 4, None),
        ("- :a", "found `-`", 0, "a difference needs something before it"),
        ("(:a", "expected `)` to close the parenthesis, found the end", 3, None),
        (":a)", "`)` was not expected here", 2, None),
        ("set(:a, :b)", "found `,`", 6, "separated by spaces"),
        ("let in = :a in $v", "expected a name after `let`", 4, None),
        ("let v :a in $v", "expected `=` after `let v`", 6, None),
        ("let v = :a", "expected `in` after the value of `v`", 10, None),
        ("let value = :a in $vlaue", "no `let` gives `$vlaue` a value", 18, "did you mean `$value`?"),
        ("(let v = :a in $v) + $v", "no `let` gives `$v` a value", 21, None),
        ("union", "`union` is a word of the language", 0, None),
        ("deps(//exp:tinny) + :a", "no target `//exp:tinny`", 5, None),
        ("//exp:a-//exp:b", "is not a label", 0, "put spaces around `-`"),
        ("attr(learning, 1, //...)", "no rule has an attribute `learning`", None, None),
        ("attr(componets, 1, //...)", "no rule has an attribute `componets`", None, "did you mean `components`?"),
    ],
)
def test_errors_point_at_the_place(ask, expression, says, column, hint):
    with pytest.raises(RequestError) as caught:
        ask(expression)
    error = caught.value
    assert says in error.message
    if column is not None:
        assert error.notes == (expression, " " * column + "^")
    if hint is not None:
        assert hint in (error.hint or "")


def test_the_caret_stays_on_a_screen_and_on_its_line():
    with pytest.raises(RequestError) as caught:
        parse("//a +\n" + "//x + " * 60 + "| //b")
    line, caret = caught.value.notes
    assert len(line) < 120 and line[len(caret) - 1] == "|"


def test_deep_nesting_is_refused_and_long_chains_are_not():
    with pytest.raises(RequestError, match="nested deeper than 100"):
        parse("(" * 5000 + ":a" + ")" * 5000)
    with pytest.raises(RequestError, match="nested deeper than 100"):
        parse("deps(" * 5000)
    chain = parse(" + ".join([":a"] * 5000))
    assert isinstance(chain, Chain) and len(chain.rest) == 4999


PIECES = ["deps", "(", ")", ",", "+", "-", "^", ":a", "let", "v", "=", "in", "$v", "set", "1", "'r'", "kind"]


@given(st.text(max_size=30) | st.lists(st.sampled_from(PIECES)).map(" ".join))
def test_any_text_parses_or_is_refused_cleanly(text):
    try:
        parse(text)
    except RequestError:
        pass


def test_operators_go_from_left_to_right():
    a, b, c = Word(":a", 0), Word(":b", 5), Word(":c", 10)
    assert parse(":a - :b ^ :c") == Chain(a, (("-", b), ("^", c)))
    assert isinstance(parse("let v = :a in $v + :b"), Let)


@pytest.mark.parametrize(
    ("words", "expression"),
    [
        (["deps(//exp:a)"], "deps(//exp:a)"),
        (["//exp:a"], "//exp:a"),
        (["deps", "//exp:a"], "deps(//exp:a)"),
        (["deps", "//exp:a", "2"], 'deps(//exp:a, "2")'),
        (["rdeps", "//...", "//exp:a"], "rdeps(//..., //exp:a)"),
        (["kind", "a|b", "//..."], 'kind("a|b", //...)'),
        (["kind", "'a|b'", "//..."], "kind('a|b', //...)"),
        (["deps", "//exp:a", "-", "//exp:b"], "deps(//exp:a - //exp:b)"),
        (["deps", "kind(x, //...)"], "deps(kind(x, //...))"),
        (["//exp:a", "+", "//exp:b"], "//exp:a + //exp:b"),
        (["let", "v", "=", ":a", "in", "$v"], "let v = :a in $v"),
        (["deps", "(//exp:a)", "+", ":b"], "deps (//exp:a) + :b"),
    ],
)
def test_shorthand(words, expression):
    assert shorthand(words) == expression
    parse(expression)


def test_a_shorthand_with_too_many_words_says_so():
    with pytest.raises(RequestError, match="expected `\\)` to close `deps\\("):
        parse(shorthand(["deps", ":a", "1", ":b"]))


def test_a_query_sees_what_visibility_forbids(tmp_path):
    for name, text in {
        "a/BUILD.marin": 'filegroup(name = "x", srcs = ["//b:y"])\n',
        "b/BUILD.marin": 'filegroup(name = "y")\n',
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert [str(x) for x in run("deps(//a:x)", Loader(tmp_path, tmp_path)).labels] == ["//a:x", "//b:y"]


def test_without_a_walk_dependencies_are_not_loaded(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/BUILD.marin").write_text('filegroup(name = "x", srcs = ["//no:y"])\n')
    assert run("kind(filegroup, //...)", Loader(tmp_path, tmp_path)).labels == (Label("a", "x"),)
    with pytest.raises(RequestError, match="no package"):
        run("deps(//a:x)", Loader(tmp_path, tmp_path))


class Chained:
    """A package of `count` targets, each depending on the next."""

    root = Path("nowhere")

    def __init__(self, count):
        rule = RuleDef("step", Label("lib", "r.bzl"), Location("lib/r.bzl", 1), {"dep": AttrSpec("label")})
        self._rules = {"step": rule}
        declared = {}
        for i in range(count):
            attrs = {"dep": f":t{i + 1}"} if i + 1 < count else {}
            declared[f"t{i}"] = Declaration(Label("p", f"t{i}"), rule, attrs, Location("p/BUILD.marin", i + 1))
        self._package = Package("p", "p/BUILD.marin", declared)

    def has_package(self, name):
        return name == "p"

    def package(self, name):
        return self._package

    def packages(self, below=""):
        return ["p"]

    def rules(self):
        return self._rules


def test_a_chain_of_twenty_thousand():
    count = 20_000
    loader = Chained(count)
    began = time.process_time()
    result = run("deps(//p:t0)", loader)
    assert time.process_time() - began < 10
    assert [label.name for label in result.labels] == [f"t{i}" for i in range(count)]
    assert len(result.edges) == count - 1


def test_no_walk_needs_recursion():
    loader = Chained(3000)
    assert len(run("somepath(//p:t0, //p:t2999)", loader).nodes) == 3000
    assert len(run("allpaths(//p:t0, //p:t2999) ^ rdeps(//p:t0, //p:t100)", loader).nodes) == 101


def test_tainted_asks_whoever_knows_and_only_then(workspace):
    asked = []

    def tainted():
        asked.append(1)
        return [Label("exp", "a"), Label("exp", "gone"), Label("no/such", "package"), Label("data", "b")]

    def answer(expression):
        return " ".join(map(str, run(expression, Loader(workspace, workspace), "exp", tainted=tainted).labels))

    assert answer("deps(:b)") == "//exp:b //data:b"
    assert not asked
    assert answer("tainted()") == "//data:b //exp:a"
    assert answer("rdeps(//..., tainted()) ^ kind(mixture, //...)") == "//exp:mix"
    assert answer("deps(:mix) - tainted()") == "//exp:mix //exp:b //exp:a.txt"
    assert answer("let t = tainted() in deps($t)") == "//exp:a //data:b //exp:a.txt"
    with pytest.raises(RequestError, match="expected `\\)` to close `tainted\\(`"):
        answer("tainted(:b)")
