"""Written attributes to typed ones: what each kind takes, and the message for what it does not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.errors import Location, RequestError
from marin_cas.graph.attributes import coerce
from marin_cas.graph.naming import artifact_problem, version_problem
from marin_cas.label import Label
from marin_cas.lang.values import AttrSpec, Declaration, RuleDef, Select
from marin_cas.versions import is_dev

A, B = Label("exp", "a"), Label("exp", "b")


def declare(attrs, defines=None, profile=None, **specs):
    rule = RuleDef("train", Label("rules", "train.bzl"), Location("rules/train.bzl", 3), specs)
    where = Location("exp/BUILD.marin", 7)
    return coerce(Declaration(Label("exp", "x"), rule, attrs, where), defines or {}, profile)


def refusal(attrs, **specs) -> RequestError:
    with pytest.raises(RequestError) as caught:
        declare(attrs, **specs)
    assert caught.value.where == Location("exp/BUILD.marin", 7)
    assert caught.value.message.startswith("`//exp:x`: ")
    return caught.value


TAKEN = [
    ("string", "é", "é"),
    ("int", 3, 3),
    ("float", 1, 1.0),
    ("float", 1e-3, 0.001),
    ("bool", True, True),
    ("dict", {"a": [1, None, {"b": 2.5}]}, {"a": [1, None, {"b": 2.5}]}),
    ("list", [1, "a", [True]], [1, "a", [True]]),
    ("string_list", ["a"], ["a"]),
    ("string_dict", {"a": "b"}, {"a": "b"}),
    ("value", False, False),
    ("value", {"a": [1]}, {"a": [1]}),
    ("label", ":a", A),
    ("label", "a", A),
    ("label_list", [":a", "//exp:b"], [A, B]),
    ("label_dict", {"docs": ":a", "again": ":a"}, {"docs": A, "again": A}),
    ("label_keyed_float_dict", {":b": 0.7, "//exp:a": 1}, {B: 0.7, A: 1.0}),
    ("label_keyed_float_dict", ":b", {B: 1.0}),
]


@pytest.mark.parametrize(("kind", "written", "typed"), TAKEN)
def test_each_kind_takes_its_own(kind, written, typed):
    value = declare({"v": written}, v=AttrSpec(kind))["v"]
    assert value == typed
    assert type(value) is type(typed)
    if kind == "label_keyed_float_dict":
        assert list(value) == [B, A][: len(value)], "declaration order"
        assert all(type(weight) is float for weight in value.values())


@pytest.mark.parametrize(
    ("kind", "written", "says"),
    [
        ("string", 1, "`v` of `train` must be a string, not the int `1`"),
        ("int", True, "must be an int, not the bool `True`"),
        ("int", 1.0, "must be an int, not the float `1.0`"),
        ("float", True, "must be a number, not the bool `True`"),
        ("float", "1e-3", 'must be a number, not the string `"1e-3"`'),
        ("float", 10**400, "which no float holds exactly"),
        ("float", 2**53 + 1, "which no float holds exactly"),
        ("float", math.inf, "NaN or infinite"),
        ("float", None, "`v` of `train` is NaN or infinite (or None)"),
        ("int", None, "is NaN or infinite (or None)"),
        ("bool", 1, "must be True or False"),
        ("dict", [], "must be a dict"),
        ("dict", {"a": {"b": [1, object()]}}, '`v["a"]["b"][1]` of `train` is'),
        ("dict", {"a": math.nan}, '`v["a"]` of `train` is NaN'),
        ("dict", {"a": Select({"//conditions:default": 1})}, '`v["a"]` of `train` is a select()'),
        ("list", {}, "must be a list"),
        ("string_list", "abc", "must be a list of strings"),
        ("string_list", ["a", 1], "`v[1]` of `train` must be a string"),
        ("label", 3, "must be a label"),
        ("label", "//exp:a:b", "which is not a label"),
        ("label_list", [":a", "//../b"], '`v[1]` of `train` holds `"//../b"`, which is not a label'),
        ("label_list", [":a", "//exp:a"], "names `//exp:a` twice"),
        ("label_keyed_float_dict", {":a": None}, '`v[":a"]` of `train` is NaN or infinite (or None)'),
        ("label_keyed_float_dict", {":a": "1"}, '`v[":a"]` of `train` must be a number'),
        ("label_keyed_float_dict", {":a": 1, "//exp:a": 2}, "names `//exp:a` twice, as `:a` and `//exp:a`"),
        ("label_dict", {"a": [":a"]}, '`v["a"]` of `train` must be a label'),
    ],
)
def test_each_kind_refuses_the_others(kind, written, says):
    assert says in refusal({"v": written}, v=AttrSpec(kind)).message


def test_a_string_where_a_list_is_due_says_what_was_meant():
    assert refusal({"v": "abc"}, v=AttrSpec("string_list")).hint == 'did you mean `["abc"]`?'


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53))
def test_a_float_is_the_number_written(number):
    value = declare({"v": number}, v=AttrSpec("float"))["v"]
    assert type(value) is float and value == number


def test_left_out_attributes_get_typed_defaults_in_the_rules_order():
    specs = {
        "z": AttrSpec("float", default=1),
        "a": AttrSpec("label", default=":tok"),
        "n": AttrSpec("int"),
        "t": AttrSpec("string_list", default=["x"]),
    }
    attrs = declare({"t": ["y"]}, **specs)
    assert list(attrs.items()) == [("z", 1.0), ("a", Label("rules", "tok")), ("n", None), ("t", ["y"])]


def test_a_default_that_its_own_kind_refuses_is_the_rules_fault():
    with pytest.raises(RequestError) as caught:
        declare({}, v=AttrSpec("int", default="x"))
    assert caught.value.where == Location("rules/train.bzl", 3)


def test_an_unknown_attribute_and_a_missing_one():
    lr = AttrSpec("float", mandatory=True)
    misspelt = refusal({"learning_rat": 1.0}, learning_rate=lr)
    assert "`train` has no attribute `learning_rat`" in misspelt.message
    assert misspelt.hint == "did you mean `learning_rate`?"
    assert "`train` needs the attribute `learning_rate`" in refusal({}, learning_rate=lr).message


def test_allowed_values_are_of_one_type_and_also_hold_for_elements():
    spec = AttrSpec("string", values=("exact", "sampled"))
    assert declare({"v": "exact"}, v=spec)["v"] == "exact"
    error = refusal({"v": "exakt"}, v=spec)
    assert 'is `"exakt"`, not one of `"exact"`, `"sampled"`' in error.message
    assert error.hint == "did you mean `exact`?"
    refusal({"v": ["exact", "no"]}, v=AttrSpec("string_list", values=("exact",)))


EXECUTION = AttrSpec("string", bears="execution")
CHOICE = Select({"define:fast": "f", "define:mode=slow": "s", "profile:ci": "c", "//conditions:default": "d"})


@pytest.mark.parametrize(
    ("defines", "profile", "chosen"),
    [
        ({}, None, "d"),
        ({"fast": "1"}, None, "f"),
        ({"fast": ""}, None, "f"),
        ({"fast": "0"}, None, "d"),
        ({"fast": "false"}, None, "d"),
        ({"mode": "slow"}, None, "s"),
        ({"mode": "quick"}, None, "d"),
        ({}, "ci", "c"),
        ({}, "dev", "d"),
    ],
)
def test_select_on_defines_and_profile(defines, profile, chosen):
    assert declare({"v": CHOICE}, defines, profile, v=EXECUTION)["v"] == chosen


def test_a_define_with_its_value_goes_before_one_without():
    select = Select({"define:k": "any", "define:k=v": "exact"})
    assert declare({"v": select}, {"k": "v"}, v=EXECUTION)["v"] == "exact"
    assert declare({"v": select}, {"k": "w"}, v=EXECUTION)["v"] == "any"


def test_select_is_added_to_a_list():
    select = Select({"define:fast": ["b", "c"], "//conditions:default": []})
    spec = AttrSpec("string_list", bears="reporting")
    assert declare({"v": ["a", select, "z"]}, {"fast": "1"}, v=spec)["v"] == ["a", "b", "c", "z"]
    assert declare({"v": ["a", select, "z"]}, v=spec)["v"] == ["a", "z"]


def test_only_the_chosen_branch_is_a_dependency():
    from marin_cas.graph.attributes import Coercer

    spec = AttrSpec("label", bears="reporting")
    rule = RuleDef("r", Label("rules", "r.bzl"), Location("r"), {"v": spec})
    select = Select({"define:k": ":a", "//conditions:default": ":b"})
    found = Coercer({}, None).coerce(Declaration(Label("exp", "x"), rule, {"v": select}, Location("f", 1)))
    assert found.labels == (("v", B),)


@pytest.mark.parametrize(
    ("spec", "select", "says"),
    [
        (AttrSpec("string"), CHOICE, "bears identity, so it cannot be a select()"),
        (EXECUTION, Select({"fast": "f"}), "the condition `fast`, which is none of"),
        (EXECUTION, Select({"define:": "f"}), "the condition `define:`, which is none of"),
        (EXECUTION, Select({"define:k": "f"}), "no condition holds (`define:k`)"),
        (EXECUTION, Select({"profile:p": 3, "//conditions:default": "d"}), "branch `profile:p` must be a string"),
        (AttrSpec("string_list", bears="execution"), ["a", Select({"//conditions:default": "b"})], "not a list"),
        (AttrSpec("int", bears="execution"), Select({"//conditions:default": None}), "NaN or infinite (or None)"),
    ],
)
def test_selects_that_are_refused(spec, select, says):
    assert says in refusal({"v": select}, v=spec).message


def test_two_conditions_that_hold_are_refused_unless_they_agree():
    with pytest.raises(RequestError, match="more than one condition"):
        declare({"v": Select({"define:a": "1", "define:b": "2"})}, {"a": "1", "b": "1"}, v=EXECUTION)
    assert declare({"v": Select({"define:a": "1", "define:b": "1"})}, {"a": "1", "b": "1"}, v=EXECUTION)["v"] == "1"


ARTIFACT = {"artifact": AttrSpec("string", bears="reporting"), "version": AttrSpec("string", default="dev")}


def test_an_artifact_is_named_by_its_label_unless_told():
    assert declare({}, **ARTIFACT) == {"artifact": "exp/x", "version": "dev"}
    assert declare({"artifact": "data/fine", "version": "2026.01.31"}, **ARTIFACT)["artifact"] == "data/fine"


@pytest.mark.parametrize("name", ["", "gs://b/x", "a/../b", "/a", "a/", "a\nb"])
def test_artifact_names_that_are_none(name):
    assert artifact_problem(name)
    assert "the artifact name" in refusal({"artifact": name}, **ARTIFACT).message


@pytest.mark.parametrize("version", ["2026.01.31", "2026.01.31.2", "dev", "tiny-dev", "exp/tiny-dev", "-dev"])
def test_versions(version):
    assert version_problem(version) is None
    assert is_dev(version) == (not version.startswith("2026"))


@pytest.mark.parametrize(
    "version", ["", "v1", "2026.1.31", "2026.01.31\n", "2026.01.31.", "٢٠٢٦.01.31", "a@b-dev", "latest"]
)
def test_versions_that_are_none(version):
    assert version_problem(version)
    assert "the version" in refusal({"version": version}, **ARTIFACT).message
