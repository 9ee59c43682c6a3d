"""The entries of a key: first wins, fences, takeover, taint, damage, failing disk calls, two processes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from marin_cas.cache.actions import ActionCache
from marin_cas.cache.entry import ENTRY_HEADER, Entry
from marin_cas.cache.heart import Heart
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease, LostLease
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk
from marin_cas.encoding import decode, decode_record
from marin_cas.errors import EnvironmentProblem, Interrupted
from marin_cas.result import Output, Producer, Result
from marin_cas.store.faulty import FaultyDisk
from marin_cas.store.process import Process
from marin_cas.store.temporary import Temporary

KEY = Digest.of(b"a recipe")


def result(name: str, key: Digest = KEY) -> Result:
    outputs = {"out": Output("file", Digest.of(name.encode()))}
    return Result(key, b"f" * 32, "exact", outputs, Producer("ann", "box"), 1.0, 2.0, note=name)


class FakeClock:
    def __init__(self) -> None:
        self.time = 1000.0
        self.during_sleep: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.during_sleep()


class World:
    """One folder, one clock, and any number of processes that are gone when we say so."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.gone: set[Process] = set()

    def process(self, pid: int, disk: Disk = DISK) -> tuple[ActionCache, Holder]:
        temporary = Temporary(self.root / "tmp", disk)
        heart = Heart(temporary.folder, disk, interval_s=0)  # beats only when told to
        actions = ActionCache(
            self.root / "ac", temporary, disk, heart=heart, clock=self.clock, gone=self.gone.__contains__
        )
        return actions, Holder("ann", Process("box", "boot", "space", pid, 7), self.clock.time, "job")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def leased(actions: ActionCache, holder: Holder, *, force: bool = False, key: Digest = KEY) -> Lease:
    lease = actions.acquire(key, holder, force=force)
    assert isinstance(lease, Lease)
    return lease


def test_a_key_without_entries(world: World) -> None:
    actions, _ = world.process(1)
    assert actions.state(KEY) is None
    assert actions.result(KEY) is None
    assert actions.attempts(KEY) == []
    assert actions.changed_keys() == frozenset()
    assert list(actions.all_keys()) == []


def test_build_once(world: World) -> None:
    actions, holder = world.process(1)
    lease = leased(actions, holder)
    state = actions.state(KEY)
    assert state is not None and state.state == "leased" and state.holder == holder and state.fence == lease.fence
    assert lease.held()
    assert lease.publish(result("one")) == result("one")
    assert not lease.held()
    assert actions.result(KEY) == result("one")
    assert actions.acquire(KEY, holder) == result("one")
    assert sorted(path.name for path in (world.root / "ac" / KEY.hex[:2] / KEY.hex).iterdir()) == ["1", "2"]
    assert list(actions.all_keys()) == [KEY.hex]


def test_release_gives_way(world: World) -> None:
    actions, holder = world.process(1)
    with leased(actions, holder) as first:
        pass
    assert actions.state(KEY).state == "free"  # type: ignore[union-attr]
    first.release()
    with pytest.raises(LostLease):
        first.publish(result("late"))
    leased(actions, holder).publish(result("second"))
    assert actions.result(KEY) == result("second")


def test_first_wins_and_the_rest_are_attempts(world: World) -> None:
    actions, holder = world.process(1)
    leased(actions, holder).publish(result("one"))
    assert leased(actions, holder, force=True).publish(result("two")) == result("one")
    lease = leased(actions, holder, force=True)
    lease.record_attempt(result("three"))
    assert lease.held()
    lease.release()
    assert actions.result(KEY) == result("one")
    assert actions.attempts(KEY) == [result("two"), result("three")]
    assert actions.changed_keys() == frozenset()


def test_replace_is_noticed_by_fingerprints(world: World) -> None:
    actions, holder = world.process(1)
    other, _ = world.process(2)
    leased(actions, holder).publish(result("one"))
    assert other.changed_keys() == frozenset()
    assert leased(actions, holder, force=True).publish(result("two"), replace=True) == result("two")
    assert actions.result(KEY) == result("two")
    assert actions.attempts(KEY) == [result("one")]
    assert other.changed_keys() == {KEY.hash}


