"""What is in a key: for every attribute of every rule, and for all that is around a workspace."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marin_cas.action import SAMPLED
from marin_cas.analysis import tasks
from marin_cas.analysis.analysis import Analysis
from marin_cas.label import parse_label
from marin_cas.lang.values import IDENTITY, REPORTING, AttrSpec
from tests.identity.analysed import analysed, fingerprint, key
from tests.identity.pipeline import FILES, PIPELINE
from tests.identity.space import Attrs, Declared, Space, all_rules, lock
from tests.identity.table import CASES, SPELLINGS, SUPPORT, Case, Other, consumer, declared

RULES = sorted(all_rules())


@dataclass(frozen=True, slots=True)
class Pair:
    """Two targets that differ in what `attribute` names; `seen` are those whose keys are compared."""

    rule: str
    attribute: str
    targets: tuple[Declared, ...]
    seen: tuple[tuple[str, str], ...]


def pair(rule: str, attribute: str, one: Attrs, other: Attrs, seen_by: str | None, own: bool) -> Pair:
    left, right = (declared(rule, f"{rule}.{attribute}.{side}", attrs) for side, attrs in (("a", one), ("b", other)))
    targets, seen = [left, right], []
    if own:
        seen.append((left.label, right.label))
    if seen_by:
        ends = consumer(seen_by, left.name), consumer(seen_by, right.name)
        targets += ends
        seen.append((ends[0].label, ends[1].label))
    return Pair(rule, attribute, tuple(targets), tuple(seen))


def pair_of(rule: str, attribute: str, other: Other) -> Pair:
    case = CASES[rule]
    base = {**case.base, **other.over}
    changed = {**base, attribute: other.value, **other.along}
    runs = case.seen_by is None
    return pair(rule, attribute, base, changed, other.seen_by or case.seen_by, own=runs and other.seen_by is None)


def identity_pairs(rule: str) -> list[Pair]:
    return [pair_of(rule, attribute, other) for attribute, other in CASES[rule].identity.items()]


def free_pairs(rule: str) -> list[Pair]:
    """Those that must leave the rule's own key, and the keys of what takes it in, as they are."""
    through = {"tokenized": "train"}.get(rule)
    free = {**CASES[rule].free, **CASES[rule].placement}
    return [pair_of(rule, name, replace(other, seen_by=None)) for name, other in free.items()] + [
        pair(rule, f"{name}.seen", CASES[rule].base, {**CASES[rule].base, name: other.value}, through, own=False)
        for name, other in CASES[rule].free.items()
        if through
    ]


def spelling_pairs(rule: str) -> list[Pair]:
    case = CASES[rule]
    return [
        pair(rule, f"spelling{n}", {**case.base, **one}, {**case.base, **other}, case.seen_by, own=case.seen_by is None)
        for n, (of, one, other) in enumerate(SPELLINGS)
        if of == rule
    ]


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """One workspace with every pair of targets in it."""
    space = Space(tmp_path_factory.mktemp("identity") / "w", FILES)
    pairs = [pair for rule in CASES for pair in (*identity_pairs(rule), *free_pairs(rule), *spelling_pairs(rule))]
    space.write([*PIPELINE, *SUPPORT, *(target for pair in pairs for target in pair.targets)])
    return analysed(space.root)


def unlisted(attrs: Mapping[str, AttrSpec], case: Case) -> list[str]:
    """What the table does not say, or says otherwise than the rule does."""
    free = {**case.free, **case.placement}
    identity = {**case.identity, **case.further}
    problems = [f"`{name}` is listed twice" for name in identity.keys() & free.keys()]
    problems += [f"`{name}` is no attribute" for name in (identity.keys() | free.keys()) - attrs.keys()]
    for name, spec in attrs.items():
        if name == "version":
            continue  # of identity for sampled actions only: see below
        listed = IDENTITY if name in identity else "none" if name in free else "nowhere"
        if listed != (IDENTITY if spec.bears == IDENTITY else "none"):
            problems.append(f"`{name}` bears {spec.bears} and is listed as {listed}")
    return problems


def test_every_rule_is_in_the_table() -> None:
    assert sorted(CASES) == RULES


@pytest.mark.parametrize("rule", RULES)
def test_every_attribute_is_in_the_table(rule: str) -> None:
    assert unlisted(all_rules()[rule].attrs, CASES[rule]) == []


def test_an_attribute_that_is_not_in_the_table_is_named() -> None:
    attrs = all_rules()["py_action"].attrs
    more = {**attrs, "surprise": AttrSpec("int")}
    assert unlisted(more, CASES["py_action"]) == ["`surprise` bears identity and is listed as nowhere"]
    slack = {**attrs, "params": AttrSpec("dict", bears=REPORTING)}
    assert unlisted(slack, CASES["py_action"]) == ["`params` bears reporting and is listed as identity"]
    fewer = {name: spec for name, spec in attrs.items() if name != "inputs"}
    assert unlisted(fewer, CASES["py_action"]) == ["`inputs` is no attribute"]


