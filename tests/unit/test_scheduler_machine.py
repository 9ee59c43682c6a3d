"""The whole cache as a state machine: two builds at once, kills, zombies, preemption, taints, GC, against a model.

Everything is real but the processes (strands that pause at every disk call), the clock, and the tool, which is a
function of what it is given. What must hold, whatever the order: a request that ends well has exactly the bytes that
its declarations make; nothing tainted is served; a zombie neither publishes nor writes into another's scratch; what is
pinned stays; the store never holds wrong bytes; and nobody waits for ever.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from marin_cas.action import SAMPLED, Action, Built, OutputSpec, Resources
from marin_cas.cache import cache as cache_module
from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.collect import collect
from marin_cas.cache.gc import Wanted, plan
from marin_cas.cache.heart import Heart
from marin_cas.cache.holder import Holder
from marin_cas.cache.roots import Pin
from marin_cas.cache.verify import verify
from marin_cas.digest import Digest
from marin_cas.errors import Interrupted, Location, MarinError
from marin_cas.label import Label
from marin_cas.recipe import TREE, Pending, Recipe
from marin_cas.result import Result
from marin_cas.scheduler.frontier import Frontier
from marin_cas.scheduler.local import LocalCache
from marin_cas.scheduler.runner import LocalRunner
from marin_cas.scheduler.task import Control, End, Task
from marin_cas.store.base import MissingBlob
from marin_cas.store.process import Process
from marin_cas.tree.walk import entry_at, files, first_missing
from marin_cas.worker.attempt import Attempt, Cancel, Status
from marin_cas.worker.execute import Orders, Worker, _Ended, _Run
from marin_cas.worker.request import Request
from tests.unit.strands import Strand, StrandClock, StrandGate, pause, strand_disk

# name: what it reads. `wild` gives other bytes at each run; `dull` the same whatever its edition.
GRAPH: Mapping[str, tuple[str, ...]] = {
    "raw": (),
    "dull": ("raw",),
    "mix": ("raw", "dull"),
    "wild": ("dull",),
    "top": ("mix", "wild"),
}
NAMES = st.sampled_from(list(GRAPH))
WHO = st.sampled_from([0, 1])
PATIENCE = 2000  # disk calls, several times what a build makes
STEPS = st.sampled_from([1, 3, 10, 40, 150, 600])


def declared(editions: Mapping[str, int]) -> dict[str, Action]:
    """The actions of GRAPH, each with its edition among its parameters."""
    actions: dict[str, Action] = {}
    for name, needs in GRAPH.items():
        inputs = {need: Built(f"//x:{need}", "data", TREE) for need in needs}
        action = Action(
            id=f"//x:{name}",
            label=Label("x", name),
            rule="made",
            location=Location("x/BUILD.marin", len(actions) + 1),
            tool="made",
            revision=1,
            params={"name": name, "edition": editions[name]},
            inputs=inputs,
            outputs={"data": OutputSpec(TREE)},
            fingerprint=b"",
            outcome=SAMPLED if name == "wild" else "exact",
            resources=Resources(ram=1),
            artifact=f"{name}@dev",
        )
        below = {need: Pending(TREE, actions[f"//x:{need}"].fingerprint, "data") for need in needs}
        actions[action.id] = replace(action, fingerprint=action.recipe(below).fingerprint())
    return actions


@dataclass(eq=False)
class World:
    """What all processes share, and what the test knows of it: for each key the bytes that runs of it gave."""

    root: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))
    clock: StrandClock = field(default_factory=StrandClock)
    gate: StrandGate = field(default_factory=StrandGate)
    gone: set[Process] = field(default_factory=set)
    editions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GRAPH, 0))
    made: dict[Digest, set[bytes]] = field(default_factory=dict)
    runs: int = 0
    processes: int = 0
    taints: dict[bytes, int] = field(default_factory=dict)  # bytes of `wild` that are tainted, and since when
    moment: int = 0

    def cache(self) -> tuple[Cache, Holder]:
        """The cache as a new process opens it, and that process."""
        self.processes += 1
        with mock.patch.object(cache_module, "Gate", lambda path: self.gate):
            cache = open_cache(self.root / "cache", strand_disk())
        actions: Any = cache.actions
        actions._clock, actions._gone = self.clock, self.gone.__contains__
        actions.heart = Heart(cache.temporary.folder, interval_s=0)
        return cache, Holder("ann", Process("box", "boot", "space", self.processes, 7), self.clock.now())


class Running(_Run):
    """An attempt whose tool runs here: pauses, leaves a note in its scratch, and writes what its recipe makes."""

    driver: Driver

    def _run_tool(self, recipe: Recipe) -> Mapping[str, Any]:
        world, work = self.driver.world, self.place.work
        pause()
        for earlier in self.place.earlier:
            for note in earlier.iterdir():
                assert note.read_text() == earlier.name, "somebody wrote into another's scratch"
        (self.place.scratch / "note").write_text(self.request.fence)
        pause()
        if self.driver.preempted:
            self.driver.preempted = False
            raise _Ended(Status.INFRA, Interrupted("preempted"))
        if self.orders.cancel.requested:
            raise self._cancelled()
        name = recipe.params["name"]
        below = {path.name: (path / "text").read_bytes() for path in sorted((work / "in").iterdir())}
        text = content(recipe, below)
        if name == "wild":
            world.runs += 1
            text += b" " + str(world.runs).encode()
        world.made.setdefault(recipe.key(), set()).add(text)
        out = work / "out" / "data"
        (out / "text").write_bytes(text)
        (out / "same").write_bytes(b"in every output")
        (out / "deep").mkdir()
        (out / "deep" / "run.sh").write_bytes(f"echo {name}".encode())
        (out / "deep" / "run.sh").chmod(0o755)
        pause()
        return {"cpu_s": 1.0, "max_rss": 1}


def content(recipe: Recipe, below: Mapping[str, bytes]) -> bytes:
    edition = 0 if recipe.params["name"] == "dull" else recipe.params["edition"]
    inputs = b" ".join(below[name] for name in sorted(below))
    return f"{recipe.params['name']}{edition}(".encode() + inputs + b")"


class Here:
    """An executor that runs an attempt in the strand that waits for it."""

    name = "local"

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.worker = Worker(driver.cache, driver.world.root, {})

    def check(self, resources: Resources) -> MarinError | None:
        return None

    def submit(
        self,
        request: Request,
        lease: Any,
        listener: object = None,
        *,
        recheck: Callable[[], None] | None = None,
        publish: Callable[[Result], Result] | None = None,
    ) -> Job:
        orders = Orders(lease, Cancel(), None, recheck, publish)
        run = Running(self.worker, request, orders, self.worker._place(request))
        run.driver = self.driver
        return Job(run)

    def close(self) -> None:
        self.worker.close()


class Job:
    def __init__(self, run: Running) -> None:
        self.run = run

    def wait(self, timeout: float | None = None) -> Attempt:
        return self.run.run()

    def cancel(self, *, kill: bool = False) -> None:
        self.run.orders.cancel(kill=kill)


class Driver:
    """One `marin build`: the real frontier, runner and worker, one task after the other."""

    def __init__(self, world: World, name: str, *, accept_new: bool) -> None:
        self.world, self.name, self.accept_new = world, name, accept_new
        self.cache, self.holder = world.cache()
        self.local = LocalCache(self.cache)
        self.executor = Here(self)
        self.runner = LocalRunner(world.root, self.cache, self.local, self.executor)
        self.runner.holder = self.holder
        self.preempted = False
        self.began = world.moment
        self.actions = declared(world.editions)
        self.ok = False
        self.served: dict[str, Result] = {}
        self.strand = Strand(name, self.build)

    def build(self) -> None:
        for _ in range(4):
            frontier = Frontier(self.actions, self.local)
            frontier.want(f"//x:{self.name}", ("data",))
            replaced = self.run(frontier)
            if not replaced:
                break
        node = frontier.nodes[f"//x:{self.name}"]
        self.ok = node.settled and node.result is not None and "data" in node.complete
        self.served = {id: n.result for id, n in frontier.nodes.items() if n.settled and n.result is not None}
        if self.ok and node.result is not None:
            self.check(node.result)
            self.cache.roots.register("/w", f"//x:{self.name}", [node.result.key])

    def run(self, frontier: Frontier) -> bool:
        replaced = False
        while True:
            frontier.settle()
            for id in frontier.take_settled():
                node = frontier.nodes[id]
                if node.result is not None:
                    self.local.record(node.action, node.result)
            ready = frontier.take_ready()
            if not ready:
                return replaced
            for id in ready:
                replaced |= self.run_one(frontier, id)

    def run_one(self, frontier: Frontier, id: str) -> bool:
        node = frontier.nodes[id]
        keys: set[bytes] = set()
        for producer in node.producers:
            below = frontier.nodes[producer].result
            if below is not None:
                keys |= {below.key.hash, *below.producer_keys}
        assert node.recipe is not None and node.key is not None
        task = Task(node.action, node.recipe, node.key, node.mode, tuple(sorted(keys)), replace=self.accept_new)
        frontier.started(id)
        control = Control(emit=lambda *_, **__: None, waiting=lambda *_: None, readmit=lambda room: room.set())
        outcome = self.runner.run(task, control)
        match outcome.end:
            case End.RAN | End.SERVED if outcome.result is not None:
                frontier.finish(id, outcome.result, ran=outcome.end is End.RAN)
                return outcome.replaced and bool(node.consumers)
            case End.VANISHED:
                frontier.lost(id)
            case _:
                frontier.fail(id)
        return False

    def check(self, result: Result) -> None:
        """The bytes of the request, read as a user would: what some run of that very key gave."""
        found = dict(files(self.cache.store, result.outputs["data"].digest))
        assert set(found) == {"text", "same", "deep/run.sh"}
        assert found["deep/run.sh"].executable
        text = self.cache.store.read(found["text"].digest)
        assert text in self.world.made[result.key]
        bad = [each for each, since in self.world.taints.items() if since < self.began and each in text]
        assert not bad, f"{self.name} was made from {bad[0].decode()}, which is tainted"


class Everything(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.drivers: list[Driver | None] = [None, None]
        self.zombies: list[Driver] = []
        self.all: list[Driver] = []
        self.collector: Strand | None = None
        self.pinned: dict[Digest, Result] = {}
        self.cache, _ = self.world.cache()

    @rule(who=WHO, name=NAMES, accept_new=st.booleans())
    def a_build_begins(self, who: int, name: str, accept_new: bool) -> None:
        if self.drivers[who] is None:
            self.drivers[who] = self.new(name, accept_new)

    def new(self, name: str, accept_new: bool) -> Driver:
        driver = Driver(self.world, name, accept_new=accept_new)
        self.all.append(driver)
        return driver

    @rule(who=WHO, steps=STEPS)
    def goes_on(self, who: int, steps: int) -> None:
        self.step(who, steps)

    @rule(turns=st.lists(st.tuples(WHO, STEPS), min_size=2, max_size=12))
    def both_go_on(self, turns: list[tuple[int, int]]) -> None:
        for who, steps in turns:
            self.step(who, steps)

    def step(self, who: int, steps: int) -> None:
        driver = self.drivers[who]
        if driver is not None and not driver.strand.step(steps):
            self.drivers[who] = None

    @rule(name=NAMES)
    def is_edited(self, name: str) -> None:
        self.world.editions[name] = 1 - self.world.editions[name]

    @rule(name=st.sampled_from(["wild", "top", "mix"]))
    def a_build_runs(self, name: str) -> None:
        """A third one, while the others stand still; it may wait for them in vain."""
        driver = self.new(name, accept_new=True)
        if driver.strand.step(PATIENCE):
            driver.strand.kill()
            self.world.gone.add(driver.holder.process)

    @rule(name=NAMES)
    def is_tainted(self, name: str) -> None:
        latest = self.cache.labels.latest(f"//x:{name}")
        if latest is None or (result := self.cache.actions.result(latest.key)) is None:
            return
        self.world.moment += 1
        assert self.cache.actions.taint(result.key, "bad", "ann") == result
        if name == "wild" and (text := self.text(result)) is not None:
            self.world.taints[text] = self.world.moment
        self.world.moment += 1

    @rule(name=NAMES)
    def is_untainted(self, name: str) -> None:
        latest = self.cache.labels.latest(f"//x:{name}")
        if latest is None:
            return
        tainted = bool(self.cache.actions.standing(latest.key).taints)
        assert self.cache.actions.untaint(latest.key, "good after all", "ann") == tainted
        for text in self.world.made[latest.key]:
            self.world.taints.pop(text, None)

    def text(self, result: Result) -> bytes | None:
        try:
            entry = entry_at(self.cache.store, result.outputs["data"].digest, "text")
        except MissingBlob:
            return None
        return None if entry is None else self.cache.store.read(entry.digest)

    @rule(who=WHO, how=st.sampled_from(["preempted", "killed", "taken for dead"]))
    def has_bad_luck(self, who: int, how: str) -> None:
        driver = self.drivers[who]
        if driver is None:
            return
        if how == "preempted":
            driver.preempted = True
            return
        self.world.gone.add(driver.holder.process)
        self.drivers[who] = None
        if how == "killed":
            driver.strand.kill()
        else:
            self.zombies.append(driver)

    @rule(steps=STEPS, everything=st.booleans())
    def is_collected(self, steps: int, everything: bool) -> None:
        """A collector begins, or goes on; it takes what it may for a budget of nothing, without any grace."""
        if self.collector is None or self.collector.ended:
            wanted = Wanted(grace_s=0, max_size=0 if everything else None)
            self.collector = Strand("collector", lambda: collect(self.world.cache()[0], plan(self.cache, wanted)))
        self.collector.step(steps)

    @rule()
    def the_collector_is_killed(self) -> None:
        if self.collector is not None:
            self.collector.kill()

    @precondition(lambda self: self.world.gate.open)
    @rule(name=NAMES, kept=st.booleans())
    def is_pinned(self, name: str, kept: bool) -> None:
        latest = self.cache.labels.latest(f"//x:{name}")
        result = None if latest is None else self.cache.actions.result(latest.key)
        if result is None:
            return
        if not kept:
            self.cache.roots.unpin(result.key.hex)
            self.pinned.pop(result.key, None)
            return
        self.cache.roots.pin(Pin(result.key.hex, (result.key,)))
        if self.lacks(result) is None:
            self.pinned[result.key] = result

    def lacks(self, result: Result) -> Digest | None:
        return first_missing(self.cache.store, TREE, result.outputs["data"].digest)

    @invariant()
    def what_is_pinned_is_whole(self) -> None:
        for key, result in self.pinned.items():
            if self.cache.actions.result(key) == result:
                assert self.lacks(result) is None

    @precondition(lambda self: self.zombies)
    @rule(steps=STEPS)
    def a_zombie_wakes(self, steps: int) -> None:
        if not self.zombies[0].strand.step(steps):
            self.zombies.pop(0)

    @rule(seconds=st.sampled_from([1.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.time += seconds

    def teardown(self) -> None:
        try:
            for driver in [*self.drivers, *self.zombies]:
                if driver is not None:
                    driver.strand.kill()
                    self.world.gone.add(driver.holder.process)
            if self.collector is not None:
                self.collector.kill()
            assert verify(self.cache).left == 0
            last = self.new("top", accept_new=True)
            while last.strand.step(1000):
                pass
            assert last.ok
            assert verify(self.cache).left == 0
        finally:
            for driver in self.all:
                driver.executor.close()  # or its thread that removes work folders would be at it, too
            shutil.rmtree(self.world.root)


TestEverything = Everything.TestCase
TestEverything.settings = settings(
    max_examples=max(25, settings().max_examples // 10), stateful_step_count=max(60, settings().stateful_step_count)
)
