"""Whatever bears no identity reaches the tools and changes not one byte of what others may consume."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from marin_cas.lang.values import IDENTITY
from tests.hub.server import Hub
from tests.identity.check import BYTES, CONDITIONS, KEY, WORKER, Check, Finding
from tests.identity.pipeline import COMMIT, FILES, PIPELINE, TRAIN
from tests.identity.space import LOADS, Declared, Space, all_rules
from tests.identity.table import CASES, SECRET, SUPPORT, Other, implicit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

# What runs below it sees one core.
ONE_CORE = (
    sys.executable,
    "-c",
    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execv(sys.argv[1], sys.argv[1:])",
)
CANARY = "identity-canary-0b6f2c"

(MIX,) = (target for target in PIPELINE if target.rule == "mixture")
# The same training with another validation set besides: another key, and the same weights.
WIDER = (
    *(target for target in SUPPORT if target.name == "held_too"),
    Declared("wide", "mixture", {**MIX.attrs, "validation": '[":held_too", ":held"]'}),
    Declared("wide_model", "train_lm", {**TRAIN, "datasets": '":wide"'}),
)


@dataclass(frozen=True)
class Built:
    check: Check
    reports: tuple[dict[str, Any], dict[str, Any]]

    @cached_property
    def findings(self) -> list[Finding]:
        return self.check.findings()


def check_of(folder: Path, **more: Any) -> Check:
    """Both workspaces in `folder`; that with changed values sees one core and a secret, and has a longer path.

    They share no compilation cache: what one core compiles is to be compared too.
    """
    files, loads, env = more.pop("files", FILES), more.pop("loads", LOADS), more.pop("env", {})
    return Check(
        Space(folder / "declared", files, loads, env=env),
        Space(folder / "changed" / "deeper", files, loads, ONE_CORE, {**env, SECRET: CANARY}),
        **more,
    )


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Has what the pipeline downloads; the cache there is what this pipeline makes itself."""
    space = Space(tmp_path_factory.mktemp("upstream") / "w", FILES)
    space.write(PIPELINE)
    space.build("//exp:web")
    cache = space.root / "cache" / "out" / "exp" / "web"
    files = {p.relative_to(cache).as_posix(): p.read_bytes() for p in cache.rglob("*") if p.is_file()}
    with Hub() as running:
        running.repo("me/words").commit({"a.jsonl": b'{"text": "a word"}\n', "b.txt": b"no"}, sha=COMMIT)
        running.repo("me/cache").commit(files, sha=COMMIT)
        yield running


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, hub: Hub) -> Built:
    """The whole pipeline, built as declared on all cores, and with all that bears no identity changed on one."""
    reordered = {"train": Other('{":code": 0.3, ":web": 0.7}')}
    check = check_of(
        tmp_path_factory.mktemp("identity"),
        targets=[*PIPELINE, *WIDER],
        free={t.name: {**CASES[t.rule].free, **(reordered if t is MIX else {})} for t in PIPELINE},
        roots=["//exp:score", "//exp:fetched", "//exp:made", "//exp:taken"],
        more=["//exp:wide_model"],
        env=hub.environ(),
        opaque={"train_lm": frozenset({"native"})},  # its file names are random
    )
    declared, changed = check.build()
    return Built(check, (dict(declared), dict(changed)))


def test_every_rule_is_built_with_everything_changed_that_bears_no_identity(built: Built) -> None:
    assert {target.rule for target in PIPELINE} == set(all_rules())
    for target in PIPELINE:
        free = {name for name, spec in all_rules()[target.rule].attrs.items() if spec.bears != IDENTITY}
        free -= CASES[target.rule].placement.keys()
        assert free <= built.check.free[target.name].keys(), target.name
        # A value that is the declared one would prove nothing.
        assert not target.attrs.items() & {(n, o.value) for n, o in built.check.free[target.name].items()}, target.name


