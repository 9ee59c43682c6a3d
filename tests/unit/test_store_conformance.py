"""One suite for every Store: what the protocol promises, held against each implementation and wrapper."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_cas.digest import Digest, hash_file
from marin_cas.errors import EnvironmentProblem, IntegrityError
from marin_cas.store.base import Store, Unavailable
from marin_cas.store.memory import MemoryStore
from tests.unit import store_cases
from tests.unit.store_cases import BLOBS, CASES, Case, work


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return CASES[request.param](tmp_path)


def test_it_is_a_store(case: Case) -> None:
    assert isinstance(case.store, Store)


def test_absence_is_a_value(case: Case, tmp_path: Path) -> None:
    absent = Digest.of(b"absent")
    assert case.store.contains(absent) is False
    assert case.store.read(absent) is None
    assert case.store.path(absent) is None
    assert case.store.path(absent, executable=True) is None
    assert case.store.fetch(absent, tmp_path / "copy") is False
    assert not (tmp_path / "copy").exists()
    assert case.store.missing([absent]) == {absent}
    case.into.delete(absent)


@pytest.mark.parametrize("data", [b"", b"x", b"a" * 3_000_000], ids=["empty", "one-byte", "3-MB"])
def test_what_is_put_is_read(case: Case, data: bytes) -> None:
    digest = case.into.put(data)
    assert digest == Digest.of(data)
    assert case.store.contains(digest)
    assert case.store.read(digest) == data
    assert case.store.read(digest) == data
    assert case.into.put(data) == digest
    assert case.store.contains(digest)


def test_missing_is_asked_in_one_batch(case: Case) -> None:
    here = [case.into.put(b"%d" % n) for n in range(5)]
    gone = {Digest.of(b"no"), Digest.of(b"nor this")}
    assert case.store.missing(digest for digest in [*here, *gone, *here, *gone]) == gone
    assert case.store.missing([]) == set()


@pytest.mark.parametrize("executable", [False, True], ids=["plain", "executable"])
@pytest.mark.parametrize("move", [True, False], ids=["move", "copy"])
@pytest.mark.parametrize("size", [0, 100, 3_000_000])
def test_put_file(case: Case, tmp_path: Path, move: bool, size: int, executable: bool) -> None:
    data = os.urandom(size)
    source = tmp_path / "source"
    source.write_bytes(data)
    assert case.into.put_file(source, move=move, executable=executable) == Digest.of(data)
    assert source.exists() is not move
    assert case.store.contains(Digest.of(data))
    assert case.store.read(Digest.of(data)) == data


def test_put_file_twice_takes_the_file_both_times(case: Case, tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "source").write_bytes(b"same")
        case.into.put_file(tmp_path / "source", move=True)
        assert not (tmp_path / "source").exists()
    assert case.store.read(Digest.of(b"same")) == b"same"


@pytest.mark.parametrize("move", [True, False], ids=["move", "copy"])
def test_put_file_of_what_is_no_file(case: Case, tmp_path: Path, move: bool) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("absent", "folder"):
        with pytest.raises(EnvironmentProblem, match=name):
            case.into.put_file(tmp_path / name, move=move)
    assert (tmp_path / "folder").is_dir()


def test_a_store_that_refuses_has_done_nothing(case: Case, tmp_path: Path) -> None:
    if case.writes or case.store is case.into:
        return
    digest = case.into.put(b"here")
    (tmp_path / "file").write_bytes(b"new")
    try:
        case.store.put(b"new")
        case.store.put_file(tmp_path / "file", move=True)
    except EnvironmentProblem as refusal:
        assert not isinstance(refusal, Unavailable)
        assert (tmp_path / "file").read_bytes() == b"new"
    assert not case.into.contains(Digest.of(b"new"))
    assert case.into.contains(digest)


def test_path_has_the_mode_asked_for(case: Case) -> None:
    digest = case.into.put(b"#!/bin/sh\n")
    plain, executable = case.store.path(digest), case.store.path(digest, executable=True)
    if isinstance(case.base, MemoryStore) and case.writes:
        assert plain is None and executable is None
        return
    assert plain is not None and executable is not None
    assert plain.stat().st_mode & 0o777 == 0o444
    assert executable.stat().st_mode & 0o777 == 0o555
    assert plain.read_bytes() == executable.read_bytes() == b"#!/bin/sh\n"


@pytest.mark.parametrize("size", [0, 100, 3_000_000])
def test_fetch_makes_a_private_file(case: Case, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "source").write_bytes(data)
    digest = case.into.put_file(tmp_path / "source", move=True, executable=True)
    copy = tmp_path / "copy"
    assert case.store.fetch(digest, copy) is True
    assert copy.read_bytes() == data
    assert copy.stat().st_mode & 0o777 == 0o644
    copy.write_bytes(b"mine")
    assert case.store.read(digest) == data


def test_fetch_leaves_what_is_there(case: Case, tmp_path: Path) -> None:
    digest = case.into.put(b"bytes")
    (tmp_path / "copy").write_bytes(b"mine")
    with pytest.raises(EnvironmentProblem, match="copy"):
        case.store.fetch(digest, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"mine"
    with pytest.raises(EnvironmentProblem, match="nowhere"):
        case.store.fetch(digest, tmp_path / "nowhere" / "copy")


def test_delete_forgets_both_modes(case: Case) -> None:
    if not case.deletes:
        return
    digest = case.into.put(b"bytes")
    case.store.path(digest, executable=True)
    case.into.delete(digest)
    assert not case.store.contains(digest)
    assert case.store.read(digest) is None
    assert case.store.path(digest, executable=True) is None
    case.into.put(b"bytes")
    assert case.store.read(digest) == b"bytes"


READS: dict[str, Callable[[Store, Digest, Path], object]] = {
    "read": lambda store, digest, copy: store.read(digest),
    "path": lambda store, digest, copy: store.path(digest),
    "executable": lambda store, digest, copy: store.path(digest, executable=True),
    "fetch": lambda store, digest, copy: store.fetch(digest, copy),
}


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize("wrong", [b"", b"hell", b"hellO", b"hello, longer"], ids=["empty", "short", "flipped", "long"])
def test_wrong_bytes_are_never_handed_out(case: Case, tmp_path: Path, verb: str, wrong: bytes) -> None:
    digest = case.into.put(b"hello")
    case.damage(digest, wrong)
    try:
        assert not READS[verb](case.store, digest, tmp_path / "copy")
    except IntegrityError as error:
        assert digest.short in error.message
    assert not (tmp_path / "copy").exists()
    case.into.put(b"hello")
    if case.writes:  # a store below that gave wrong bytes once may be left alone
        assert case.store.read(digest) == b"hello"


LARGE = 48 << 20


def test_large_blobs_are_never_in_memory(case: Case, tmp_path: Path) -> None:
    if isinstance(case.base, MemoryStore):
        return
    with (tmp_path / "large").open("wb") as file:
        file.write(b"x")
        file.truncate(LARGE)
    tracemalloc.start()
    try:
        digest = case.into.put_file(tmp_path / "large", move=False)
        assert case.store.fetch(digest, tmp_path / "copy")
        assert case.store.path(digest) is not None
        case.into.put_file(tmp_path / "large", move=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < LARGE / 4
    assert digest == hash_file(tmp_path / "copy")


# Several at once


def test_threads(case: Case, tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            work(case, tmp_path, seed, 60)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    for data in BLOBS:
        case.into.put(data)
    assert [case.store.read(Digest.of(data)) for data in BLOBS] == BLOBS


ON_DISK = ["local", "local-with-a-gate", "verifying", "read-only", "layered-top", "layered-files-below"]


@pytest.mark.parametrize("name", ON_DISK)
def test_processes(name: str, tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)}
    processes = [
        subprocess.Popen(
            [sys.executable, store_cases.__file__, name, str(tmp_path), str(seed)],
            env=environ,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()  # what each waits for
        process.stdin = None
    assert [process.communicate()[1] for process in processes] == [""] * 4
    assert [process.returncode for process in processes] == [0] * 4
    again = CASES[name](tmp_path)
    for data in BLOBS:
        again.into.put(data)
    assert [again.store.read(Digest.of(data)) for data in BLOBS] == BLOBS