def test_replacing_nothing_changes_nothing(world: World) -> None:
    actions, holder = world.process(1)
    leased(actions, holder).publish(result("one"), replace=True)
    assert actions.changed_keys() == frozenset()


def test_taint(world: World) -> None:
    actions, holder = world.process(1)
    assert actions.taint(KEY, "nothing there", "ann") is None
    leased(actions, holder).publish(result("bad"))
    lease = leased(actions, holder, force=True)
    assert actions.taint(KEY, "wrong corpus", "ann") == result("bad")
    assert actions.result(KEY) is None
    assert actions.standing(KEY).taint.reason == "wrong corpus"  # type: ignore[union-attr]
    assert actions.changed_keys() == {KEY.hash}
    # Whoever is building it meanwhile still holds it, and its result counts.
    assert lease.publish(result("good")) == result("good")
    assert actions.result(KEY) == result("good")
    assert actions.standing(KEY).taint is None


def test_waits_for_the_other_and_takes_its_result(world: World) -> None:
    actions, holder = world.process(1)
    waiter, me = world.process(2)
    lease = leased(actions, holder)
    waited: list[tuple[Holder, float]] = []

    def on_wait(who: Holder, seconds: float) -> None:
        waited.append((who, seconds))
        if len(waited) == 5:
            lease.publish(result("theirs"))

    assert waiter.acquire(KEY, me, on_wait=on_wait) == result("theirs")
    assert {who for who, _ in waited} == {holder}
    assert [seconds for _, seconds in waited] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


def test_waiting_can_be_cancelled(world: World) -> None:
    actions, holder = world.process(1)
    leased(actions, holder)
    waiter, me = world.process(2)
    with pytest.raises(Interrupted):
        waiter.acquire(KEY, me, cancelled=lambda: world.clock.time > 1003)
    assert actions.state(KEY).n == 1  # type: ignore[union-attr]


def test_the_dead_are_overtaken_at_once(world: World) -> None:
    actions, holder = world.process(1)
    zombie = leased(actions, holder)
    world.gone.add(holder.process)
    second, me = world.process(2)
    lease = leased(second, me)
    assert world.clock.time == 1000.0
    assert not zombie.held() and zombie.lost
    with pytest.raises(LostLease, match="taken over by ann@box"):
        zombie.publish(result("zombie"))
    with pytest.raises(LostLease):
        zombie.record_attempt(result("zombie"))
    lease.publish(result("second"))
    with pytest.raises(LostLease):
        zombie.publish(result("zombie"), replace=True)
    zombie.release()
    assert actions.result(KEY) == result("second")
    assert actions.attempts(KEY) == []


def test_a_silent_holder_is_overtaken_after_the_time_to_live(world: World) -> None:
    actions, holder = world.process(1)
    leased(actions, holder)
    second, me = world.process(2)
    leased(second, me)
    assert 60 <= world.clock.time - 1000 < 61


def test_a_beating_holder_is_waited_for(world: World) -> None:
    actions, holder = world.process(1)
    lease = leased(actions, holder)
    second, me = world.process(2)
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks % 300 == 0:
            os.utime(world.root / "tmp" / f"{holder.process.prefix}beat", ns=(ticks, ticks))
        if ticks == 2000:
            lease.publish(result("slow"))

    world.clock.during_sleep = tick
    assert second.acquire(KEY, me) == result("slow")
    assert world.clock.time - 1000 == pytest.approx(200)


def test_a_beat_before_the_entry_is_there_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    actions, holder = world.process(1)
    start = actions.heart.start

    def beat_at_once(*args: object) -> None:
        start(*args)  # type: ignore[arg-type]
        actions.heart.beat()

    monkeypatch.setattr(actions.heart, "start", beat_at_once)
    lease = leased(actions, holder)
    assert lease.held()
    assert lease.publish(result("one")) == result("one")


