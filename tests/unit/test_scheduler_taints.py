"""Random graphs, builds, edits, taints, untaints and equates: what a build serves was never made from what is tainted.

Cache, frontier and runner are real; a tool is a function of what it reads, of an edition, and of the weather. The model
keeps every run that there ever was and asks of each served result whether some chain of untainted runs leads to it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from marin_cas.action import Action, Built, OutputSpec, Resources
from marin_cas.analysis.analysis import AnalysedTarget, Analysis
from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.equating import Place, equate
from marin_cas.cache.tainting import (
    taint_digest,
    taint_keys,
    tainted_actions,
    tainted_results,
    untaint_digest,
    untaint_keys,
)
from marin_cas.cache.taints import Taints as Taint
from marin_cas.digest import Digest
from marin_cas.errors import BuildError, Location, MarinError
from marin_cas.executors.base import Job
from marin_cas.label import Label
from marin_cas.recipe import FILE, Input, Pending, Recipe
from marin_cas.result import Output, Producer, Result
from marin_cas.scheduler.build import Build
from marin_cas.scheduler.events import LOCAL
from marin_cas.scheduler.local import LocalCache
from marin_cas.scheduler.plan import HIT, NONE, Options, plan
from marin_cas.scheduler.runner import LocalRunner
from marin_cas.worker.attempt import Attempt, Status
from marin_cas.worker.request import Request

INDEX = st.integers(0, 4)
WHY = ("why", "ann@box")


@dataclass(eq=False)
class Run:
    """A run, or an equated result with the run that it was taken `source`."""

    key: bytes
    note: str
    reads: frozenset[bytes]
    made: bytes
    source: Run | None = None


@dataclass(eq=False)
class World:
    """The cache, and all that the model knows."""

    cache: Cache
    runs: list[Run] = field(default_factory=list)
    tainted: set[Run] = field(default_factory=set)  # by their key
    digests: set[bytes] = field(default_factory=set)  # tainted ones
    reached: set[tuple[Run, bytes]] = field(default_factory=set)  # tainted because of a digest
    weather: int = 0

    def sound(self) -> set[Run]:
        """The runs that are not tainted and read only what such runs made; of what was equated, the key that it was
        taken from must have such a run with the same bytes."""
        bad = self.tainted | {run for run, _ in self.reached}
        known: set[bytes] = set()
        found: set[Run] = set()

        def stands(source: Run) -> bool:
            return any((run.key, run.made) == (source.key, source.made) for run in found)

        while True:
            more = {
                run
                for run in self.runs
                if run not in bad | found and (stands(run.source) if run.source else run.reads <= known)
            }
            if not more:
                return found
            found |= more
            known |= {run.made for run in found if run.source is None}

    def run_of(self, result: Result) -> Run:
        return next(run for run in self.runs if (run.key, run.note) == (result.key.hash, result.fence))


@dataclass(eq=False)
class Tools:
    """The executor: a tool runs in the call."""

    world: World
    name: str = "here"

    def check(self, resources: Resources) -> MarinError | None:
        return None

    def submit(self, request: Request, lease: Any, listener: Any = None, *, recheck: Any, publish: Callable) -> Job:
        world, recipe = self.world, Recipe.parse(request.record)
        params: dict[str, Any] = dict(recipe.params)
        reads = sorted(source.digest.hash for source in recipe.inputs.values() if isinstance(source, Input))
        text = [params["name"], params["edition"], reads]
        if params["how"] == "dull":  # the same bytes whatever it reads: an early cutoff
            text = ["dull"]
        elif params["how"] == "wild":
            text.append(world.weather)
        elif params["how"] == "copy" and reads:
            text = reads
        store = world.cache.store
        data = reads[0] if params["how"] == "copy" and len(reads) == 1 else repr(text).encode()
        made = Result(
            request.key,
            request.fingerprint,
            request.outcome,
            {"data": Output(FILE, store.put(data))},
            Producer("ann", "box"),
            1.0,
            2.0,
            label=request.label,
            fence=request.fence,
        )
        store.put(request.record)
        run = Run(request.key.hash, request.fence, frozenset(reads), made.outputs["data"].digest.hash)
        try:
            chosen = publish(made)
        except BuildError as error:
            attempt = Attempt(Status.FAILED, error=error)
            assert run.made in world.digests or not run.reads.isdisjoint(world.digests)
        else:
            assert run.made not in world.digests and run.reads.isdisjoint(world.digests)
            world.runs.append(run)
            attempt = Attempt(Status.SUCCEEDED, chosen, made)
        return SimpleNamespace(wait=lambda timeout=None: attempt, cancel=lambda *, kill=False: None)  # type: ignore[return-value]

    def close(self) -> None:
        pass


class Taints(RuleBasedStateMachine):
    @initialize(
        edges=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=5, max_size=5),
        hows=st.lists(st.sampled_from(["plain", "plain", "dull", "wild", "copy"]), min_size=5, max_size=5),
    )
    def begin(self, edges: list[list[bool]], hows: list[str]) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.world = World(open_cache(self.folder / "cache"))
        # A node reads what stands before it; the first reads nothing, and every other at least one.
        self.needs = [[j for j in range(i) if edges[i][j]] or list(range(i))[-1:] for i in range(5)]
        self.hows = hows
        self.editions = [0] * 5

    def analysis(self) -> Analysis:
        actions: dict[str, Action] = {}
        targets: dict[Label, AnalysedTarget] = {}
        for i, needs in enumerate(self.needs):
            label = Label("x", str(i))
            action = Action(
                str(label),
                label,
                "rule",
                Location("x/BUILD.marin", i + 1),
                "tool",
                1,
                {"name": str(i), "how": self.hows[i], "edition": self.editions[i]},
                {f"in{j}": Built(f"//x:{j}", "data", FILE) for j in needs},
                {"data": OutputSpec(FILE)},
                b"",
                resources=Resources(ram=1),
            )
            below = {f"in{j}": Pending(FILE, actions[f"//x:{j}"].fingerprint, "data") for j in needs}
            actions[action.id] = replace(action, fingerprint=action.recipe(below).fingerprint())
            target: Any = SimpleNamespace(label=label, kind="rule")
            targets[label] = AnalysedTarget(target, {}, (action.id,), {"data": Built(action.id, "data", FILE)})
        return Analysis(actions, targets)

    @rule(i=INDEX, weather=st.integers(0, 1))
    def builds(self, i: int, weather: int) -> None:
        world, cache = self.world, self.world.cache
        world.weather = weather
        listed = dict(tainted_actions(cache))
        analysis, root, local = self.analysis(), Label("x", str(i)), LocalCache(cache)
        planned = plan(analysis, [root], LocalCache(cache), Options(bytes=NONE))
        bad = tainted_results(cache)
        for id, decision in planned.decisions.items():
            if decision.status == HIT and decision.key is not None:
                assert decision.key.hex not in bad
                latest = cache.labels.latest(id)
                assert id not in listed or latest is None or latest.key != decision.key
        runner = LocalRunner(self.folder, cache, local, Tools(world))
        report = Build(analysis, [root], local, local, runner, Options(jobs=1, bytes=NONE)).run()
        assert report.exit_code == 0 or world.digests
        sound = world.sound()
        for outcome in report.outcomes.values():
            if outcome.result is not None and outcome.error is None:
                run = world.run_of(outcome.result)
                assert run in sound, f"{outcome.action.id} ({outcome.source}) is tainted"
                assert run.made not in world.digests
        top = report.outcomes[str(root)]
        if report.exit_code == 0 and top.source == LOCAL:
            # The long way, key by key, leads to the same result, and nothing on it is tainted.
            assert self.long_way(analysis, str(root), sound) == top.result.outputs  # type: ignore[union-attr]
        if report.exit_code == 0:
            assert str(root) not in dict(tainted_actions(cache))

    def long_way(self, analysis: Analysis, id: str, sound: set[Run]) -> object:
        results: dict[str, Result] = {}
        for action in analysis.actions.values():
            if any(source.action not in results for source in action.inputs.values() if isinstance(source, Built)):
                continue
            built = {
                name: Input(FILE, results[source.action].outputs["data"].digest)
                for name, source in action.inputs.items()
                if isinstance(source, Built)
            }
            result = self.world.cache.actions.result(action.recipe(built).key())
            if result is not None and self.world.run_of(result) in sound:
                results[action.id] = result
        return results[id].outputs

    def latest(self, i: int) -> Digest | None:
        record = self.world.cache.labels.latest(f"//x:{i}")
        return None if record is None else record.key

    @rule(i=INDEX)
    def edits(self, i: int) -> None:
        self.editions[i] = (self.editions[i] + 1) % 3

    @rule(i=INDEX)
    def is_tainted(self, i: int) -> None:
        key = self.latest(i)
        choice = None if key is None else self.world.cache.actions.standing(key).choice
        if key is None or choice is None:
            return
        reach = taint_keys(self.world.cache, [key], *WHY)
        assert key.hex in {each.result.key.hex for each in reach.reached}
        self.world.tainted.add(self.world.run_of(choice.result))

    @rule(i=INDEX)
    def is_untainted(self, i: int) -> None:
        key = self.latest(i)
        if key is not None:
            mine = {run for run in self.world.tainted if run.key == key.hash}
            assert untaint_keys(self.world.cache, [key], *WHY) == bool(mine)
            self.world.tainted -= mine

    @precondition(lambda self: self.world.runs)
    @rule(data=st.data())
    def a_digest_is_tainted(self, data: st.DataObject) -> None:
        world = self.world
        hash = data.draw(st.sampled_from(sorted({run.made for run in world.runs})))
        reach = taint_digest(world.cache, hash, *WHY)
        world.digests.add(hash)
        for each in reach.reached:
            if each.how in ("made", "read"):
                world.reached.add((world.run_of(each.result), hash))
        # Whatever is chosen for a key and made or read it was found.
        for hexed in world.cache.actions.all_keys():
            choice = world.cache.actions.standing_of(hexed).choice
            run = None if choice is None else world.run_of(choice.result)
            if run is not None and hash in {run.made, *run.reads}:
                assert (run, hash) in world.reached

    @precondition(lambda self: self.world.digests)
    @rule(data=st.data())
    def a_digest_is_untainted(self, data: st.DataObject) -> None:
        world = self.world
        hash = data.draw(st.sampled_from(sorted(world.digests)))
        assert untaint_digest(world.cache, hash, *WHY)
        world.digests.discard(hash)
        world.reached = {(run, other) for run, other in world.reached if other != hash}

    @rule(i=INDEX, j=INDEX)
    def is_equated(self, i: int, j: int) -> None:
        """The latest result of one stands for the other, if that one's key is known and has none."""
        cache = self.world.cache
        key = self.latest(j)
        local = LocalCache(cache)
        old = None if key is None else local.by_key(key)
        action = self.analysis().actions[f"//x:{i}"]
        planned = plan(self.analysis(), [action.label], local, Options(bytes=NONE)).decisions[action.id]
        below = [plan(self.analysis(), [Label("x", str(n))], local, Options(bytes=NONE)) for n in self.needs[i]]
        producers = [made.decisions[f"//x:{n}"].result for made, n in zip(below, self.needs[i], strict=True)]
        if old is None or planned.result is not None or old.key.hex in tainted_results(cache) or None in producers:
            return
        results = [result for result in producers if result is not None]
        built = {
            f"in{n}": Input(FILE, result.outputs["data"].digest)
            for n, result in zip(self.needs[i], results, strict=True)
        }
        keys = frozenset(key for result in results for key in (result.key.hash, *result.producer_keys))
        place = Place(action.recipe(built), action.id, "", action.fingerprint, "exact", producer_keys=keys)
        with suppress(MarinError):
            made = equate(cache, old, place, *WHY)
            run = self.world.run_of(old)
            reads = frozenset(source.digest.hash for source in built.values())
            self.world.runs.append(Run(made.key.hash, made.fence, reads, run.made, run))
            local.record(action, made)

    @rule(i=INDEX)
    def is_revoked(self, i: int) -> None:
        key = self.latest(i)
        if key is not None:
            self.world.cache.actions.revoke(key, *WHY)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


