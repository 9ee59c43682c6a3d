"""Builds over a cache and tools in memory: what runs, in which order, and what a failure leaves."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from scheduler_fakes import Declared, World, label_of, names

from marin_cas.action import SAMPLED, Resources
from marin_cas.errors import RequestError
from marin_cas.reasons import Code
from marin_cas.scheduler import events
from marin_cas.scheduler.events import EventLog


@st.composite
def graphs(draw):
    """(name -> needs) in topological order, and the roots."""
    size = draw(st.integers(1, 14))
    needs = {}
    for n in range(size):
        below = [f"n{i}" for i in range(n)]
        needs[f"n{n}"] = draw(st.lists(st.sampled_from(below), unique=True, max_size=4)) if below else []
    roots = draw(st.lists(st.sampled_from(list(needs)), unique=True, min_size=1, max_size=3))
    return needs, roots


def declare(needs, **params):
    declared = Declared()
    for name, below in needs.items():
        declared.add(name, below, **params.get(name, {}))
    return declared


def below(needs, roots):
    seen, stack = set(), list(roots)
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            stack += needs[name]
    return seen


class TestEveryNeededActionRunsOnce:
    @given(graphs(), st.integers(1, 4))
    def test_after_its_inputs(self, graph, jobs):
        needs, roots = graph
        world = World()
        ended = []
        world.before_run = lambda task, control: ended.append(task.action.id)
        report = world.build(declare(needs), *roots, jobs=jobs)
        ran = names(world.ran)
        assert sorted(ran) == sorted(below(needs, roots))
        for name in ran:
            assert all(ran.index(n) < ran.index(name) for n in needs[name])
        assert report.exit_code == 0
        assert report.counts["executed"] == len(ran)
        assert world.most <= jobs
        assert set(world.linked) == {label_of(root) for root in roots}

    @given(graphs())
    def test_and_not_again(self, graph):
        needs, roots = graph
        world, declared = World(), declare(needs)
        world.build(declared, *roots)
        world.asked.clear()
        report = world.build(declared, *roots)
        assert world.ran == []
        assert report.counts["executed"] == 0
        assert report.counts["local_hits"] == len(set(roots))
        assert len(world.asked) == len(roots), "a finished root asks for nothing below it"

    @given(graphs(), st.data())
    def test_only_what_a_change_reaches(self, graph, data):
        needs, roots = graph
        changed = data.draw(st.sampled_from(list(needs)))
        world = World()
        world.build(declare(needs), *roots)
        report = world.build(declare(needs, **{changed: {"lr": 0.5}}), *roots)
        reached = {name for name in below(needs, roots) if changed in below(needs, [name])}
        assert sorted(names(world.ran)) == sorted(reached)
        assert report.exit_code == 0


class TestFailures:
    @given(graphs(), st.data())
    def test_keep_going_runs_all_that_does_not_need_the_failed(self, graph, data):
        needs, roots = graph
        failing = data.draw(st.sets(st.sampled_from(list(needs)), max_size=3))
        world = World(failing={str(label_of(name)) for name in failing})
        report = world.build(declare(needs), *roots, keep_going=True)
        needed = below(needs, roots)
        lost = {name for name in needed if failing & (below(needs, [name]) - {name})}
        assert sorted(names(world.ran)) == sorted(needed - lost)
        failed = (needed & failing) - lost
        assert {str(f.action.label.name) for f in report.failures} == failed
        assert report.counts == {
            "executed": len(needed - lost - failed),
            "local_hits": 0,
            "remote_hits": 0,
            "up_to_date": 0,
            "failed": len(failed),
            "skipped": len(lost),
        }
        assert report.exit_code == (1 if failed else 0)
        for name in lost:
            reason = report.outcomes[str(label_of(name))].reason
            assert reason.code is Code.SKIPPED
            assert reason.detail["failed"] in {str(label_of(f)) for f in failed}

    def test_without_it_nothing_new_starts_and_what_runs_ends(self):
        declared = Declared()
        for name in ("bad", "slow", "third", "fourth"):
            declared.add(name, resources=Resources(cpu=1, ram=1))
        declared.add("top", ["bad", "slow", "third", "fourth"])
        world = World(failing={"//x:bad"})
        failed = threading.Event()
        world.before_run = lambda task, control: (
            failed.wait(5) and time.sleep(0.05) if task.action.id == "//x:slow" else None
        )
        log = EventLog(listeners=[lambda e: failed.set() if e.get("status") == "failed" else None])
        report = world.build(declared, "top", jobs=2, log=log)
        assert sorted(names(world.ran)) == ["bad", "slow"]
        assert report.outcomes["//x:slow"].source == "executed"
        assert report.outcomes["//x:third"].reason.code is Code.NOT_STARTED
        assert report.outcomes["//x:top"].reason.code is Code.SKIPPED
        assert report.exit_code == 1
        assert world.results[world.key("slow")]

    def test_a_bug_in_a_run_is_raised_after_the_others_ended(self):
        declared = Declared()
        declared.add("a")
        world = World()

        def explode(task, control):
            raise ZeroDivisionError("boom")

        world.before_run = explode
        finished = []
        log = EventLog(listeners=[lambda e: finished.append(e.event)])
        with pytest.raises(ZeroDivisionError):
            world.build(declared, "a", log=log)
        assert finished[-1] == events.BUILD_FINISHED


class TestAdmission:
    def test_cpu_and_memory_bound_what_runs_at_once(self):
        declared = Declared()
        for n in range(6):
            declared.add(f"big{n}", resources=Resources(cpu=1, ram=6))
        declared.add("top", [f"big{n}" for n in range(6)])
        world = World(before_run=lambda task, control: time.sleep(0.005))
        world.build(declared, "top", jobs=4, ram=13)
        assert world.most == 2

    def test_what_is_larger_than_the_machine_runs_alone_with_a_warning(self):
        declared = Declared()
        declared.add("huge", resources=Resources(cpu=64, ram=1))
        declared.add("small", resources=Resources(cpu=1, ram=1))
        declared.add("top", ["huge", "small"])
        world = World(before_run=lambda task, control: time.sleep(0.01))
        report = world.build(declared, "top", jobs=2)
        assert world.most == 1
        assert "`//x:huge` asks for 64 CPUs" in report.warnings[0]
        assert report.exit_code == 0

    def test_small_ones_pass_a_large_one_but_do_not_starve_it(self):
        declared = Declared()
        declared.add("first", resources=Resources(cpu=1, ram=1))
        declared.add("large", resources=Resources(cpu=2, ram=1))
        for n in range(60):
            declared.add(f"s{n}", resources=Resources(cpu=1, ram=1))
        declared.add("top", ["first", "large", *(f"s{n}" for n in range(60))])
        world = World(before_run=lambda task, control: time.sleep(0.001))
        world.build(declared, "top", jobs=2)
        assert names(world.ran).index("large") in range(2, 40)


class TestOneKeyRunsOnce:
    def test_when_two_targets_want_it(self):
        declared = Declared()
        declared.add("a", same_as="it")
        declared.add("b", same_as="it")
        declared.add("top", ["a", "b"])
        world = World(before_run=lambda task, control: time.sleep(0.01))
        report = world.build(declared, "top")
        assert sorted(names(world.ran)) == ["a", "top"]
        assert report.outcomes["//x:b"].reason.code is Code.WAITED
        assert report.counts["executed"] == 2
        assert report.counts["local_hits"] == 1

    def test_and_when_it_fails_both_are_lost(self):
        declared = Declared()
        declared.add("a", same_as="it")
        declared.add("b", same_as="it")
        declared.add("top", ["b"])
        world = World(failing={"//x:a", "//x:b"})
        report = world.build(declared, "a", "top", keep_going=True)
        assert len(world.ran) == 1
        assert report.counts["failed"] == 1
        assert report.counts["skipped"] == 2

    def test_what_another_process_made_meanwhile_is_served(self):
        declared = Declared()
        declared.add("a")
        world = World()

        def other(task, control):
            control.waiting("somebody@there (process 7)", 0.1, 1e9)
            world.results[task.key] = world.result(task, b"theirs")
            world.blobs.update(o.digest for o in world.results[task.key].outputs.values())

        world.before_run = other
        seen = []
        report = world.build(declared, "a", log=EventLog(listeners=[seen.append]))
        assert report.counts["executed"] == 0
        assert report.outcomes["//x:a"].reason.code is Code.WAITED
        waiting = next(event for event in seen if event.event == events.ACTION_WAITING)
        assert waiting["holder"] == "somebody@there (process 7)"

    def test_a_wait_leaves_the_machine_to_others(self):
        declared = Declared()
        declared.add("waits", resources=Resources(cpu=1, ram=1))
        declared.add("other", resources=Resources(cpu=1, ram=1))
        world = World()
        other_ran = threading.Event()

        def run(task, control):
            if task.action.id == "//x:waits":
                control.waiting("somebody", 0.0, 0.0)
                assert other_ran.wait(5), "the other action did not start meanwhile"
                control.admitted()
            else:
                other_ran.set()

        world.before_run = run
        report = world.build(declared, "waits", "other", jobs=1)
        assert report.counts["executed"] == 2


class TestInterrupts:
    def test_once_it_stops_politely_and_starts_nothing(self):
        declared = Declared()
        declared.add("a")
        declared.add("b", ["a"])
        world = World()
        orders = []

        def run(task, control):
            control.attach(orders.append)
            signal.raise_signal(signal.SIGINT)
            until = time.monotonic() + 5
            while not control.cancelled() and time.monotonic() < until:
                time.sleep(0.001)

        world.before_run = run
        before = signal.getsignal(signal.SIGINT)
        report = world.build(declared, "b")
        assert report.exit_code == 8
        assert names(world.ran) == ["a"]
        assert orders == [False]
        assert report.counts["skipped"] == 2
        assert {o.reason.code for o in report.outcomes.values()} == {Code.NOT_STARTED}
        assert signal.getsignal(signal.SIGINT) is before
        assert world.linked == {}

    def test_twice_it_kills(self):
        declared = Declared()
        declared.add("a")
        world = World()
        killed = threading.Event()

        def order(kill):
            if kill:
                killed.set()
            else:
                signal.raise_signal(signal.SIGINT)

        def run(task, control):
            control.attach(order)
            signal.raise_signal(signal.SIGINT)
            assert killed.wait(5)

        world.before_run = run
        assert world.build(declared, "a").exit_code == 8


class TestEarlyCutoff:
    def test_an_input_rebuilt_to_equal_bytes_stops_there(self):
        world = World()
        world.content["//x:a"] = lambda task: b"same"
        first, second = Declared(), Declared()
        for declared, doc in ((first, "one"), (second, "one # comment")):
            declared.add("a", doc=doc)
            declared.add("b", ["a"])
            declared.add("c", ["b"])
        world.build(first, "c")
        assert world.plan(second, "c").decisions["//x:c"].status == "miss"
        report = world.build(second, "c")
        assert names(world.ran) == ["a"]
        assert report.outcomes["//x:b"].reason.code is Code.HIT_KEY
        assert report.outcomes["//x:c"].reason.code is Code.HIT_KEY
        world.build(second, "c")
        assert world.ran == []
        assert world.plan(second, "c").decisions.keys() == {"//x:c"}, "the key hit was filed under the fingerprint"


class TestForced:
    def chain(self, **of_b):
        declared = Declared()
        declared.add("a")
        declared.add("b", ["a"], **of_b)
        declared.add("c", ["b"])
        return declared

    def test_again_moves_the_chosen_result_and_what_is_above(self):
        world, declared = World(), self.chain(outcome=SAMPLED)
        runs = []
        world.content["//x:b"] = lambda task: runs.append(1) or bytes(len(runs))
        world.build(declared, "c")
        old = world.results[world.key("b")]
        report = world.build(declared, "c", again=frozenset({label_of("b")}))
        assert names(world.ran) == ["b", "c"]
        assert report.outcomes["//x:b"].reason.code is Code.FORCED
        assert world.results[world.key("b")] != old
        assert world.attempts == [old]
        assert report.counts["executed"] == 2

    def test_again_with_equal_bytes_stops_there(self):
        world, declared = World(), self.chain()
        world.build(declared, "c")
        report = world.build(declared, "c", again=frozenset({label_of("b")}))
        assert names(world.ran) == ["b"]
        assert report.outcomes["//x:c"].reason.code is Code.HIT_KEY

    def test_again_of_what_is_not_requested_is_refused(self):
        declared = self.chain()
        with pytest.raises(RequestError, match="nothing requested needs it"):
            World().build(declared, "c", again=frozenset({label_of("z")}))

    def test_again_that_fails_takes_what_is_above_with_it(self):
        world, declared = World(), self.chain()
        world.build(declared, "c")
        world.failing.add("//x:b")
        report = world.build(declared, "c", again=frozenset({label_of("b")}), keep_going=True)
        assert report.counts["failed"] == 1
        assert report.outcomes["//x:c"].reason.code is Code.SKIPPED

    def test_check_runs_the_requested_again_and_compares(self):
        world, declared = World(), self.chain()
        world.build(declared, "c")
        report = world.build(declared, "c", check=True)
        assert names(world.ran) == ["c"]
        assert report.checked == {"//x:c": ()}
        assert report.exit_code == 0

    def test_check_of_an_exact_action_that_differs_fails_with_the_paths(self):
        world, declared = World(), self.chain()
        runs = []
        world.content["//x:c"] = lambda task: runs.append(1) or bytes(len(runs))
        world.build(declared, "c")
        chosen = world.results[world.key("c")]
        report = world.build(declared, "c", check=True)
        assert report.exit_code == 1
        assert report.checked == {"//x:c": ("out/data",)}
        assert "`out/data`" in report.failures[0].error.render()
        assert world.results[world.key("c")] == chosen
        assert len(world.attempts) == 1

    def test_check_of_a_sampled_one_only_reports(self):
        world, declared = World(), Declared()
        declared.add("a", outcome=SAMPLED)
        runs = []
        world.content["//x:a"] = lambda task: runs.append(1) or bytes(len(runs))
        world.build(declared, "a")
        report = world.build(declared, "a", check=True)
        assert report.exit_code == 0
        assert "differs from the chosen one" in report.warnings[0]
        assert len(world.attempts) == 1


class TestEvents:
    def test_of_a_build(self):
        declared = Declared()
        declared.add("a")
        declared.add("b", ["a"])
        world, seen = World(), []
        world.build(declared, "a")
        world.build(declared, "b", log=EventLog(listeners=[seen.append]))
        assert [event.event for event in seen] == [
            "build_started",
            "target_analysed",
            "target_analysed",
            "action_finished",
            "action_started",
            "action_finished",
            "build_finished",
        ]
        hit, done = seen[3], seen[5]
        assert (hit["label"], hit["source"], hit["status"]) == ("//x:a", "local", "succeeded")
        assert (done["label"], done["source"], done["status"]) == ("//x:b", "executed", "succeeded")
        assert done["key"] == world.key("b").hex
        assert done["reason"]["code"] == "miss_new"
        assert seen[-1]["counts"] == {
            "executed": 1,
            "local_hits": 1,
            "remote_hits": 0,
            "up_to_date": 0,
            "failed": 0,
            "skipped": 0,
        }
        assert seen[-1]["exit_code"] == 0


def test_a_chain_of_20000_is_planned_without_recursion():
    declared = Declared()
    declared.add("n0")
    for n in range(1, 20_000):
        declared.add(f"n{n}", [f"n{n - 1}"])
    began = time.monotonic()
    planned = World().plan(declared, "n19999")
    assert len(planned.misses) == 20_000
    assert time.monotonic() - began < 20
