"""What is looked at after a reboot, and what is not; tests/faults/ replays whole power cuts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from marin_cas.cache import durable
from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.entry import UNREADABLE
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease
from marin_cas.digest import Digest
from marin_cas.result import Output, Producer, Result
from marin_cas.store.process import this_process

KEY = Digest.of(b"a recipe")
FP = b"f" * 32
HOUR_NS = 3600 * 10**9


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return open_cache(tmp_path / "cache")


def publish(cache: Cache, text: str) -> Path:
    """A result, chosen from now on; the file of its entry."""
    result = Result(
        KEY, FP, "exact", {"out": Output("file", cache.store.put(text.encode()))}, Producer("a", "b"), 1.0, 2.0
    )
    lease = cache.actions.acquire(KEY, Holder.here(), force=True)
    assert isinstance(lease, Lease)
    lease.publish(result, replace=True)
    return cache.root / "ac" / KEY.hex[:2] / KEY.hex / str(cache.actions.standing(KEY).n)


def note(cache: Cache) -> dict:
    return json.loads((cache.root / "synced").read_text())


def reboot(cache: Cache, **fields: object) -> Cache:
    """Opens it as after another boot, with what the note of the last sync says changed."""
    (cache.root / "synced").write_text(json.dumps({**note(cache), "boot": "the boot before", **fields}))
    return open_cache(cache.root)


LATER = {"time_ns": 1 << 62}


def test_a_record_that_was_cut_short_goes_and_its_number_is_free_again(cache: Cache) -> None:
    publish(cache, "first")
    last = publish(cache, "second")
    last.write_bytes(last.read_bytes()[:20])
    after = reboot(cache)
    assert [entry.state for entry in after.actions.entries(KEY.hex)] == ["leased", "done", "leased"]
    assert publish(after, "third").name == "5"
    assert after.actions.result(KEY) is not None


def test_a_record_that_is_older_than_the_last_sync_is_no_work_of_a_power_cut(cache: Cache) -> None:
    last = publish(cache, "first")
    last.write_bytes(b"")
    after = reboot(cache, **LATER)
    assert after.actions.entries(KEY.hex)[-1].state == UNREADABLE


@pytest.mark.parametrize("young", [True, False])
def test_a_fingerprint_that_was_not_flushed_is_forgotten(cache: Cache, young: bool) -> None:
    publish(cache, "first")
    cache.fingerprints.put(FP, KEY)
    after = reboot(cache, **({} if young else LATER))
    assert (after.fingerprints.key(FP) is None) == young
    assert after.actions.result(KEY) is not None


def test_the_notice_of_a_replaced_result_is_given_again(cache: Cache) -> None:
    publish(cache, "first")
    publish(cache, "second")
    (cache.root / "ac/changed").unlink()
    assert KEY.hash in reboot(cache).actions.changed_keys()


def test_without_a_replacement_there_is_none(cache: Cache) -> None:
    publish(cache, "first")
    assert reboot(cache).actions.changed_keys() == frozenset()


def test_a_blob_that_cannot_be_read_does_not_keep_the_cache_shut(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(cache, "first")

    def broken(path: str, *, exclusive: bool = False) -> Digest:
        raise OSError(5, os.strerror(5), path)

    monkeypatch.setattr(durable, "hash_file", broken)
    assert reboot(cache).store.contains(Digest.of(b"first"))


@pytest.mark.parametrize("text", ["", "\0" * 40, "[]", "{}", '{"boot": "x", "time_ns": 1e999}', '{"boot": "x"', "5"])
def test_with_a_damaged_note_everything_is_looked_at(cache: Cache, text: str) -> None:
    publish(cache, "lost")
    cache.sync()
    path = cache.store.path(Digest.of(b"lost"))
    assert path is not None
    os.truncate(path, 1)
    (cache.root / "synced").write_text(text)
    assert not open_cache(cache.root).store.contains(Digest.of(b"lost"))
    assert note(cache)["boot"] == this_process().boot


def test_a_clock_that_was_set_back_hides_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synced by a clock that was an hour fast; what is written after it was set right looks older than that."""
    cache.sync()
    (cache.root / "synced").write_text(json.dumps({**note(cache), "time_ns": note(cache)["time_ns"] + HOUR_NS}))
    again = open_cache(cache.root)
    publish(again, "lost")
    path = again.store.path(Digest.of(b"lost"))
    assert path is not None
    os.truncate(path, 1)
    assert not reboot(again).store.contains(Digest.of(b"lost"))


def test_nor_does_one_that_starts_in_the_past(cache: Cache) -> None:
    """A machine without a battery: the boot after a power cut begins in another year."""
    cache.sync()
    after = reboot(cache, time_ns=note(cache)["time_ns"] + HOUR_NS)
    publish(after, "lost")
    path = after.store.path(Digest.of(b"lost"))
    assert path is not None
    os.truncate(path, 1)
    assert not reboot(after).store.contains(Digest.of(b"lost"))


def test_a_lease_of_the_boot_before_is_free_at_once(cache: Cache) -> None:
    here = Holder.here()
    gone = replace(here, process=replace(here.process, boot="the boot before"))
    assert isinstance(cache.actions.acquire(KEY, gone), Lease)
    waits: list[object] = []
    assert isinstance(cache.actions.acquire(KEY, here, on_wait=lambda *args: waits.append(args)), Lease)
    assert not waits