@pytest.mark.parametrize("rule", [rule for rule in RULES if CASES[rule].seen_by is None])
def test_the_version_is_in_the_keys_of_sampled_actions_only(analysis: Analysis, rule: str) -> None:
    (base,) = {pair.seen[0][0] for pair in free_pairs(rule) if pair.attribute == "tags"}
    (id,) = analysis.targets[parse_label(base)].actions
    action = analysis.actions[id]
    assert (action.version is not None) == (action.outcome == SAMPLED) == ("version" in CASES[rule].identity)
    assert ("version" in CASES[rule].free) == (action.outcome != SAMPLED)


def equal(analysis: Analysis, pair: Pair) -> bool:
    """Whether nothing tells the two sides apart. A key, where there is one yet, says what the fingerprint says."""
    same = {fingerprint(analysis, one) == fingerprint(analysis, other) for one, other in pair.seen}
    for one, other in pair.seen:
        if (left := key(analysis, one)) is not None and (right := key(analysis, other)) is not None:
            assert (left == right) == (fingerprint(analysis, one) == fingerprint(analysis, other)), pair.attribute
    (answer,) = same
    return answer


@pytest.mark.parametrize("rule", RULES)
def test_each_identity_attribute_changes_the_key(analysis: Analysis, rule: str) -> None:
    pairs = identity_pairs(rule)
    assert pairs
    assert [pair.attribute for pair in pairs if equal(analysis, pair)] == []


def test_a_further_action_leaves_the_key_of_the_first_as_it_is(space: Space) -> None:
    (further,) = CASES["lm_eval"].further.items()
    (score,) = (target for target in PIPELINE if target.rule == "lm_eval")
    before = fingerprints(space, PIPELINE)
    after = fingerprints(space, with_attrs(score.name, {further[0]: further[1].value}))
    assert before.items() < after.items()
    assert after.keys() - before.keys() == {"//exp:score#5"}


@pytest.mark.parametrize("rule", RULES)
def test_no_other_attribute_changes_a_key(analysis: Analysis, rule: str) -> None:
    pairs = free_pairs(rule)
    assert pairs
    assert [pair.attribute for pair in pairs if not equal(analysis, pair)] == []


@pytest.mark.parametrize("rule", sorted({rule for rule, _, _ in SPELLINGS}))
def test_two_spellings_of_one_thing_have_one_key(analysis: Analysis, rule: str) -> None:
    assert [pair.attribute for pair in spelling_pairs(rule) if not equal(analysis, pair)] == []


def test_sources_alone_have_a_key_before_anything_is_built(analysis: Analysis) -> None:
    keyed = {rule for rule in RULES for pair in identity_pairs(rule) for one, _ in pair.seen if key(analysis, one)}
    assert keyed == {"adopted", "hf_download", "raw_download", "py_action", "trained_tokenizer"}


@pytest.fixture
def space(tmp_path: Path) -> Space:
    return Space(tmp_path / "w", FILES)


def fingerprints(space: Space, targets: Sequence[Declared], **more: Any) -> dict[str, bytes]:
    space.write(targets)
    return {id: action.fingerprint for id, action in analysed(space.root, **more).actions.items()}


def with_attrs(name: str, attrs: Attrs) -> list[Declared]:
    """The pipeline with attributes of one target changed."""
    assert any(target.name == name for target in PIPELINE)
    return [
        Declared(target.name, target.rule, {**target.attrs, **(attrs if target.name == name else {})})
        for target in PIPELINE
    ]


def test_a_component_is_named_by_its_artifact_unless_it_is_named(space: Space) -> None:
    stated = fingerprints(space, PIPELINE)
    assert fingerprints(space, with_attrs("web", {"artifact": '"renamed/web"'})) == stated
    unnamed = {"component": '""'}
    before = fingerprints(space, with_attrs("web", unnamed))
    after = fingerprints(space, with_attrs("web", {**unnamed, "artifact": '"renamed/web"'}))
    assert [id for id in before if before[id] != after[id]] == ["//exp:model", "//exp:score"]
    as_before = fingerprints(space, with_attrs("web", {**unnamed, "artifact": '"exp/web"'}))
    assert as_before == before


def test_who_may_see_a_target_is_in_no_key(space: Space) -> None:
    public = [
        Declared(target.name, target.rule, {**target.attrs, "visibility": '["//visibility:public"]'})
        for target in PIPELINE
    ]
    assert fingerprints(space, public) == fingerprints(space, PIPELINE)


def test_renamed_targets_have_the_keys_they_had(space: Space) -> None:
    before = fingerprints(space, PIPELINE)
    renamed = [
        Declared(f"x_{target.name}", target.rule, {a: re.sub(r'":(\w)', r'":x_\1', v) for a, v in target.attrs.items()})
        for target in PIPELINE
    ]
    after = fingerprints(space, renamed)
    assert {id.replace(":x_", ":"): value for id, value in after.items()} == before


