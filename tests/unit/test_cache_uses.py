"""Who uses something marks it, so that whoever deletes sees it; who publishes looks whether anything was deleted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_cas.cache.budget import Total, measure
from marin_cas.cache.cache import open_cache
from marin_cas.digest import Digest
from marin_cas.label import Label
from marin_cas.scheduler.local import LocalCache
from marin_cas.store.base import MissingBlob
from marin_cas.worker import execute
from marin_cas.worker.attempt import Status
from tests.unit.gc_cases import DAY, Farm, disk_bytes, folder
from tests.unit.test_worker_execute import WRITES, Bench


@pytest.fixture
def farm() -> Iterator[Farm]:
    with folder() as path:
        yield Farm(open_cache(path / "cache"))


def test_a_touch_is_a_use(farm: Farm) -> None:
    result = farm.result("a", "x", age_s=DAY)
    used = farm.cache.actions.last_used(result.key)
    assert used is not None and used < time.time() - DAY + 60
    farm.cache.actions.touch(result.key)
    used = farm.cache.actions.last_used(result.key)
    assert used is not None and used > time.time() - 60
    assert farm.cache.actions.last_used(Digest.of(b"none")) is None
    farm.cache.actions.touch(Digest.of(b"none"))
    farm.cache.actions.taint(result.key, "bad", "ann")
    assert farm.cache.actions.last_used(result.key) is None


def test_a_touch_within_a_second_writes_nothing(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    result = farm.result("a", "x")
    monkeypatch.setattr(farm.cache.disk, "touch", lambda path: pytest.fail("touched"))
    farm.cache.actions.touch(result.key)


def test_a_use_that_cannot_be_noted_is_no_error(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise OSError(30, os.strerror(30))

    result = farm.result("a", "x", age_s=DAY)
    monkeypatch.setattr(farm.cache.disk, "touch", refuse)
    farm.cache.actions.touch(result.key)


def test_a_clock_that_was_wrong(farm: Farm) -> None:
    """A use in the future would never be old."""
    result = farm.result("a", "x", age_s=-30 * DAY)
    farm.cache.actions.touch(result.key)
    used = farm.cache.actions.last_used(result.key)
    assert used is not None and used < time.time() + 60


def test_a_hit_is_marked_before_it_is_looked_at(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    result = farm.result("a", {"f": "x"}, age_s=DAY)
    order: list[str] = []
    touch, contains = farm.cache.actions.touch, farm.cache.store.contains
    monkeypatch.setattr(farm.cache.actions, "touch", lambda key: order.append("touch") or touch(key))
    monkeypatch.setattr(farm.cache.store, "contains", lambda digest: order.append("look") or contains(digest))
    assert LocalCache(farm.cache).missing(result, ["out"]) is None
    assert order[0] == "touch" and "look" in order


def test_a_copy_that_was_swept_before_its_link_is_made_again(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    result = farm.result("a", {"f": "x"})
    publish, swept = farm.cache.links.publish, []

    def sweeping(label: Label, outputs: object) -> object:
        places = publish(label, outputs)  # type: ignore[arg-type]
        if not swept:
            swept.append(1)
            farm.cache.disk.remove_tree(farm.cache.root / "trees" / result.outputs["out"].digest.hex)
        return places

    monkeypatch.setattr(farm.cache.links, "publish", sweeping)
    places = LocalCache(farm.cache).link(Label("exp", "a"), result.outputs)
    assert swept and (places["out"] / "f").read_text() == "x"


@pytest.mark.parametrize("moved", [True, False])
def test_nothing_with_a_hole_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: bool) -> None:
    """Where the epoch stands still nobody deletes, and nothing is looked at twice."""
    bench = Bench(tmp_path)
    ingest, looked = execute.ingest, execute.first_missing
    looks: list[object] = []

    def losing(store, path, *, move):
        taken = ingest(store, path, move=move)
        if moved:
            bench.cache.epoch.advance()
            store.delete(Digest.of(b"hello"))
        return taken

    monkeypatch.setattr(execute, "ingest", losing)
    monkeypatch.setattr(execute, "first_missing", lambda *args: looks.append(args) or looked(*args))
    attempt = bench.run(WRITES)
    bench.executor.close()
    assert bool(looks) == moved
    if moved:
        assert attempt.status == Status.INFRA and isinstance(attempt.error, MissingBlob)
        assert attempt.result is None
    else:
        assert attempt.status == Status.SUCCEEDED


def test_the_sum_of_what_was_added(farm: Farm) -> None:
    total = Total(farm.cache)
    total.add(100)
    assert total.read() is None
    total.write(1000, 0)
    total.add(100)
    total.add(0)
    Total(farm.cache).add(23)
    assert total.read() == (1123, 0)
    path = farm.cache.root / "size"
    for damage in (b"", b"x", b"1 2", b"1 2 z\n", f"5 0 {time.time() - 2 * DAY}\n".encode(), b"5 0 1e99\n", b"\0" * 9):
        path.write_bytes(damage)
        assert total.read() is None
    total.write(7, 9)
    assert total.read() == (7, 9)
    for _ in range(1001):
        total.add(1)
    assert total.read() is None


def test_the_size_of_a_cache(farm: Farm) -> None:
    farm.result("a", {"f": "x" * 100}, log="log", source="s")
    farm.result("b", "y" * 50)
    for name in ("a", "b"):
        farm.cache.links.publish(Label("exp", name), farm.made[name].outputs)
    (farm.cache.work(farm.made["a"].key) / "log").write_text("12345")
    assert measure(farm.cache) == disk_bytes(farm.cache.root)
