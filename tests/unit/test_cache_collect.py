"""Deletion beside builds: random caches, a kill at every delete, and somebody who comes between any two steps."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from marin_cas.cache import collect as collecting
from marin_cas.cache import remembered
from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.collect import collect
from marin_cas.cache.gc import Plan, Wanted, plan
from marin_cas.cache.roots import Pin
from marin_cas.digest import Digest
from marin_cas.errors import EnvironmentProblem
from marin_cas.label import Label
from marin_cas.store.faulty import FaultyDisk
from marin_cas.tree.walk import first_missing
from tests.unit.gc_cases import DAY, Farm, disk_bytes, folder, names, sized

TEXTS = ["", "a", "b" * 10, "c" * 100, "d" * 1000]


@contextmanager
def farms() -> Iterator[Farm]:
    with folder() as path:
        farm = Farm(open_cache(path / "cache"))
        yield farm
        farm.cache.close()


@pytest.fixture
def place() -> Iterator[Path]:
    with folder() as path:
        yield path


# A seed, how many results, `max_size` and `max_age_s`.
type Story = tuple[int, int, int | None, float | None]
stories = st.tuples(
    st.integers(0, 2**32),
    st.integers(1, 7),
    st.sampled_from([None, 0, 500, 1500]),
    st.sampled_from([None, 0.0, 30 * DAY]),
)


def tell(farm: Farm, story: Story) -> Wanted:
    """Makes what the story says, and returns what to ask of GC."""
    populate(farm, random.Random(story[0]), story[1])
    return Wanted(0.0, story[3], story[2])


def populate(farm: Farm, dice: random.Random, count: int) -> None:
    def tree() -> dict[str, str]:
        paths = dice.sample(["f", "g", "d/f", "d/g", "d/e/f"], dice.randint(1, 4))
        return {path: dice.choice(TEXTS) for path in paths}

    for n in range(count):
        farm.result(
            f"r{n}",
            tree() if dice.random() < 0.8 else dice.choice(TEXTS),
            of=dice.sample(sorted(farm.made), min(len(farm.made), dice.randint(0, 2))),
            source=dice.choice([None, "source", dice.choice(TEXTS)]),
            wall_s=dice.choice([0.0, 1.0, 1000.0]),
            age_s=dice.choice([10.0, 40.0]) * DAY,
            log=dice.choice([None, "log", dice.choice(TEXTS)]),
            report=dice.choice([None, "report"]),
        )
    for name in list(farm.made):
        if dice.random() < 0.2:
            farm.result(name, tree(), attempt=True, age_s=DAY)
        if dice.random() < 0.3:
            farm.cache.links.publish(Label("exp", name), farm.made[name].outputs)
    for _ in range(dice.randint(0, 3)):
        farm.cache.store.put(b"left over %d" % dice.randrange(5))
    made = sorted(farm.made)
    for name in dice.sample(made, dice.randint(0, len(made) // 2)):
        if dice.random() < 0.5:
            farm.root(name)
        else:
            farm.cache.roots.pin(Pin(name, (farm.made[name].key,), deps=dice.random() < 0.5))
    if dice.random() < 0.3:
        farm.cache.roots.pin(Pin("blob", (), (farm.made[dice.choice(made)].outputs["out"].digest,)))
    if dice.random() < 0.2:
        gone = farm.made[dice.choice(made)].outputs["out"].digest
        farm.cache.store.delete(gone)


def protected(farm: Farm) -> list[str]:
    """The results whose bytes nobody may take, by the rules rather than by the plan."""
    keys: set[bytes] = set()
    for root in farm.cache.roots.all():
        keys |= {key.hash for key in root.keys}
    for pin in farm.cache.roots.pins():
        for key in pin.keys:
            keys.add(key.hash)
            if pin.deps and (result := farm.cache.actions.result(key)) is not None:
                keys |= set(result.producer_keys)
    return [name for name, result in farm.made.items() if result.key.hash in keys]


def told(made: Plan) -> list[tuple[object, ...]]:
    hashes = made.inventory.nodes.hashes()
    return [
        (
            item.why,
            item.bytes,
            item.again,
            item.holding.key if item.holding else item.leftover.path if item.leftover else "",
            sorted(hashes[n] for n in item.blobs),
        )
        for item in made.items
    ]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(stories)
# Two copies under `out/` have the only names of a blob that the store lost.
@example((291, 7, None, 0.0))
@example((291, 7, None, None))
# A tree that is an output, with a copy, and a part of another output too.
@example((2806485, 3, None, 0.0))
def test_it_frees_what_it_said_and_nothing_protected(story: Story) -> None:
    with farms() as farm:
        wanted = tell(farm, story)
        whole = {name for name in farm.made if farm.whole(name)}
        kept = whole & set(protected(farm))
        pinned = [d for pin in farm.cache.roots.pins() for d in pin.digests if farm.cache.store.contains(d)]
        before = disk_bytes(farm.cache.root)
        made, done = farm.gc(wanted)
        assert (done.spared, done.stopped) == (0, False)
        assert done.freed == made.freed == before - disk_bytes(farm.cache.root)
        assert made.size == before
        assert all(farm.whole(name) for name in kept)
        assert all(farm.cache.store.contains(digest) for digest in pinned)
        # Whoever is not in the plan has lost nothing.
        assert all(farm.whole(name) for name in whole - set(names(made)))
        assert wanted.max_size is None or made.lacking or disk_bytes(farm.cache.root) <= wanted.max_size
        for result in farm.made.values():
            assert farm.cache.store.contains(result.key)
        for link in (farm.cache.root / "out").rglob("*"):
            assert link.exists(), f"{link} leads nowhere"
        again, done = farm.gc(wanted)
        assert (again.items, done.freed) == ((), 0)


# state.db


def spoil(path: Path, how: str, other: Path) -> None:
    if how == "absent":
        path.unlink(missing_ok=True)
    elif how == "noise":
        path.write_bytes(os.urandom(5000))
    elif how == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "another's":
        path.write_bytes(other.read_bytes())
    else:
        database = sqlite3.connect(path)
        with database:
            if how == "bodies":
                database.execute("UPDATE trees SET body = substr(body, 1, length(body) - 33) || zeroblob(33)")
            elif how == "moved":
                # Each row is sound, and lies under another tree's digest.
                rows = database.execute("SELECT hash, seal, body FROM trees").fetchall()
                database.execute("DELETE FROM trees")
                moved = [(a[0], b[1], b[2]) for a, b in zip(rows, rows[1:] + rows[:1], strict=True)]
                database.executemany("INSERT INTO trees VALUES (?, ?, ?)", moved)
            else:
                database.execute("DROP TABLE trees")
        database.close()


@settings(max_examples=max(25, settings().max_examples // 3), suppress_health_check=[HealthCheck.too_slow])
@given(stories, st.sampled_from(["absent", "noise", "cut", "another's", "bodies", "moved", "dropped"]))
def test_whatever_is_in_state_db_the_plan_is_the_same(story: Story, how: str) -> None:
    with pytest.MonkeyPatch.context() as patch, farms() as farm, farms() as other:
        patch.setattr(remembered, "_WORTH", 0)
        other.result("x", {"f": "x", "d/g": "y"})
        plan(other.cache, Wanted(0.0))
        wanted, now = tell(farm, story), time.time()
        farm.result("tree", {"f": "f"}, age_s=DAY)
        path = farm.cache.root / "state.db"
        path.unlink(missing_ok=True)
        first = told(plan(farm.cache, wanted, now))
        assert path.exists()
        assert told(plan(farm.cache, wanted, now)) == first, "with what was remembered"
        spoil(path, how, other.cache.root / "state.db")
        assert told(plan(farm.cache, wanted, now)) == first, "with a damaged file"
        assert told(plan(farm.cache, wanted, now)) == first, "and with what is made of that"


def test_a_remembered_tree_is_believed_only_while_its_record_is_there(place: Path) -> None:
    farm = Farm(open_cache(place / "cache"))
    result = farm.result("a", {f"f{n}": str(n) for n in range(20)}, age_s=DAY)
    plan(farm.cache, Wanted(0.0))
    farm.cache.store.delete(result.outputs["out"].digest)
    made = plan(farm.cache, Wanted(0.0))
    (farm.cache.root / "state.db").unlink()
    assert told(made) == told(plan(farm.cache, Wanted(0.0)))
    assert len(made.items[0].blobs) == 20  # without its record nothing names them


# Kills


class Killed(BaseException):
    pass


def dying_at(root: Path, n: int) -> Cache:
    """The cache, whose process dies at its n-th removal from now on."""
    left = [n]

    def before(call: str) -> None:
        if call in ("unlink", "rename", "remove_tree"):
            left[0] -= 1
            if left[0] < 0:
                raise Killed

    return open_cache(root, FaultyDisk(before))


def prepared(at: Path) -> tuple[Farm, Wanted]:
    farm = Farm(open_cache(at / "cache"))
    farm.result("kept", {"d/f": "shared", "k": "k"}, age_s=DAY)
    farm.result("a", {"d/f": "shared", "d/e/g": "a" * 50, "h": "h"}, age_s=DAY)
    farm.result("b", {"d/e/g": "a" * 50, "i": "b"}, age_s=DAY)
    farm.result("c", "c" * 30, age_s=DAY)
    farm.root("kept")
    for name in ("kept", "a", "c"):
        farm.cache.links.publish(Label("exp", name), farm.made[name].outputs)
    farm.cache.store.put(b"left over")
    (farm.cache.work(farm.made["c"].key) / "log").write_text("log")
    return farm, sized(0)


def test_a_kill_at_any_removal_is_made_good_by_the_next_collection(place: Path) -> None:
    whole, wanted = prepared(place / "whole")
    whole.gc(wanted)
    due, killed = disk_bytes(whole.cache.root), 0
    for n in range(100):
        farm, wanted = prepared(place / str(n))
        made = plan(farm.cache, wanted)
        try:
            collect(dying_at(farm.cache.root, n), made)
            break
        except Killed:
            killed += 1
        farm = Farm(open_cache(farm.cache.root))
        farm.made = whole.made
        assert farm.whole("kept")
        assert (farm.cache.root / "out/exp/kept/k").read_text() == "k"
        # Nothing is whole by half: what can be found can be read.
        for name in ("a", "b", "c"):
            result = farm.cache.actions.result(farm.made[name].key)
            assert result is not None
            output = result.outputs["out"]
            if first_missing(farm.cache.store, output.kind, output.digest) is None:
                farm.cache.links.publish(Label("x", name), result.outputs)
        farm.gc(wanted)
        with suppress(FileNotFoundError):
            assert farm.whole("kept") and not any(farm.whole(name) for name in ("a", "b", "c"))
        assert disk_bytes(farm.cache.root) == due, n
    assert killed > 12


def test_garbage_of_a_kill_goes_without_asking_for_a_size(place: Path) -> None:
    """A tree goes before what it names, so what is left of it is named by nothing."""
    farm, wanted = prepared(place)
    made = plan(farm.cache, wanted)
    size = made.size
    with pytest.raises(Killed):
        collect(dying_at(farm.cache.root, 6), made)
    farm = Farm(open_cache(farm.cache.root))
    farm.gc()
    left = [entry.path for _, entry in farm.cache.store.files()]
    assert disk_bytes(farm.cache.root) < size and left
    again = plan(farm.cache, Wanted(0.0))
    assert again.items == ()


@pytest.mark.parametrize("call", ["unlink", "rename", "sync"])
def test_a_disk_in_the_way_is_an_error_that_names_it(place: Path, call: str) -> None:
    farm, wanted = prepared(place)
    made = plan(farm.cache, wanted)

    def before(name: str) -> None:
        if name == call:
            raise OSError(5, os.strerror(5))

    with pytest.raises(EnvironmentProblem, match="input/output error"):
        collect(open_cache(farm.cache.root, FaultyDisk(before)), made)
    assert farm.whole("kept")


# Somebody comes between


def come_and(farm: Farm, what: str, name: str) -> Callable[[], bool]:
    """Does it; returns the check that what was promised then still holds at the end."""
    cache, result = farm.cache, farm.made[name]

    def looked() -> bool:
        return farm.whole(name)

    if what == "hit":
        with cache.gate.shared():
            cache.actions.touch(result.key)
        return looked if looked() else lambda: True
    if what == "root":
        cache.actions.touch(result.key)
        farm.root(name)
        return looked if looked() else lambda: True
    if what == "pin":
        output = result.outputs["out"]
        cache.roots.pin(Pin(name, (), (output.digest,)))
        return looked if looked() else lambda: True
    if what == "garbage":
        kept = cache.store.put(b"left over")
        return lambda: cache.store.contains(kept)
    # Another key with the same outputs is published: what is there already is used again.
    epoch = cache.epoch.now()
    texts = {"a": {"d/f": "shared", "d/e/g": "a" * 50, "h": "h"}, "b": {"d/e/g": "a" * 50, "i": "b"}, "c": "c" * 30}
    lease = farm.lease(Digest.of(f"new {name}".encode()))
    kind, digest = farm.blob(texts[name])
    with cache.gate.shared():
        if cache.epoch.now() != epoch:
            assert first_missing(cache.store, kind, digest) is None
        lease.release()
    return lambda: first_missing(cache.store, kind, digest) is None


@pytest.mark.parametrize("what", ["hit", "root", "pin", "publish", "garbage"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_whoever_comes_between_two_steps_is_not_harmed(
    place: Path, monkeypatch: pytest.MonkeyPatch, what: str, name: str
) -> None:
    monkeypatch.setattr(collecting, "_STEP", 1)
    checked = 0
    for at in range(100):
        farm, wanted = prepared(place / str(at))
        made = plan(farm.cache, wanted)
        steps, checks = [0], []

        def come(farm: Farm = farm, at: int = at, steps: list[int] = steps, checks: list[object] = checks) -> bool:
            if steps[0] == at:
                checks.append(come_and(farm, what, name))
            steps[0] += 1
            return False

        collect(farm.cache, made, come)
        if not checks:
            break
        [check] = checks
        assert check(), f"at step {at}"  # type: ignore[operator]
        assert farm.whole("kept")
        checked += 1
    assert checked > 5
