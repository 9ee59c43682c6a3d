"""The call of a rule's implementation: what it sees, what it may ask for, what it returns, how it fails."""

from __future__ import annotations

import pytest

from marin_cas.errors import BuildError, Location, RequestError
from marin_cas.label import Label
from marin_cas.lang.values import Dep
from tests.unit.lang_workspace import LOAD, workspace


class Artifact:
    """Something that Starlark cannot look into."""


HF, NATIVE, METRICS = Artifact(), Artifact(), Artifact()
CHECKPOINT = {"DefaultInfo": {"outputs": {"hf": HF}}, "CheckpointInfo": {"hf": HF, "native": None}}


def run_nothing(name, arguments):
    return {output: Artifact() for output in arguments["outputs"]}


def implement(tmp_path, body: str, attrs: dict | None = None, *, run=run_nothing, more: str = "", **services):
    """Calls an implementation with the given body for the target `//exp:t`."""
    rules = (
        f'# rules\nload("//rules:x.bzl", "CheckpointInfo")\n{more}\n'
        'AnyInfo = provider(fields = ["value", "other"])\n'
        "def _impl(ctx):\n"
        + "".join(f"    {line}\n" for line in body.splitlines())
        + "thing = rule(implementation = _impl, attrs = {})\n"
    )
    build = 'load("//:r.bzl", "thing")\n\ndeclared = thing(\n    name = "t",\n)\n'
    loader = workspace(tmp_path, {"r.bzl": rules, "exp/BUILD.marin": build})
    return loader.implement(loader.package("exp").declarations["t"], attrs or {}, run, **services)


def value(tmp_path, expression: str, attrs: dict | None = None, **services):
    return implement(tmp_path, f"return AnyInfo(value = {expression})", attrs, **services)["AnyInfo"]["value"]


def test_a_whole_rule(tmp_path):
    calls = []

    def run(name, arguments):
        calls.append((name, arguments))
        return {"hf": HF, "metrics": METRICS}

    loader = workspace(tmp_path, {"BUILD.marin": LOAD + 'train_lm(name = "t", lr = 0.1, init = ":c")\n'})
    declaration = loader.package("").declarations["t"]
    init = Dep(Label("", "c"), "train_lm", CHECKPOINT)
    made = loader.implement(declaration, {"lr": 0.1, "model": {"b": 1, "a": 2.0}, "init": init}, run)
    assert calls == [
        (
            "",
            {
                "tool": "train",
                "revision": 3,
                "params": {"lr": 0.1, "model": {"b": 1, "a": 2.0}},
                "inputs": {"init": HF},
                "outputs": {"hf": "tree", "metrics": "file"},
                "reporting": ["metrics"],
            },
        )
    ]
    assert made == {
        "DefaultInfo": {"outputs": {"hf": HF, "metrics": METRICS}},
        "CheckpointInfo": {"hf": HF, "native": None},
    }
    assert made["CheckpointInfo"]["hf"] is HF


def test_what_ctx_tells(tmp_path):
    assert value(tmp_path, "[ctx.label.package, ctx.label.name, ctx.label.text]") == ["exp", "t", "//exp:t"]
    assert value(tmp_path, "[ctx.attr.a, ctx.attr.b]", {"a": None, "b": ["x"]}) == [None, ["x"]]


def test_label_attributes(tmp_path):
    def dep(name):
        return Dep(Label("p", name), "train_lm", {"CheckpointInfo": {"hf": name, "native": HF}})

    attrs = {
        "one": dep("one"),
        "many": [dep("b"), dep("a")],
        "named": {"z": dep("b"), "a": dep("a")},
        "weighted": [(dep("z"), 0.7), (dep("a"), 0.3)],
        "none": None,
        "empty": [],
    }
    assert value(tmp_path, "[ctx.attr.one.label, ctx.attr.one.kind]", attrs) == ["//p:one", "train_lm"]
    assert value(tmp_path, "ctx.attr.one.CheckpointInfo.native", attrs) is HF
    assert value(tmp_path, "[d.CheckpointInfo.hf for d in ctx.attr.many]", attrs) == ["b", "a"]
    assert value(tmp_path, "[[k, d.label] for k, d in ctx.attr.named.items()]", attrs) == [
        ["z", "//p:b"],
        ["a", "//p:a"],
    ]
    assert value(tmp_path, "[[d.label, w] for d, w in ctx.attr.weighted]", attrs) == [["//p:z", 0.7], ["//p:a", 0.3]]
    assert value(tmp_path, "[ctx.attr.none, ctx.attr.empty]", attrs) == [None, []]
    assert value(tmp_path, 'hasattr(ctx.attr.one, "EvalInfo")', attrs) is False