def test_a_beat_notices_a_lost_lease(world: World) -> None:
    actions, holder = world.process(1)
    lease = leased(actions, holder)
    actions.heart.beat()
    assert not lease.lost
    world.gone.add(holder.process)
    leased(*world.process(2))
    actions.heart.beat()
    assert lease.lost


def test_the_heart_beats_by_itself(tmp_path: Path) -> None:
    heart = Heart(str(tmp_path / "tmp"), interval_s=0.01)
    holder = Holder.here()
    assert heart.pulse(holder) is None
    heart.start("fence", holder)
    first = heart.pulse(holder)
    deadline = time.monotonic() + 10
    while heart.pulse(holder) == first and time.monotonic() < deadline:
        time.sleep(0.01)
    assert first is not None and heart.pulse(holder) != first
    heart.stop("fence")


def test_the_heart_survives_a_full_disk(tmp_path: Path) -> None:
    def before(call: str) -> None:
        raise OSError(errno.ENOSPC, "full")

    heart = Heart(str(tmp_path / "tmp"), FaultyDisk(before), interval_s=0)
    heart.start("fence", Holder.here())
    heart.beat()
    assert heart.pulse(Holder.here()) is None


def test_two_threads_run_it_once(tmp_path: Path) -> None:
    temporary = Temporary(tmp_path / "tmp")
    actions = ActionCache(tmp_path / "ac", temporary, heart=Heart(temporary.folder, interval_s=0))
    runs: list[int] = []
    got: list[Result] = []

    def work(index: int) -> None:
        lease = actions.acquire(KEY, Holder.here())
        if isinstance(lease, Lease):
            runs.append(index)
            time.sleep(0.05)
            lease = lease.publish(result(f"by {index}"))
        got.append(lease)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 1
    assert got == [result(f"by {runs[0]}")] * 5


WORKER = """
import json, sys, time
from pathlib import Path
from marin_cas.cache.cache import open_cache
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease
from marin_cas.digest import Digest
from marin_cas.result import Producer, Result
root, name, hang = sys.argv[1:]
cache = open_cache(root)
key = Digest.of(b"a recipe")
lease = cache.actions.acquire(key, Holder.here())
if isinstance(lease, Lease):
    with open(root + "/runs", "a") as runs:
        runs.write(name + "\\n")
    print("running", flush=True)
    time.sleep(60 if hang == "hang" else 0.2)
    lease = lease.publish(Result(key, b"f" * 32, "exact", {}, Producer("ann", "box"), 1.0, 2.0, note=name))
print(json.dumps(lease.note))
"""


def start(root: Path, name: str, hang: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(root), name, hang], stdout=subprocess.PIPE, text=True)


def test_two_processes_run_it_once(tmp_path: Path) -> None:
    processes = [start(tmp_path / "cache", name) for name in ("a", "b", "c")]
    notes = {json.loads(process.communicate(timeout=60)[0].splitlines()[-1]) for process in processes}
    runs = (tmp_path / "cache/runs").read_text().split()
    assert len(runs) == 1 and notes == {runs[0]}


def test_kill_9_leaves_nothing_to_clean_up(tmp_path: Path) -> None:
    first = start(tmp_path / "cache", "first", "hang")
    assert first.stdout is not None and first.stdout.readline() == "running\n"
    first.send_signal(signal.SIGKILL)  # and nobody waits for it: it stays a zombie
    second = start(tmp_path / "cache", "second")
    assert '"second"' in second.communicate(timeout=30)[0]
    first.wait()
    first.stdout.close()
    from marin_cas.cache.cache import open_cache

    cache = open_cache(tmp_path / "cache")
    assert cache.actions.result(KEY).note == "second"  # type: ignore[union-attr]
    assert list((tmp_path / "cache/tmp").iterdir()) == []