@pytest.mark.parametrize("distribution", sorted(lock().toolchain))
def test_a_locked_version_is_in_the_keys_of_the_rules_that_list_it(
    space: Space, distribution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another Levanter is another schema of its configs, so what has one is refused; its data rules show the same.
    patterns = ["//...", "-//exp:model", "-//exp:score"] if distribution == "marin-levanter" else ["//..."]
    # Another lm-eval would need another table of its tasks.
    table = tasks._read(lock().toolchain["lm-eval"])
    monkeypatch.setattr(tasks, "_read", lambda version: table)
    space.write(PIPELINE)
    before = analysed(space.root, patterns=patterns).actions
    other = replace(lock(), toolchain={**lock().toolchain, distribution: "0.0.1"})
    after = analysed(space.root, patterns=patterns, lock=other).actions
    listing = {id for id, action in before.items() if distribution in action.toolchain}
    reached = set(listing)
    for id, action in before.items():  # producers come first
        if reached.intersection(action.producers()):
            reached.add(id)
    assert {id for id in before if before[id].fingerprint != after[id].fingerprint} == reached
    assert listing or distribution == "click"


def test_every_version_that_a_rule_lists_reaches_its_actions(analysis: Analysis) -> None:
    for action in analysis.actions.values():
        # What is taken from elsewhere is the same whatever is installed.
        if action.tool not in ("hf_download", "url_download", "pretokenized"):
            assert set(all_rules()[action.rule].toolchain) <= set(action.toolchain), action.id


# What is around a workspace.

NOISE = ("\n\n", "# a remark\n", '\n# another: name = "x"\n\n', "")


def shuffled(chance: random.Random) -> Iterator[str]:
    targets = list(PIPELINE)
    chance.shuffle(targets)
    for target in targets:
        yield chance.choice(NOISE)
        lines = target.text().splitlines(keepends=True)
        yield lines[0]
        for line in chance.sample(lines[1:-2], len(lines) - 3):
            yield line.replace(",\n", chance.choice([",\n", ",  # why\n", ",\n\n"]))
        yield "".join(lines[-2:])


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_order_remarks_and_blank_lines_are_in_no_key(tmp_path: Path, seed: int) -> None:
    space = Space(tmp_path / f"{seed}" / "somewhere else", FILES)
    expected = fingerprints(Space(tmp_path / "w", FILES), PIPELINE)
    space.write([])
    build_file = space.root / "exp" / "BUILD.marin"
    build_file.write_text(build_file.read_text() + "".join(shuffled(random.Random(seed))))
    assert {id: action.fingerprint for id, action in analysed(space.root).actions.items()} == expected


def told(space: Space, cwd: str = "") -> dict[str, tuple[str, str | None]]:
    """The fingerprint and, as far as it is known, the key of every action, as the command line tells them."""
    return {id: (record["fingerprint"], record["key"]) for id, record in space.actions(cwd=cwd).items()}


LIGHT = ("//exp:docs", "//exp:copied", "//exp:questions")


def test_keys_are_the_same_cold_and_warm_and_wherever_they_are_asked_for(tmp_path: Path) -> None:
    space = Space(tmp_path / "w", FILES)
    space.write(PIPELINE)
    cold = told(space)
    assert {id: bytes.fromhex(fingerprint) for id, (fingerprint, _) in cold.items()} == {
        id: action.fingerprint for id, action in analysed(space.root).actions.items()
    }
    sources = {"//exp:docs", "//exp:others", "//exp:questions", "//exp:fetched", "//exp:taken"}
    assert {id for id, (_, key) in cold.items() if key} == sources
    assert told(space) == cold

    for name in ("home", "temporary", "programs"):
        (tmp_path / name).mkdir()
    elsewhere = Space(
        tmp_path / "another" / "place",
        FILES,
        env={
            "HOME": str(tmp_path / "home"),
            "TMPDIR": str(tmp_path / "temporary"),
            "PATH": str(tmp_path / "programs"),
            "PYTHONHASHSEED": "12345",
            "USER": "somebody",
            "LC_ALL": "C",
            "TZ": "Asia/Tokyo",
            "NPROC": "7",
        },
    )
    elsewhere.write(list(reversed(PIPELINE)))
    assert told(elsewhere, cwd="exp") == cold

    space.build(*LIGHT)
    elsewhere.build(*LIGHT)
    warm = told(space)
    assert told(elsewhere) == warm
    assert {id: fingerprint for id, (fingerprint, _) in warm.items()} == {
        id: fingerprint for id, (fingerprint, _) in cold.items()
    }
    assert {id for id, (_, key) in warm.items() if key} > {*LIGHT, "//exp:tok"}
    shutil.rmtree(space.root / "cache")
    assert told(space) == cold