def test_both_workspaces_ran_everything_themselves(built: Built) -> None:
    ids = set(built.check.records[0])
    for report in built.reports:
        ran = {action["action"]: action["source"] for action in report["actions"]}
        assert {id: ran[id] for id in ids} == dict.fromkeys(ids, "executed")
    assert len(built.reports[1]["actions"]) == len(ids)


def test_one_workspace_saw_one_core_and_the_other_all(built: Built) -> None:
    seen = [space.marin("logs", "//exp:docs").strip() for space in (built.check.declared, built.check.changed)]
    assert seen == [f"cores: {len(os.sched_getaffinity(0))}", "cores: 1"]


@pytest.mark.parametrize("rule", sorted(rule for rule, case in CASES.items() if case.seen_by is None))
def test_what_bears_no_identity_reaches_the_worker_and_changes_nothing(built: Built, rule: str) -> None:
    rules = {id: record["rule"] for id, record in built.check.records[0].items()}
    assert rule in rules.values()
    assert [finding for finding in built.findings if rules[finding.action] == rule] == []


def test_keys_and_bytes_are_equal_throughout(built: Built) -> None:
    """The same once more, straight from the records, in case the search for culprits overlooks something."""
    left, right = built.check.records
    assert len(left) == sum(case.seen_by is None for case in map(CASES.get, (t.rule for t in PIPELINE)) if case)
    for id, one in left.items():
        assert one["key"] == right[id]["key"], id
        for name, output in one["outputs"].items():
            assert output["digest"] and right[id]["outputs"][name]["digest"], f"{id} {name}"
            if not output["reporting"] and name != "native":
                assert output["digest"] == right[id]["outputs"][name]["digest"], f"{id} {name}"


def test_other_cadences_were_followed(built: Built) -> None:
    """What reached the worker was acted on: the reporting output differs where it should."""
    lines = []
    for space in (built.check.declared, built.check.changed):
        (record,) = space.actions("//exp:model").values()
        text = space.marin("cache", "cat", record["outputs"]["metrics"]["digest"])
        lines.append([json.loads(line) for line in text.splitlines()])
    evaluated = [[line["step"] for line in each if "eval/loss" in line] for each in lines]
    assert evaluated[0] != evaluated[1]
    assert len(evaluated[1]) > len(evaluated[0]) > 0


def test_another_validation_set_is_another_key_and_the_same_weights(built: Built) -> None:
    left = built.check.declared.actions()
    model, wide = left["//exp:model"], left["//exp:wide_model"]
    assert model["key"] != wide["key"]
    for name in ("hf", "hf.5"):
        assert model["outputs"][name]["digest"] == wide["outputs"][name]["digest"], name


# Rules that are wrong on purpose: the check must name what is wrong with each.

LEAKY = '''"""Rules whose attributes bear more than they say."""

def _run(ctx, params = {}, settings = {}):
    function = "exp/leaky.py:" + ctx.attr.function
    made = ctx.actions.run(
        tool = "function",
        revision = 1,
        params = {"function": function, "params": params},
        outputs = {"files": "tree"},
        settings = settings,
        code = function,
    )
    return [DefaultInfo(outputs = made)]

_ATTRS = {
    "function": attr.string(mandatory = True),
    "quiet": attr.bool(bears = "reporting", default = False),
    "width": attr.int(bears = "execution", default = 1),
}

in_bytes = rule(
    implementation = lambda ctx: _run(ctx, settings = {"quiet": ctx.attr.quiet, "width": ctx.attr.width}),
    attrs = _ATTRS,
    toolchain = ["python"],
)

in_key = rule(
    implementation = lambda ctx: _run(
        ctx,
        params = {"width": ctx.attr.width},
        settings = {"quiet": ctx.attr.quiet, "width": ctx.attr.width},
    ),
    attrs = _ATTRS,
    toolchain = ["python"],
)

HeldInfo = provider(fields = ["width"])

held = rule(
    implementation = lambda ctx: [DefaultInfo(outputs = {}), HeldInfo(width = ctx.attr.width)],
    attrs = {"width": attr.int(bears = "execution", default = 1)},
)

through = rule(
    implementation = lambda ctx: _run(ctx, settings = {"quiet": ctx.attr.quiet, "width": ctx.attr.held.HeldInfo.width}),
    attrs = _ATTRS | {"held": attr.label(mandatory = True, providers = [HeldInfo])},
    toolchain = ["python"],
)

nowhere = rule(
    implementation = lambda ctx: _run(ctx, settings = {"width": ctx.attr.width}),
    attrs = _ATTRS,
    toolchain = ["python"],
)
'''

