"""A whole cache folder: small files, usage, clean, scratch, and a reboot."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.clean import clean, plan_clean
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease
from marin_cas.cache.listing import results
from marin_cas.cache.refs import Ref, is_among
from marin_cas.cache.usage import stat
from marin_cas.cache.verify import verify
from marin_cas.digest import Digest
from marin_cas.disk import DISK
from marin_cas.errors import EnvironmentProblem
from marin_cas.label import Label
from marin_cas.result import Output, Producer, Result
from marin_cas.store.faulty import FaultyDisk
from marin_cas.tree.ingest import ingest

KEY = Digest.of(b"a recipe")
FP = b"f" * 32


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return open_cache(tmp_path / "cache")


def lease(cache: Cache, key: Digest = KEY) -> Lease:
    got = cache.actions.acquire(key, Holder.here(), force=True)
    assert isinstance(got, Lease)
    return got


def made(cache: Cache, key: Digest = KEY, text: str = "text", below: tuple[bytes, ...] = ()) -> Result:
    folder = cache.root.parent / "made"
    folder.mkdir()
    (folder / "f").write_text(text)
    output = Output("tree", ingest(cache.store, folder, move=True).digest)
    folder.rmdir()
    result = Result(key, FP, "exact", {"out": output}, Producer("ann", "box"), 1.0, 2.0, producer_keys=below)
    return lease(cache, key).publish(replace(result, label="//exp:x"))


# Fingerprints


def test_fingerprint_to_result(cache: Cache) -> None:
    assert cache.fingerprints.get(FP) is None
    cache.fingerprints.put(FP, KEY)
    assert cache.fingerprints.key(FP) == KEY
    assert cache.fingerprints.get(FP) is None
    result = made(cache)
    assert cache.fingerprints.get(FP) == result
    other = Digest.of(b"other recipe")
    cache.fingerprints.put(FP, other)
    assert cache.fingerprints.key(FP) == other


def test_a_fingerprint_is_refused_when_something_below_changed(cache: Cache) -> None:
    below = Digest.of(b"below")
    made(cache, below, "below")
    result = made(cache, below=(below.hash,))
    cache.fingerprints.put(FP, KEY)
    assert cache.fingerprints.get(FP) == result
    cache.actions.taint(below, "bad", "ann")
    assert cache.fingerprints.get(FP) is None
    assert cache.actions.result(KEY) == result  # by its key it is still found


def test_a_damaged_fingerprint_is_a_miss(cache: Cache) -> None:
    made(cache)
    cache.fingerprints.put(FP, KEY)
    (cache.root / "fp" / FP.hex()[:2] / FP.hex()).write_bytes(b"\xff\0")
    assert cache.fingerprints.get(FP) is None
    cache.fingerprints.put(FP, KEY)
    assert cache.fingerprints.get(FP) is not None


# Labels and refs

LABELS = ["//exp:tiny", "//:a", "//a b:c#d", "//é:ü", "//" + "long/" * 100 + ":x", "//" + "long/" * 100 + ":y"]


def test_history_of_labels(cache: Cache) -> None:
    for n, label in enumerate(LABELS):
        for m in range(3):
            cache.labels.append(label, "a@dev", Digest.of(b"%d" % m), FP, "ann", "box", float(n + m))
    for n, label in enumerate(LABELS):
        history = cache.labels.history(label)
        assert [record.key for record in history] == [Digest.of(b"%d" % m) for m in range(3)]
        assert cache.labels.latest(label) == history[-1]
        assert (history[-1].user, history[-1].host, history[-1].time) == ("ann", "box", n + 2.0)
    assert sorted(cache.labels.labels()) == sorted(LABELS)
    assert cache.labels.history("//no:thing") == []
    assert cache.labels.latest("//no:thing") is None


def test_a_torn_line_spoils_no_other(cache: Cache) -> None:
    cache.labels.append("//a:b", "", KEY, FP, "ann", "box", 1.0)
    (path,) = (cache.root / "labels").iterdir()
    path.write_bytes(path.read_bytes() + b'\n{"label": "//a:b", "art')
    cache.labels.append("//a:b", "", KEY, FP, "ann", "box", 2.0)
    assert [record.time for record in cache.labels.history("//a:b")] == [1.0, 2.0]


def test_refs_move(cache: Cache) -> None:
    for name in ("corpus@dev", "a/b@1.0", "x@" + "9" * 300):
        assert cache.refs.get(name) is None
        cache.refs.put(name, b"1" * 32)
        cache.refs.put(name, b"2" * 32, "//a:b")
        assert cache.refs.get(name) == b"2" * 32
        assert cache.refs.ref(name).label == "//a:b"  # type: ignore[union-attr]
    assert len(list(cache.refs.all())) == 3


def test_of_many_who_publish_at_once_the_first_wins(cache: Cache) -> None:
    refs = [Ref("a/b@2026.01.31", bytes([n]) * 32, f"//a:{n}", True, KEY, "ann", "box", float(n)) for n in range(8)]
    with ThreadPoolExecutor(len(refs)) as pool:
        standing = set(pool.map(cache.refs.publish, refs))
    assert len(standing) == 1 and standing <= set(refs)
    [first] = standing
    assert cache.refs.publish(refs[0]) == first == cache.refs.ref(first.name) == cache.refs.find(first.name)
    cache.refs.put(first.name, b"9" * 32)
    assert cache.refs.ref(first.name) == first and list(cache.refs.all()) == [first]
    assert is_among(first.name, cache.refs.published_names()) and not is_among("a/b@dev", cache.refs.published_names())
    assert not list((cache.root / "tmp").iterdir())


def test_small_files_on_a_full_disk(tmp_path: Path) -> None:
    failing = False

    def before(call: str) -> None:
        if failing and call in ("write", "append"):
            raise OSError(28, os.strerror(28))

    cache = open_cache(tmp_path / "cache", FaultyDisk(before))
    cache.refs.put("a@1", b"1" * 32)
    failing = True
    for write in (
        lambda: cache.refs.put("a@1", b"2" * 32),
        lambda: cache.fingerprints.put(FP, KEY),
        lambda: cache.labels.append("//a:b", "", KEY, FP, "ann", "box", 1.0),
    ):
        with pytest.raises(EnvironmentProblem, match="the disk is full"):
            write()
    assert cache.refs.get("a@1") == b"1" * 32


# Usage, clean


def test_usage(cache: Cache) -> None:
    result = made(cache)
    cache.links.publish(Label("exp", "x"), result.outputs)
    (cache.work(KEY) / "log").write_bytes(b"12345")
    open_lease = lease(cache, Digest.of(b"other"))
    usage = stat(cache)
    record = result.outputs["out"].digest.size
    assert (usage.blobs, usage.blob_bytes) == (2, 4 + record)
    assert (usage.keys, usage.results, usage.attempts, usage.leases) == (2, 1, 0, 1)
    assert usage.trees_bytes in (0, 4)  # shared with the blob, unless the disk can only copy
    assert (usage.work_bytes, usage.scratch_bytes) == (5, 0)
    open_lease.release()
    assert list(results(cache)) == [result]


def test_a_lease_of_a_process_that_is_gone_is_no_building(cache: Cache) -> None:
    lease(cache)
    assert stat(cache).leases == 1
    held = Holder.here()
    gone = replace(held, process=replace(held.process, started=held.process.started + 1))
    cache.actions.acquire(Digest.of(b"other"), gone)
    assert (stat(cache).keys, stat(cache).leases) == (2, 1)


def test_clean_keeps_what_is_in_use_and_what_counts(cache: Cache) -> None:
    result = made(cache)
    cache.links.publish(Label("exp", "x"), result.outputs)
    (cache.work(KEY) / "left").write_bytes(b"12345")
    other = Digest.of(b"other")
    running = lease(cache, other)
    (cache.work(other) / "file").write_bytes(b"mine")
    cache.scratch(other, running.fence)
    plan = plan_clean(cache)
    assert {path.relative_to(cache.root).as_posix() for path in plan.folders} == {"out", "trees", f"work/{KEY.hex}"}
    assert [path.name for path, _ in plan.kept] == [other.hex, other.hex]
    assert plan.bytes >= 5
    clean(cache, plan)
    assert not (cache.root / "out").exists() and not (cache.root / "trees").exists()
    assert (cache.work(other) / "file").exists() and cache.scratch(other, running.fence).exists()
    assert cache.actions.result(KEY) == result
    assert (cache.links.publish(Label("exp", "x"), result.outputs)["out"] / "f").read_text() == "text"
    running.release()
    clean(cache, plan_clean(cache))
    assert list((cache.root / "work").iterdir()) == []


def test_clean_of_what_a_build_has_begun_to_use(cache: Cache) -> None:
    (cache.work(KEY) / "file").write_bytes(b"old")
    plan = plan_clean(cache)
    running = lease(cache)
    clean(cache, plan)
    assert (cache.work(KEY) / "file").exists()
    running.release()


# Scratch


def test_earlier_scratch(cache: Cache) -> None:
    fences = []
    for _ in range(4):
        with lease(cache) as held:
            fences.append(held.fence)
    for fence in (fences[0], fences[2], fences[3]):
        cache.scratch(KEY, fence)
    folder = cache.root / "scratch" / KEY.hex
    assert cache.earlier_scratch(KEY, fences[3]) == (folder / fences[2], folder / fences[0])
    assert cache.earlier_scratch(KEY, fences[0]) == ()
    cache.discard_scratch(KEY)
    assert cache.earlier_scratch(KEY, fences[3]) == ()


# Reboot


def reboot(cache: Cache) -> Cache:
    note = json.loads((cache.root / "synced").read_text())
    (cache.root / "synced").write_text(json.dumps(note | {"boot": "the boot before"}))
    return open_cache(cache.root)


def lose(cache: Cache, text: str) -> None:
    """What a power cut does to a file that was renamed before its bytes reached the disk."""
    path = cache.store.path(Digest.of(text.encode()))
    assert path is not None
    os.truncate(path, 0)


def test_after_a_reboot_lost_bytes_are_a_miss(cache: Cache) -> None:
    made(cache, text="kept")
    made(cache, Digest.of(b"2"), text="lost")
    lose(cache, "lost")
    again = reboot(cache)
    assert not again.store.contains(Digest.of(b"lost"))
    assert again.store.read(Digest.of(b"kept")) == b"kept"
    assert verify(again).ok


def test_what_was_synced_is_not_read_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    made(cache)
    cache.sync()
    note = json.loads((cache.root / "synced").read_text())
    # As if it had been a while ago.
    (cache.root / "synced").write_text(json.dumps(note | {"time_ns": note["time_ns"] + 10_000_000_000}))
    from marin_cas.cache import durable

    monkeypatch.setattr(durable, "hash_file", lambda *args, **kw: pytest.fail("read again"))
    reboot(cache)


def test_without_a_reboot_nothing_is_read(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    made(cache)
    from marin_cas.cache import durable

    monkeypatch.setattr(durable, "hash_file", lambda *args, **kw: pytest.fail("read again"))
    open_cache(cache.root)


def test_sync_is_one_call(tmp_path: Path) -> None:
    calls: list[str] = []
    cache = open_cache(tmp_path / "cache", FaultyDisk(calls.append))
    calls.clear()
    cache.sync()
    assert calls.count("sync") == 1
    DISK.sync(cache.root)


def test_opening_imports_nothing_heavy(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom marin_cas.cache.cache import open_cache\n"
        f"open_cache({str(tmp_path / 'cache')!r})\n"
        "heavy = {'sqlite3', 'rich', 'click', 'jax', 'pyarrow', 'starlark', 'asyncio'} & set(sys.modules)\n"
        "raise SystemExit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