TestTaints = Taints.TestCase
# Each step is a build: a third of the usual number of examples takes as long as other machines do.
TestTaints.settings = settings(max_examples=max(20, settings().max_examples // 3))


def machine(edges: list[list[int]], hows: list[str]) -> Taints:
    made = Taints()
    made.begin([[j in edges[i] for j in range(4)] for i in range(5)], hows)
    return made


def sources(made: Taints, i: int) -> dict[str, str]:
    """Builds, and says of each action that was looked at whether it ran."""
    local = LocalCache(made.world.cache)
    runner = LocalRunner(made.folder, made.world.cache, local, Tools(made.world))
    report = Build(made.analysis(), [Label("x", str(i))], local, local, runner, Options(jobs=1, bytes=NONE)).run()
    assert report.exit_code == 0
    return {id.rpartition(":")[2]: outcome.source for id, outcome in report.outcomes.items()}


CHAIN = [[], [0], [1], [2], [3]]


def test_a_taint_below_an_early_cutoff_is_seen_far_above() -> None:
    made = machine(CHAIN, ["plain", "dull", "plain", "plain", "plain"])
    try:
        sources(made, 3)
        made.edits(0)
        # 0 and 1 run again; 1 comes out with the bytes of before, and what is above is served.
        assert sources(made, 3) == {"0": "executed", "1": "executed", "2": "local", "3": "local"}
        assert sources(made, 3) == {"3": "local"}
        made.is_tainted(0)
        # Nothing that 3 was made from is tainted, but what it stands above now is.
        assert sources(made, 3)["0"] == "executed"
    finally:
        made.teardown()


def test_equal_bytes_again_are_served_and_others_run() -> None:
    made = machine(CHAIN, ["wild", "plain", "plain", "plain", "plain"])
    try:
        sources(made, 3)
        made.is_tainted(0)
        assert [id for id, _ in tainted_actions(made.world.cache)] == ["//x:0", "//x:1", "//x:2", "//x:3"]
        assert sources(made, 3) == {"0": "executed", "1": "local", "2": "local", "3": "local"}
        assert not list(tainted_actions(made.world.cache))
        made.is_tainted(0)
        made.world.weather = 1
        assert sources(made, 3) == {"0": "executed", "1": "executed", "2": "executed", "3": "executed"}
        assert not list(tainted_actions(made.world.cache))
    finally:
        made.teardown()


def test_a_step_that_copies_does_not_vouch_for_what_it_read() -> None:
    made = machine(CHAIN, ["plain", "copy", "copy", "plain", "plain"])
    try:
        sources(made, 3)
        made.is_tainted(0)
        assert len(list(tainted_actions(made.world.cache))) == 4
        made.is_untainted(0)
        assert not list(tainted_actions(made.world.cache))
        assert set(sources(made, 3).values()) == {"local"}
    finally:
        made.teardown()


def test_a_taint_reaches_what_was_equated_and_what_is_above_it() -> None:
    made = machine(CHAIN, ["plain"] * 5)
    try:
        sources(made, 3)
        made.edits(1)
        made.is_equated(1, 1)
        assert set(sources(made, 3).values()) == {"local"}
        cache = made.world.cache
        old = cache.actions.standing_of(made.world.runs[1].key.hex()).choice
        assert old is not None
        reach = taint_keys(cache, [old.result.key], *WHY)
        assert [each.labels for each in reach.reached] == [(), ("//x:1",), ("//x:2",), ("//x:3",)]
        assert plan(made.analysis(), [Label("x", "3")], LocalCache(cache)).decisions["//x:1"].status == "miss"
        untaint_keys(cache, [old.result.key], *WHY)
        assert set(sources(made, 3).values()) == {"local"}
        # What the source was made from reaches it too.
        made.is_tainted(0)
        assert len(list(tainted_actions(cache))) == 4
        # Made again with the same bytes, the source is sound, and so is what was equated with it.
        assert sources(made, 3) == {"0": "executed", "1": "local", "2": "local", "3": "local"}
        made.is_revoked(1)
        assert sources(made, 3)["1"] == "executed"
    finally:
        made.teardown()


def test_a_digest_that_is_tainted_between_two_looks_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(CHAIN, ["plain"] * 5)
    try:
        cache = made.world.cache
        sources(made, 0)
        [run] = made.world.runs
        key = cache.actions.standing_of(run.key.hex()).choice.result.key  # type: ignore[union-attr]
        cache.actions.taint(key, *WHY)
        # Whoever taints the digest writes it down and looks for results that hold it; ours is published just after.
        looks, current = [], Taint.current

        def late(self: Taint) -> object:
            looks.append(1)
            return current(self) if len(looks) > 3 else {}

        cache.taints.add(run.made, *WHY)
        monkeypatch.setattr(Taint, "current", late)
        made.world.digests.add(run.made)
        local = LocalCache(cache)
        runner = LocalRunner(made.folder, cache, local, Tools(made.world))
        root = Label("x", "0")
        report = Build(made.analysis(), [root], local, local, runner, Options(jobs=1, bytes=NONE)).run()
        assert len(looks) == 4 and report.exit_code == 1
        assert "which is tainted" in report.failures[0].error.message  # type: ignore[union-attr]
        assert len(cache.actions.attempts(key)) == 2 and cache.actions.result(key) is None
        untaint_digest(cache, run.made, *WHY)
        assert cache.actions.result(key) is not None
    finally:
        made.teardown()