def test_artifacts_travel_inside_values(tmp_path):
    parts = [{"name": "z", "cache": HF, "weight": 0.5}, {"name": "a", "cache": NATIVE, "weight": 1}]
    dep = Dep(Label("p", "m"), "mixture", {"MixtureInfo": {"components": parts}})
    assert value(tmp_path, "ctx.attr.m.MixtureInfo.components", {"m": dep}) == parts
    assert value(tmp_path, "{c['name']: c['cache'] for c in ctx.attr.m.MixtureInfo.components}", {"m": dep}) == {
        "z": HF,
        "a": NATIVE,
    }


def test_actions_have_names_and_lists_of_inputs(tmp_path):
    calls = []

    def run(name, arguments):
        calls.append((name, arguments.get("inputs")))
        return run_nothing(name, arguments)

    body = (
        'ctx.actions.run(tool = "a", revision = 1, outputs = {"o": "file"}, name = "first", code = None)\n'
        'ctx.actions.run(tool = "b", revision = 1, outputs = {"o": "file"}, inputs = {"x": [ctx.attr.a, ctx.attr.a]})\n'
        "return []"
    )
    assert implement(tmp_path, body, {"a": HF}, run=run) == {}
    assert calls == [("first", None), ("", {"x": [HF, HF]})]


def test_identity_and_expand_ask_analysis(tmp_path):
    assert (
        value(tmp_path, "identity(ctx.attr.a)", {"a": HF}, identity=lambda artifact: f"id {artifact is HF}")
        == "id True"
    )
    expanded = value(tmp_path, 'ctx.expand("s", {"b": 1, "a": [2.5]})', expand=lambda schema, given: [schema, given])
    assert expanded == ["s", {"b": 1, "a": [2.5]}]


def failure(tmp_path, body: str, attrs: dict | None = None, **options) -> str:
    with pytest.raises(RequestError) as caught:
        implement(tmp_path, body, attrs, **options)
    return caught.value.render()


RUN = 'ctx.actions.run(tool = "t", revision = 1, outputs = {"o": "file"}, %s)'
IN_RULE = "\n  in rule `thing` (r.bzl:6)"
ACTIONS = {
    "inptus = {}": "`ctx.actions.run` has no argument `inptus`" + IN_RULE + "\n  hint: did you mean `inputs`?",
    "params = []": "`params` of `ctx.actions.run` is a dict, not []" + IN_RULE,
    "heavy = 1": "`heavy` of `ctx.actions.run` is a bool, not 1" + IN_RULE,
    'inputs = {"x": "a.txt"}': "the input `x` is not an artifact but 'a.txt'" + IN_RULE,
    'reporting = ["p"]': "the reporting output `p` is not among the outputs" + IN_RULE,
    'outcome = "approximate"': "`outcome` is `exact` or `sampled`, not `approximate`" + IN_RULE,
    'params = {"x": 1e308 * 10}': "`params.x` is not a finite number"
    + IN_RULE
    + "\n  hint: NaN and infinities are refused",
    'params = {"x": {1: 2}}': "`params.x` has the key `1`: keys are strings" + IN_RULE + '\n  hint: write `"1"`',
    'params = {"x": len}': "`params.x` is a function, not a plain value"
    + IN_RULE
    + "\n  hint: use text, numbers, lists and dicts",
}


@pytest.mark.parametrize("arguments", ACTIONS)
def test_wrong_arguments_of_an_action(tmp_path, arguments):
    assert failure(tmp_path, RUN % arguments) == f"error: exp/BUILD.marin:3: {ACTIONS[arguments]}"


def test_what_an_action_needs(tmp_path):
    assert "needs `outputs`" in failure(tmp_path, 'ctx.actions.run(tool = "t", revision = 1)')
    assert "needs `tool`" in failure(tmp_path, 'ctx.actions.run(revision = 1, outputs = {"o": "file"})')
    assert "the output `o` is neither" in failure(
        tmp_path, 'ctx.actions.run(tool = "t", revision = 1, outputs = {"o": "dir"})'
    )
    assert "`ctx.actions.run` takes its arguments by name" in failure(tmp_path, 'ctx.actions.run("t")')
    assert "a plain value" in failure(tmp_path, RUN % 'params = {"x": ctx.attr.a}', {"a": HF})


RETURNS = {
    "return 3": "a rule's implementation returns a list of providers, not a int",
    "pass": "a rule's implementation returns a list of providers, not a NoneType",
    "return [struct(a = 1)]": "a rule's implementation returns a list of providers, not a struct",
    "return AnyInfo(valeu = 1)": "`AnyInfo` has no field `valeu`",
    "return AnyInfo(1)": "`AnyInfo` takes its fields by name",
    "return AnyInfo(value = struct(a = 1))": "the field `value` of a provider holds a struct",
    "return AnyInfo(value = len)": "`value` is a function, not a plain value",
    "return AnyInfo(value = {1: 2})": "`value` has the key `1`: keys are strings",
    "return AnyInfo(value = 1e308 * 10)": "`value` is not a finite number",
}


