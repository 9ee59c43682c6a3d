"""One suite for every Store: what the protocol promises, held against each implementation and wrapper."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marin_cas.digest import Digest
from marin_cas.errors import EnvironmentProblem
from marin_cas.store.base import Store
from marin_cas.store.faulty import FaultyStore
from marin_cas.store.local import LocalStore
from marin_cas.store.memory import MemoryStore
from marin_cas.store.read_only import ReadOnlyStore

WRITABLE = ("local", "memory", "faulty that never fails")


@pytest.fixture(params=WRITABLE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "local":
            return LocalStore(tmp_path / "cas")
        case "memory":
            return MemoryStore()
    return FaultyStore(LocalStore(tmp_path / "cas"), lambda verb: None)


def test_absence_is_a_value(store: Store) -> None:
    absent = Digest.of(b"absent")
    assert not store.contains(absent)
    assert store.read(absent) is None
    assert store.path(absent) is None
    assert store.missing([absent]) == {absent}
    store.delete(absent)


@pytest.mark.parametrize("data", [b"", b"x", b"a" * 3_000_000], ids=["empty", "one byte", "3 MB"])
def test_what_is_put_is_read(store: Store, data: bytes) -> None:
    digest = store.put(data)
    assert digest == Digest.of(data)
    assert store.contains(digest)
    assert store.read(digest) == data
    assert store.put(data) == digest
    assert store.missing([digest, Digest.of(b"no")]) == {Digest.of(b"no")}


@pytest.mark.parametrize("move", [True, False])
@pytest.mark.parametrize("size", [0, 100, 3_000_000])
def test_put_file(store: Store, tmp_path: Path, move: bool, size: int) -> None:
    data = os.urandom(size)
    source = tmp_path / "source"
    source.write_bytes(data)
    assert store.put_file(source, move=move) == Digest.of(data)
    assert source.exists() is not move
    assert store.read(Digest.of(data)) == data


def test_put_file_twice_takes_the_file_both_times(store: Store, tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "source").write_bytes(b"same")
        store.put_file(tmp_path / "source", move=True)
        assert not (tmp_path / "source").exists()
    assert store.read(Digest.of(b"same")) == b"same"


def test_put_file_of_what_is_not_there(store: Store, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="nowhere"):
        store.put_file(tmp_path / "nowhere", move=True)


def test_path_has_the_mode_asked_for(store: Store) -> None:
    digest = store.put(b"#!/bin/sh\n")
    plain, executable = store.path(digest), store.path(digest, executable=True)
    if plain is None or executable is None:
        assert isinstance(store, MemoryStore)
        return
    assert plain.stat().st_mode & 0o777 == 0o444
    assert executable.stat().st_mode & 0o777 == 0o555
    assert plain.read_bytes() == executable.read_bytes() == b"#!/bin/sh\n"


def test_delete_forgets_both_modes(store: Store) -> None:
    digest = store.put(b"bytes")
    store.path(digest, executable=True)
    store.delete(digest)
    assert not store.contains(digest)
    assert store.read(digest) is None
    assert store.path(digest, executable=True) is None


def test_read_only_reads_and_refuses_writes(tmp_path: Path) -> None:
    inner = MemoryStore()
    digest = inner.put(b"here")
    store: Store = ReadOnlyStore(inner, "shared store")
    assert store.read(digest) == b"here"
    assert store.contains(digest)
    assert store.missing([digest]) == set()
    (tmp_path / "file").write_bytes(b"new")
    for write in (
        lambda: store.put(b"new"),
        lambda: store.put_file(tmp_path / "file", move=True),
        lambda: store.delete(digest),
    ):
        with pytest.raises(EnvironmentProblem, match="`shared store` is read-only"):
            write()
    assert inner.blobs == {digest: b"here"}
    assert (tmp_path / "file").exists()