LEAKY_FUNCTIONS = """import json
import os
from pathlib import Path


def settings():
    return json.loads(Path("request.json").read_text())["settings"]


def plain(ctx):
    (ctx.output_path / "text").write_text("always the same\\n")


def calm(ctx):
    plain(ctx)


def width(ctx):
    (ctx.output_path / "text").write_text(f"{settings()['width']}\\n")


def wider(ctx):
    width(ctx)


def presence(ctx):
    plain(ctx)
    if settings()["width"] > 1:
        (ctx.output_path / "wide").write_text("")


def both(ctx):
    (ctx.output_path / "text").write_text(f"{settings()['width'] > 1 and settings()['quiet']}\\n")


def tags(ctx):
    request = json.loads(Path("request.json").read_text())["request"]
    (ctx.output_path / "text").write_text(f"{request['resources']['cpu']} {len(request['artifact'])}\\n")


def cores(ctx):
    (ctx.output_path / "text").write_text(f"{len(os.sched_getaffinity(0))}\\n")
"""

LEAKY_LOADS = """
load("@marin//rules:resources.bzl", "cpu")
load(":leaky.bzl", "held", "in_bytes", "in_key", "nowhere", "through")
"""

FREE = implicit(Other('"2026.01.31"'))
WIDTH = {"quiet": Other("True"), "width": Other("3")}


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    targets = [
        Declared(name, rule, {"function": f'"{function}"'})
        for name, rule, function in (
            ("honest", "in_bytes", "plain"),
            ("bytes", "in_bytes", "width"),
            ("presence", "in_bytes", "presence"),
            ("pair", "in_bytes", "both"),
            ("request", "in_bytes", "tags"),
            ("key", "in_key", "plain"),
            ("deaf", "nowhere", "calm"),
            ("cores", "in_bytes", "cores"),
        )
    ]
    targets += [
        Declared("held", "held", {}),
        Declared("through", "through", {"function": '"wider"', "held": '":held"'}),
    ]
    check = check_of(
        tmp_path_factory.mktemp("leaky"),
        targets=targets,
        free={t.name: {"width": WIDTH["width"]} if t.name == "held" else {**FREE, **WIDTH} for t in targets},
        roots=["//exp:all"],
        files={"exp/leaky.bzl": LEAKY, "exp/leaky.py": LEAKY_FUNCTIONS},
        loads=LEAKY_LOADS,
    )
    check.build()
    return check.findings()


def of(findings: list[Finding], name: str) -> list[tuple[str, str]]:
    return [(finding.attribute, finding.what) for finding in findings if finding.action == f"//exp:{name}"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("honest", []),
        ("bytes", [("width", BYTES)]),
        ("presence", [("width", BYTES)]),
        ("pair", [("(several together)", BYTES)]),
        ("request", [("resources", BYTES), ("artifact", BYTES), ("version", BYTES)]),
        ("key", [("width", KEY)]),
        ("deaf", [("quiet", WORKER)]),
        ("through", [("width of held", BYTES)]),
    ],
)
def test_a_planted_leak_is_found_and_named(leaky: list[Finding], target: str, expected: list[tuple[str, str]]) -> None:
    assert sorted(of(leaky, target)) == sorted(expected)


def test_a_leak_of_where_it_runs_is_found(leaky: list[Finding]) -> None:
    seen_otherwise = len(os.sched_getaffinity(0)) > 1
    assert of(leaky, "cores") == ([(CONDITIONS, BYTES)] if seen_otherwise else [])