def test_record_of_an_entry(world: World) -> None:
    actions, holder = world.process(1)
    leased(actions, holder).publish(result("one"))
    record = (world.root / "ac" / KEY.hex[:2] / KEY.hex / "2").read_bytes()
    body, check = decode_record(ENTRY_HEADER, record)  # type: ignore[misc]
    assert Digest.of(body).hash == check  # type: ignore[arg-type]
    fields = decode(body)  # type: ignore[arg-type]
    assert isinstance(fields, dict) and fields["state"] == "done"
    assert Result.parse(fields["result"]) == result("one")  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["empty", "cut", "flipped", "other"])
def test_a_damaged_entry_is_built_behind(world: World, how: str) -> None:
    actions, holder = world.process(1)
    leased(actions, holder).publish(result("one"))
    path = world.root / "ac" / KEY.hex[:2] / KEY.hex / "2"
    record = path.read_bytes()
    # Each of these is what a power cut or a bad disk can make of a file.
    flipped = bytearray(record)
    flipped[record.index(b"exact")] ^= 1
    path.write_bytes({"empty": b"", "cut": record[:-9], "flipped": bytes(flipped), "other": b"\0" * 500}[how])
    assert actions.result(KEY) is None
    assert actions.state(KEY).state == "unreadable"  # type: ignore[union-attr]
    world.gone.add(holder.process)  # the lease in entry 1 was ended by what is now unreadable
    second, me = world.process(2)
    leased(second, me).publish(result("again"))
    assert actions.result(KEY) == result("again")


@pytest.mark.parametrize(
    "entry",
    [
        Entry(3, "leased", 5.0, "ab", Holder("ann", Process("h", "b", "s", 1, 2), 4.5, "job")),
        Entry(3, "free", 5.0, "ab"),
        Entry(3, "done", 5.0, "ab", result=result("x")),
        Entry(3, "attempt", 5.0, "ab", result=result("x")),
        Entry(3, "tainted", 5.0, reason="why", who="ann"),
    ],
)
def test_entries_parse_back(entry: Entry) -> None:
    assert Entry.parse(3, entry.record()) == entry


def test_result_reads_what_standing_folds(world: World) -> None:
    # `result` reads from the end; it must never differ from the fold over everything.
    actions, holder = world.process(1)

    def agree() -> None:
        assert actions.result(KEY) == actions.standing(KEY).chosen

    leased(actions, holder).publish(result("one"))
    agree()
    lease = leased(actions, holder, force=True)
    agree()
    lease.record_attempt(result("two"))
    agree()
    actions.taint(KEY, "bad", "ann")
    agree()
    lease.publish(result("three"))
    agree()
    leased(actions, holder, force=True).publish(result("four"), replace=True)
    agree()


def test_any_failing_call_leaves_a_key_that_can_be_built(tmp_path: Path) -> None:
    for n in range(1, 60):
        world = World(tmp_path / str(n))
        calls = 0

        def before(call: str) -> None:
            nonlocal calls
            calls += 1
            if calls == n:  # noqa: B023
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        actions, holder = world.process(1, FaultyDisk(before))
        published = False
        try:
            with leased(actions, holder) as lease:
                lease.publish(result("one"))
                published = True
        except EnvironmentProblem as problem:
            assert "the disk is full" in problem.message
        healthy, me = world.process(2)
        world.gone.add(holder.process)
        got = healthy.acquire(KEY, me)
        if published:
            assert got == result("one")
        elif isinstance(got, Lease):
            got.publish(result("two"))
        assert healthy.result(KEY) in (result("one"), result("two"))
        assert all(entry.state != "unreadable" for entry in healthy.entries(KEY.hex))
        if calls < n:
            return
    pytest.fail("never ran through")


def test_holder_is_shown_to_people() -> None:
    holder = Holder("ann", Process("box", "b", "s", 42, 1), 0.0)
    assert str(holder) == "ann@box (process 42)"
    assert Holder.from_record(replace(holder, job="j").to_record()) == replace(holder, job="j")