@pytest.mark.parametrize("body", RETURNS)
def test_wrong_returns(tmp_path, body):
    assert failure(tmp_path, body).startswith(f"error: exp/BUILD.marin:3: {RETURNS[body]}\n")


def test_a_provider_returned_twice(tmp_path):
    assert failure(tmp_path, "return [AnyInfo(value = 1), AnyInfo(value = 2)]").startswith(
        "error: r.bzl:7: the rule `thing` returns `AnyInfo` twice\n  for `//exp:t` (exp/BUILD.marin:3)"
    )


def test_a_provider_that_a_dependency_has_not(tmp_path):
    have = Dep(Label("p", "have"), "train_lm", CHECKPOINT)
    lack = Dep(Label("p", "lack"), "tokenized", {"DefaultInfo": {}, "AnyInfo": {"value": 1}})
    expected = (
        "error: exp/BUILD.marin:3: `//p:lack` (tokenized) has no `CheckpointInfo`: it has DefaultInfo, AnyInfo"
        "\n  in rule `thing` (r.bzl:6)"
    )
    body = "return AnyInfo(value = ctx.attr.a.CheckpointInfo.hf)"
    # Another dependency without it is not blamed where the attribute is spelled out.
    assert failure(tmp_path, body, {"other": lack, "a": lack, "b": have}) == expected
    assert failure(tmp_path, "return [d.CheckpointInfo for d in ctx.attr.d]", {"d": [have, lack, lack]}) == expected


def test_an_attribute_that_the_rule_has_not(tmp_path):
    assert failure(tmp_path, "x = 1\nreturn ctx.attr.valu", {"value": 1}) == (
        "error: r.bzl:7: the rule `thing` has no attribute `valu`\n"
        "  for `//exp:t` (exp/BUILD.marin:3)\n  hint: did you mean `value`?"
    )


def test_fail_in_an_implementation_blames_the_target(tmp_path):
    assert failure(tmp_path, "check(ctx)\n", more='def check(ctx):\n    x = 1\n    fail("no", ctx.label.name)\n') == (
        "error: exp/BUILD.marin:3: no t\n  in rule `thing` (r.bzl:5)"
    )


def test_an_error_of_the_language_names_the_line_and_the_target(tmp_path):
    assert failure(tmp_path, "x = 1\ny = x + ctx.attr.a\nreturn []", {"a": "s"}) == (
        "error: r.bzl:7: Operation `+` not supported for types `int` and `string`\n  for `//exp:t` (exp/BUILD.marin:3)"
    )


def test_errors_of_analysis_keep_their_kind_and_place(tmp_path):
    body = RUN % "params = {}" + "\nreturn []"

    def placed(name, arguments):
        raise BuildError("placed", where=Location("elsewhere", 7))

    def unplaced(name, arguments):
        raise BuildError("unplaced", hint="do it")

    def interrupted(name, arguments):
        raise KeyboardInterrupt

    with pytest.raises(BuildError) as caught:
        implement(tmp_path, body, run=placed)
    assert caught.value.where == Location("elsewhere", 7)
    with pytest.raises(BuildError) as caught:
        implement(tmp_path, body, run=unplaced)
    assert caught.value.render() == "error: exp/BUILD.marin:3: unplaced\n  in rule `thing` (r.bzl:6)\n  hint: do it"
    with pytest.raises(KeyboardInterrupt):
        implement(tmp_path, body, run=interrupted)


def test_builtins_of_build_files_are_refused(tmp_path):
    assert "`glob` is called from a BUILD file" in failure(tmp_path, 'return glob(["*"])')
    assert "`thing2` is called from a BUILD file" in failure(
        tmp_path, 'thing2(name = "x")', more="def _i(ctx):\n    return []\nthing2 = rule(implementation = _i)\n"
    )


def test_built_in_rules_have_no_implementation(tmp_path):
    loader = workspace(tmp_path, {"BUILD.marin": 'alias(name = "a", actual = ":b")\n'})
    with pytest.raises(ValueError, match="built in"):
        loader.implement(loader.package("").declarations["a"], {}, run_nothing)


def test_a_chain_is_implemented_one_by_one(tmp_path):
    text = LOAD + '[train_lm(name = "t%d" % i, lr = 0.1, init = ":t%d" % (i - 1)) for i in range(3000)]\n'
    loader = workspace(tmp_path, {"BUILD.marin": text})
    dep, last = None, None
    for declaration in loader.package("").declarations.values():
        last = loader.implement(declaration, {"lr": 0.1, "model": {}, "init": dep}, run_nothing)
        dep = Dep(declaration.label, "train_lm", last)
    assert last is not None and isinstance(last["CheckpointInfo"]["hf"], Artifact)
