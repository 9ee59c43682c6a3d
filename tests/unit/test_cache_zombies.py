"""Real processes that hold a lease and are stopped, overtaken and woken, or killed; and clocks that jump."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_cas.cache.actions import ActionCache
from marin_cas.cache.cache import open_cache
from marin_cas.cache.heart import Heart
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease
from marin_cas.digest import Digest
from marin_cas.errors import Interrupted
from marin_cas.store.process import Process
from marin_cas.store.temporary import Temporary

KEY = Digest.of(b"a recipe")

# Takes the lease, says so, and waits to be told; then writes to its scratch and tries to publish.
HOLDER = """
import json, os, sys
from marin_cas.cache.cache import open_cache
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease, LostLease
from marin_cas.digest import Digest
from marin_cas.result import Producer, Result
root, name = sys.argv[1:]
cache = open_cache(root, ttl_s=2.0)
key = Digest.of(b"a recipe")
lease = cache.actions.acquire(key, Holder.here())
assert isinstance(lease, Lease)
scratch = cache.scratch(key, lease.fence)
earlier = [path.name for path in cache.earlier_scratch(key, lease.fence)]
print(json.dumps({"fence": lease.fence, "earlier": earlier}), flush=True)
sys.stdin.readline()
(scratch / "note").write_text(name)
result = Result(key, b"f" * 32, "exact", {}, Producer("ann", "box"), 1.0, 2.0, note=name)
try:
    print(json.dumps({"published": lease.publish(result).note}), flush=True)
except LostLease as lost:
    print(json.dumps({"lost": lost.message}), flush=True)
try:
    lease.record_attempt(result)
    print("recorded", flush=True)
except LostLease:
    print("refused", flush=True)
"""


class Started:
    def __init__(self, root: Path, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(root), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Started]]:
    all: list[Started] = []
    yield all
    for one in all:
        one.end()


def test_a_holder_that_was_stopped_and_wakes_late_can_do_no_harm(tmp_path: Path, started: list[Started]) -> None:
    root = tmp_path / "cache"
    first = Started(root, "first")
    started.append(first)
    mine = json.loads(first.line())
    os.kill(first.process.pid, signal.SIGSTOP)
    # It is there, and silent: after the time to live on our own clock it is overtaken.
    second = Started(root, "second")
    started.append(second)
    theirs = json.loads(second.line())
    assert theirs["fence"] != mine["fence"] and theirs["earlier"] == [mine["fence"]]
    os.kill(first.process.pid, signal.SIGCONT)
    first.go()
    answer = json.loads(first.line())
    assert "was taken over by" in answer["lost"] and f"process {second.process.pid}" in answer["lost"]
    assert first.line() == "refused"
    scratch = root / "scratch" / KEY.hex
    assert (scratch / mine["fence"] / "note").read_text() == "first"
    assert not list((scratch / theirs["fence"]).iterdir())
    cache = open_cache(root)
    assert cache.actions.result(KEY) is None
    assert cache.actions.holds(KEY, theirs["fence"])
    second.go()
    assert json.loads(second.line()) == {"published": "second"}
    chosen = cache.actions.result(KEY)
    assert chosen is not None and chosen.note == "second" and cache.actions.attempts(KEY) == []
    assert (scratch / theirs["fence"] / "note").read_text() == "second"


def test_a_killed_holder_is_overtaken_at_once(tmp_path: Path, started: list[Started]) -> None:
    root = tmp_path / "cache"
    first = Started(root, "first")
    started.append(first)
    first.line()
    cache = open_cache(root)
    first.process.kill()
    began = time.monotonic()
    lease = cache.actions.acquire(KEY, Holder.here())
    took = time.monotonic() - began
    print(f"overtaken after {took:.3f} s")
    assert isinstance(lease, Lease)
    assert took < 10  # a sign of life; the time to live is a minute
    lease.release()


class Clock:
    """`now` is what people's clocks show, and jumps; `monotonic` goes on."""

    def __init__(self) -> None:
        self.passed, self.shown = 0.0, 1e9
        self.jumps: dict[int, float] = {}
        self.slept = 0

    def monotonic(self) -> float:
        return self.passed

    def now(self) -> float:
        return self.shown

    def sleep(self, seconds: float) -> None:
        self.passed += seconds
        self.shown += seconds + self.jumps.pop(self.slept, 0.0)
        self.slept += 1


def two(tmp_path: Path, clock: Clock) -> tuple[tuple[ActionCache, Holder], tuple[ActionCache, Holder]]:
    def one(pid: int) -> tuple[ActionCache, Holder]:
        temporary = Temporary(tmp_path / "tmp")
        heart = Heart(temporary.folder, interval_s=0)
        actions = ActionCache(tmp_path / "ac", temporary, heart=heart, clock=clock, gone=lambda process: False)
        return actions, Holder("ann", Process("box", "boot", "space", pid, 7), clock.now())

    return one(1), one(2)


@pytest.mark.parametrize("jump", [-1e8, -3600.0, 3600.0, 1e8])
def test_peoples_clock_may_jump(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    (actions, holder), (waiter, me) = two(tmp_path, clock)
    clock.jumps = {5: jump}
    lease = actions.acquire(KEY, holder)
    assert isinstance(lease, Lease)
    beat = tmp_path / "tmp" / f"{holder.process.prefix}beat"
    waited: list[float] = []

    def on_wait(who: Holder, seconds: float) -> None:
        waited.append(seconds)
        assert who.since == 1e9  # when it took the lease
        if len(waited) % 100 == 0 and len(waited) <= 1000:
            # Its own clock jumped too: what a beat writes is only ever compared with what was there.
            os.utime(beat, (clock.now(), clock.now()))

    taken = waiter.acquire(KEY, me, on_wait=on_wait)
    assert isinstance(taken, Lease)
    # A hundred seconds of beating, and then the time to live.
    assert clock.passed == pytest.approx(160, abs=1)
    assert not lease.held()


def test_a_machine_that_stood_still_overtakes_nobody_when_it_wakes(tmp_path: Path) -> None:
    clock = Clock()
    (actions, holder), (waiter, me) = two(tmp_path, clock)
    lease = actions.acquire(KEY, holder)
    assert isinstance(lease, Lease)
    looks = 0

    def on_wait(who: Holder, seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            clock.passed += 10_000  # holder and waiter were both stopped meanwhile
        if looks > 3:
            os.utime(tmp_path / "tmp" / f"{holder.process.prefix}beat", (looks, looks))

    with pytest.raises(Interrupted):
        waiter.acquire(KEY, me, on_wait=on_wait, cancelled=lambda: looks > 20)
    assert lease.held()
