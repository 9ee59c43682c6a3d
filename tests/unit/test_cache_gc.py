"""What a cache gives up, in which order, and what it never does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from marin_cas.cache.cache import open_cache
from marin_cas.cache.collect import collect
from marin_cas.cache.entry import Entry
from marin_cas.cache.gc import AGE, GARBAGE, SIZE, Wanted, plan
from marin_cas.cache.refs import Ref
from marin_cas.cache.roots import Pin
from marin_cas.cache.verify import verify
from marin_cas.digest import Digest
from marin_cas.errors import EnvironmentProblem, IntegrityError
from marin_cas.label import Label
from tests.unit.gc_cases import DAY, NOTHING_IS_YOUNG, Farm, disk_bytes, folder, names, sized

TPU = {"device": "tpu", "variant": "v4-8", "cpu": 120.0}


@pytest.fixture
def farm() -> Iterator[Farm]:
    with folder() as path:
        yield Farm(open_cache(path / "cache"))


def text(size: int, what: str) -> str:
    return (what * size)[:size]


# Garbage


def test_what_nothing_names_goes(farm: Farm) -> None:
    farm.result("a", {"f": "kept"}, source="a source", log="a log", report="a report")
    left = farm.cache.store.put(b"left over")
    executable = farm.cache.root.parent / "tool"
    executable.write_bytes(b"#!/bin/sh\n")
    tool = farm.cache.store.put_file(executable, move=True, executable=True)
    before = disk_bytes(farm.cache.root)
    made, done = farm.gc()
    assert done.freed == made.freed == left.size + tool.size == before - disk_bytes(farm.cache.root)
    assert not farm.cache.store.contains(left) and not farm.cache.store.contains(tool)
    assert farm.whole("a")
    for kept in ("a source", "a log", "a report"):
        assert farm.cache.store.contains(Digest.of(kept.encode()))
    assert farm.gc()[1].freed == 0


def test_young_garbage_stays(farm: Farm) -> None:
    left = farm.cache.store.put(b"left over")
    made, done = farm.gc(Wanted())
    assert (made.items, made.young, done.blobs) == ((), left.size, 0)
    assert farm.cache.store.contains(left)


def test_what_a_run_under_way_has_stored_is_not_garbage(farm: Farm) -> None:
    """However short the grace time: nothing names it before it is published."""
    before = farm.cache.store.put(b"from before")
    time.sleep(0.02)
    lease = farm.lease(Digest.of(b"some key"))
    time.sleep(0.02)
    stored = farm.cache.store.put(b"an output")
    farm.gc()
    assert farm.cache.store.contains(stored) and not farm.cache.store.contains(before)
    lease.release()
    farm.gc()
    assert not farm.cache.store.contains(stored)


def test_a_run_that_takes_weeks_does_not_keep_all_garbage(farm: Farm) -> None:
    farm.lease(Digest.of(b"a long training"))
    left = farm.cache.store.put(b"left over")
    made = plan(farm.cache, Wanted(), time.time() + 2 * DAY)
    assert made.freed == left.size


def test_other_attempts_lose_their_bytes_and_keep_their_record(farm: Farm) -> None:
    result = farm.result("a", {"f": "one", "shared": "both"})
    farm.result("a", {"f": "two", "shared": "both"}, attempt=True, age_s=10)
    made, done = farm.gc(Wanted(grace_s=3600))
    assert done.blobs == 0
    made, done = farm.gc()
    assert [(item.why, item.holding and item.holding.kind) for item in made.items] == [(GARBAGE, "attempt")]
    assert done.freed == made.freed > 0
    assert farm.whole("a") and len(farm.cache.actions.attempts(result.key)) == 1
    assert not farm.cache.store.contains(Digest.of(b"two"))


def test_a_tainted_result_keeps_its_bytes_until_it_is_made_again(farm: Farm) -> None:
    result = farm.result("a", {"f": "one"})
    farm.cache.actions.taint(result.key, "bad", "ann")
    farm.age(result, DAY)
    assert farm.gc()[1].blobs == 0
    assert farm.cache.actions.untaint(result.key, "fine", "ann")
    assert farm.whole("a")
    farm.result("a", {"f": "two"}, again=True, age_s=DAY)
    farm.gc()
    assert farm.whole("a") and not farm.cache.store.contains(Digest.of(b"one"))


def test_only_a_failed_run_has_read_it(farm: Farm) -> None:
    recipe = farm.recipe("failed", source="a source")
    key = farm.cache.store.put(recipe.record())
    farm.lease(key).release()
    farm.gc()
    assert farm.cache.store.contains(key)  # a recipe stays
    assert not farm.cache.store.contains(Digest.of(b"a source"))


def test_copies_that_nothing_leads_to(farm: Farm) -> None:
    old = farm.result("a", {"f": "old"}, age_s=DAY)
    farm.cache.links.publish(Label("exp", "a"), old.outputs)
    new = farm.result("a", {"f": "new"}, again=True, age_s=DAY)
    farm.cache.links.publish(Label("exp", "a"), new.outputs)
    made, done = farm.gc()
    assert os.listdir(farm.cache.root / "trees") == [new.outputs["out"].digest.hex]
    assert (farm.cache.root / "out" / "exp" / "a" / "f").read_text() == "new"
    assert done.freed == made.freed == len("old") + old.outputs["out"].digest.size
    assert farm.gc()[0].items == ()


def test_work_and_scratch(farm: Farm) -> None:
    done_key, open_key, killed = farm.result("a", "x").key, Digest.of(b"open"), Digest.of(b"killed")
    farm.root("a")
    lease = farm.lease(open_key)
    for key in (done_key, open_key, killed):
        (farm.cache.work(key) / "log").write_text("12345")
        (farm.cache.scratch(key, "fence") / "step-10").write_text("a checkpoint")
    made, done = farm.gc()
    assert done.freed == made.freed == 5 + 5 + len("a checkpoint")
    assert [p.name for p in (farm.cache.root / "work").iterdir()] == [open_key.hex]
    # A key without a result goes on from its scratch.
    assert {p.name for p in (farm.cache.root / "scratch").iterdir()} == {open_key.hex, killed.hex}
    lease.release()
    made, done = farm.gc(replace(NOTHING_IS_YOUNG, max_age_s=0.0))
    assert [item.why for item in made.items] == [GARBAGE, AGE, AGE]
    assert list((farm.cache.root / "scratch").iterdir()) == []


def test_scratch_has_the_price_of_its_lease(farm: Farm) -> None:
    """A checkpoint in the scratch of a run that was killed after an hour is dearer than what took seconds."""
    farm.result("cheap", text(100, "c"), wall_s=5.0, age_s=DAY)
    farm.result("dear", text(100, "d"), wall_s=10**8, age_s=DAY)
    key = Digest.of(b"killed")
    lease = farm.lease(key)
    (farm.cache.scratch(key, lease.fence) / "step-10").write_text(text(100, "s"))
    lease.release()
    first = farm.cache.root / "ac" / key.hex[:2] / key.hex / "1"
    record = Entry.parse(1, first.read_bytes())
    first.unlink()
    first.write_bytes(replace(record, time=record.time - 3600).record())
    size = plan(farm.cache, NOTHING_IS_YOUNG).size
    made = plan(farm.cache, sized(size - 250))
    assert [item.leftover.room if item.leftover else "run" for item in made.items] == ["run", "scratch", "run"]
    assert names(made) == ["cheap", "dear"] and 3590 < (made.items[1].leftover or pytest.fail()).held_s < 3700


# Age


def test_age_takes_only_what_no_root_leads_to(farm: Farm) -> None:
    farm.result("below", {"f": "1"}, age_s=40 * DAY)
    farm.result("root", {"f": "2"}, of=["below"], age_s=40 * DAY)
    farm.result("stray", {"f": "3"}, age_s=40 * DAY)
    farm.result("recent", {"f": "4"}, age_s=20 * DAY)
    farm.root("root")
    made, done = farm.gc(replace(NOTHING_IS_YOUNG, max_age_s=30 * DAY))
    assert names(made) == ["stray"] and made.items[0].why == AGE
    assert done.freed == made.freed
    assert [farm.whole(name) for name in ("below", "root", "stray", "recent")] == [True, True, False, True]
    # Its record stays.
    assert farm.cache.actions.result(farm.made["stray"].key) is not None
    assert farm.cache.store.contains(farm.made["stray"].key)


def test_use_makes_it_young(farm: Farm) -> None:
    result = farm.result("a", "x", age_s=40 * DAY)
    farm.cache.actions.touch(result.key)
    assert farm.gc(replace(NOTHING_IS_YOUNG, max_age_s=30 * DAY))[0].items == ()
    assert time.time() - (farm.cache.actions.last_used(result.key) or 0) < 60


# Size: order


def test_cheap_goes_before_dear(farm: Farm) -> None:
    for name, wall_s, size in (("dear", 1000.0, 100), ("cheap", 1.0, 100), ("small", 1.0, 10)):
        farm.result(name, text(size, name), wall_s=wall_s, age_s=DAY)
    size = plan(farm.cache, NOTHING_IS_YOUNG).size
    made = plan(farm.cache, sized(size - 1))
    assert (names(made), made.lacking) == (["cheap"], 0)
    made = plan(farm.cache, sized(size - 101))
    assert names(made) == ["cheap", "small"]
    assert [item.why for item in made.items] == [SIZE, SIZE]
    made, done = farm.gc(sized(size - 200))
    assert (names(made), made.freed, done.freed) == (["cheap", "dear"], 200, 200)


def test_accelerators_count(farm: Farm) -> None:
    farm.result("cpu", text(100, "c"), wall_s=1000.0, resources={"device": "cpu", "cpu": 1.0}, age_s=DAY)
    farm.result("tpu", text(100, "t"), wall_s=100.0, resources=TPU, age_s=DAY)
    size = plan(farm.cache, NOTHING_IS_YOUNG).size
    assert names(plan(farm.cache, sized(size - 1))) == ["cpu"]


def test_what_no_root_leads_to_counts_a_tenth(farm: Farm) -> None:
    farm.result("below", text(100, "b"), wall_s=5.0, age_s=DAY)
    farm.result("root", "r", of=["below"], age_s=DAY)
    farm.result("stray", text(100, "s"), wall_s=40.0, age_s=DAY)
    farm.root("root")
    size = plan(farm.cache, NOTHING_IS_YOUNG).size
    assert names(plan(farm.cache, sized(size - 1))) == ["stray"]
    assert names(plan(farm.cache, sized(size - 101))) == ["stray", "below"]


def test_a_price_rises_when_what_it_is_made_from_goes(farm: Farm) -> None:
    """`top` is cheap as long as `below` is there; then it would take both."""
    farm.result("below", text(1000, "b"), wall_s=500.0, age_s=DAY)
    farm.result("top", text(100, "t"), of=["below"], wall_s=60.0, age_s=DAY)
    farm.result("other", text(100, "o"), wall_s=200.0, age_s=DAY)
    size = plan(farm.cache, NOTHING_IS_YOUNG).size
    # By itself: below 0.5 a byte, top 0.6, other 2. After `below` is gone top costs 5.6 a byte.
    assert names(plan(farm.cache, sized(size - 1001))) == ["below", "other"]
    made = plan(farm.cache, sized(size - 1200))
    assert names(made) == ["below", "other", "top"]
    assert made.items[-1].again == 560.0


def test_a_hollow_producer_is_part_of_the_price(farm: Farm) -> None:
    farm.result("below", "b", wall_s=500.0, age_s=DAY)
    farm.result("top", text(100, "t"), of=["below"], wall_s=1.0, age_s=DAY)
    farm.result("other", text(100, "o"), wall_s=200.0, age_s=DAY)
    farm.cache.store.delete(farm.made["below"].outputs["out"].digest)
    size = plan(farm.cache, NOTHING_IS_YOUNG).size
    assert names(plan(farm.cache, sized(size - 1))) == ["other"]


def test_what_is_left_of_a_hollow_result_goes_first(farm: Farm) -> None:
    farm.result("hollow", {"lost": "x", "f": text(100, "h")}, wall_s=10**6, age_s=DAY)
    farm.result("cheap", text(100, "c"), wall_s=0.1, age_s=DAY)
    farm.cache.store.delete(Digest.of(b"x"))
    size = plan(farm.cache, NOTHING_IS_YOUNG).size
    assert names(plan(farm.cache, sized(size - 1))) == ["hollow"]


def test_a_large_one_at_the_end_saves_dearer_ones_before_it(farm: Farm) -> None:
    farm.result("small", text(10, "s"), wall_s=1.0, age_s=DAY)
    farm.result("large", text(1000, "l"), wall_s=150.0, age_s=DAY)
    size = plan(farm.cache, NOTHING_IS_YOUNG).size
    # `small` is cheaper a byte, but `large` must go anyway, and is enough.
    assert names(plan(farm.cache, sized(size - 500))) == ["large"]


def test_shared_bytes(farm: Farm) -> None:
    """Two results with one tree: only both together free it."""
    farm.result("a", {"f": text(100, "x")}, wall_s=1.0, age_s=DAY)
    farm.result("b", {"f": text(100, "x")}, wall_s=2.0, age_s=DAY)
    farm.result("c", {"f": text(100, "x"), "g": "own"}, wall_s=10**6, age_s=DAY)
    farm.root("c")
    size = plan(farm.cache, NOTHING_IS_YOUNG).size
    made, done = farm.gc(sized(0))
    # What the root holds too is not freed by anybody: only the record of their own tree.
    record = farm.made["a"].outputs["out"].digest.size
    assert done.freed == made.freed == record and made.size == size
    assert farm.whole("c") and not farm.whole("a") and not farm.whole("b")


def test_bytes_are_freed_by_the_last_holder(farm: Farm) -> None:
    farm.result("a", {"d/f": text(1000, "x"), "a": "1"}, wall_s=1.0, age_s=DAY)
    farm.result("b", {"d/f": text(1000, "x"), "b": "2"}, wall_s=2.0, age_s=DAY)
    before = disk_bytes(farm.cache.root)
    made, done = farm.gc(sized(0))
    assert names(made) == ["a", "b"]
    assert made.items[0].bytes < 1000 < made.items[1].bytes
    assert done.freed == made.freed == before - disk_bytes(farm.cache.root)


# What is protected


@pytest.mark.parametrize("how", ["root", "pin", "deps", "published", "used", "leased", "read", "runs"])
def test_protected_however_small_the_budget(farm: Farm, how: str) -> None:
    result = farm.result("a", {"f": "bytes"}, age_s=DAY)
    top = farm.result("top", {"g": "top"}, of=["a"], age_s=DAY)
    wanted = sized(0, max_age_s=0.0)
    if how == "root":
        farm.root("a")
    elif how == "pin":
        farm.cache.roots.pin(Pin("a", (result.key,)))
    elif how == "deps":
        farm.cache.roots.pin(Pin("top", (top.key,), deps=True))
    elif how == "published":
        farm.cache.refs.publish(Ref("a@1", result.fingerprint, "//exp:a"))
    elif how == "used":
        farm.cache.actions.touch(result.key)
        wanted = replace(wanted, grace_s=3600.0)
    elif how == "leased":
        farm.lease(result.key, force=True)
    elif how == "read":
        farm.lease(top.key, force=True)
    else:
        # The first run of its key: the store has no recipe yet.
        recipe = farm.recipe("new", of=["a"])
        work = farm.cache.work(recipe.key()) / farm.lease(recipe.key()).fence
        work.mkdir()
        (work / "recipe").write_bytes(recipe.record())
    made, done = farm.gc(wanted)
    assert farm.whole("a") and done.freed == made.freed
    assert made.lacking > 0 and made.holders


def test_pinned_bytes(farm: Farm) -> None:
    kept, inner = farm.result("a", {"d/f": "deep", "g": "g"}, age_s=DAY), Digest.of(b"a file")
    farm.cache.store.put(b"a file")
    tree = kept.outputs["out"].digest
    farm.cache.roots.pin(Pin("both", (), (tree, inner)))
    farm.gc(sized(0))
    assert farm.whole("a") and farm.cache.store.contains(inner)
    farm.cache.roots.unpin("both")
    farm.gc(sized(0))
    assert not farm.whole("a") and not farm.cache.store.contains(inner)


def test_a_budget_that_cannot_be_reached_says_who_holds_it(farm: Farm) -> None:
    farm.result("large", text(1000, "l"), age_s=DAY)
    farm.result("small", text(10, "s"), age_s=DAY)
    farm.root("large", workspace="/one")
    farm.cache.roots.pin(Pin("//exp:small", (farm.made["small"].key,)))
    made = plan(farm.cache, sized(100))
    assert made.lacking == made.left - 100 > 0
    records = sum(farm.made[name].key.size for name in ("large", "small"))
    assert made.holders == (
        ("//exp:large of /one", 1000),
        ("records of results: recipes, versions, logs", records),
        ("pin //exp:small", 10),
    )


def test_two_workspaces_share_a_store(farm: Farm, tmp_path: Path) -> None:
    for name in ("one", "two"):
        farm.result(name, {"f": name}, age_s=DAY)
    (tmp_path / "w1").mkdir()
    farm.root("one", workspace=str(tmp_path / "w1"))
    farm.root("two", workspace="/media/usb/w2")
    made, _ = farm.gc(sized(0, max_age_s=0.0))
    assert farm.whole("one") and farm.whole("two")
    # Its disk may only be unmounted.
    assert made.absent == ("/media/usb/w2",)
    for root in list(farm.cache.roots.all()):
        if root.workspace == "/media/usb/w2":
            farm.cache.roots.forget(root)
    farm.gc(sized(0, max_age_s=0.0))
    assert farm.whole("one") and not farm.whole("two")


def test_a_damaged_root_stops_everything(farm: Farm) -> None:
    farm.result("a", "x", age_s=DAY)
    farm.root("a")
    [path] = (farm.cache.root / "roots" / "workspaces").glob("*/*")
    path.write_text('{"workspace": "/w", "la')
    with pytest.raises(EnvironmentProblem, match="is damaged: it does not say what must be kept"):
        plan(farm.cache, sized(0))


def test_a_damaged_tree_stops_everything(farm: Farm) -> None:
    result = farm.result("a", {"f": "x"}, age_s=DAY)
    path = farm.cache.store.path(result.outputs["out"].digest)
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(IntegrityError, match="what it names is not known"):
        plan(farm.cache, NOTHING_IS_YOUNG)
    verify(farm.cache, repair=True)
    farm.gc()
    assert not farm.cache.store.contains(Digest.of(b"x"))


# Copies that people see


def test_dropping_a_result_removes_its_copy_and_the_links_to_it(farm: Farm) -> None:
    farm.result("a", {"f": text(100, "a")}, age_s=DAY)
    farm.result("b", text(100, "b"), report="numbers", age_s=DAY)
    for name in ("a", "b"):
        farm.cache.links.publish(Label("exp", name), farm.made[name].outputs)
    before = disk_bytes(farm.cache.root)
    made, done = farm.gc(sized(0))
    assert done.freed == made.freed == before - disk_bytes(farm.cache.root)
    out = farm.cache.root / "out" / "exp"
    assert not os.path.lexists(out / "a") and not os.path.lexists(out / "b" / "out")
    assert (out / "b" / "report").read_text() == "numbers"
    assert farm.gc(sized(0))[0].items == ()


def test_bytes_with_other_names_are_not_counted(farm: Farm) -> None:
    farm.result("a", {"f": text(100, "a")}, age_s=DAY)
    blob = farm.cache.store.path(Digest.of(text(100, "a").encode()))
    assert blob is not None
    mine = farm.cache.root.parent / "mine"
    os.link(blob, mine)
    made, done = farm.gc(sized(0))
    assert done.freed == made.freed == farm.made["a"].outputs["out"].digest.size
    assert mine.read_text() == text(100, "a")


def test_large_logs_and_reports_go_with_the_bytes(farm: Farm) -> None:
    large = "x" * ((1 << 20) + 1)
    farm.result("a", "a", log=large, report="y" + large, age_s=DAY)
    farm.result("b", "b", log="small", report="tiny", age_s=DAY)
    farm.gc(sized(0))
    there = [farm.cache.store.contains(Digest.of(t.encode())) for t in (large, "y" + large, "small", "tiny")]
    assert there == [False, False, True, True]


# Between plan and deletion


@pytest.mark.parametrize("what", ["touch", "lease", "root", "pin", "again", "taint"])
def test_what_happens_after_the_plan_is_seen(farm: Farm, what: str) -> None:
    result = farm.result("a", {"f": "a", "s": "shared"}, age_s=DAY)
    farm.result("b", {"g": "b", "s": "shared"}, age_s=DAY)
    made = plan(farm.cache, sized(0))
    assert names(made) == ["a", "b"]
    if what == "touch":
        farm.cache.actions.touch(result.key)
    elif what == "lease":
        farm.lease(result.key, force=True)
    elif what == "root":
        farm.root("a")
    elif what == "pin":
        farm.cache.roots.pin(Pin("x", (), (result.outputs["out"].digest,)))
    elif what == "again":
        farm.lease(result.key, force=True).publish(result, replace=True)
    else:
        farm.cache.actions.taint(result.key, "bad", "ann")
    done = collect(farm.cache, made)
    assert farm.whole("a") and not farm.whole("b")
    assert done.spared == (0 if what == "pin" else 1)


def test_what_is_stored_again_after_the_plan_stays(farm: Farm) -> None:
    farm.result("a", {"f": "again"}, age_s=DAY)
    made = plan(farm.cache, sized(0))
    time.sleep(0.02)
    farm.cache.store.put(b"again")
    collect(farm.cache, made)
    assert farm.cache.store.contains(Digest.of(b"again"))


def test_scratch_that_somebody_came_back_to(farm: Farm) -> None:
    key = farm.result("a", "x").key
    (farm.cache.scratch(key, "f") / "file").write_text("text")
    made = plan(farm.cache, NOTHING_IS_YOUNG)
    farm.lease(key, force=True)
    done = collect(farm.cache, made)
    assert (done.spared, done.freed) == (1, 0)
    assert (farm.cache.root / "scratch" / key.hex / "f" / "file").read_text() == "text"


def test_it_stops_between_two_steps_and_says_so(farm: Farm) -> None:
    for n in range(5):
        farm.result(f"r{n}", {"f": f"text {n}"}, age_s=DAY)
    made = plan(farm.cache, sized(0))
    calls = iter([False] * 5 + [True] * 100)
    done = collect(farm.cache, made, lambda: next(calls))
    assert done.stopped and 0 < done.freed < made.freed
    made, done = farm.gc(sized(0))
    assert not done.stopped and done.freed == made.freed
    assert not any(farm.whole(f"r{n}") for n in range(5))


def test_deletions_raise_the_epoch_and_nothing_else_does(farm: Farm) -> None:
    farm.gc()
    assert farm.cache.epoch.now() == 0
    farm.cache.store.put(b"left")
    farm.gc()
    assert farm.cache.epoch.now() == 1
    (farm.cache.root / "epoch").write_text("nonsense")
    assert farm.cache.epoch.now() == 0 and farm.cache.epoch.advance() == 1
