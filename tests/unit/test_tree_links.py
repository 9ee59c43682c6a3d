"""Hard links where they end: too many of them, other file systems, executables, and people who write through them."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.verify import verify
from marin_cas.digest import Digest
from marin_cas.errors import IntegrityError
from marin_cas.label import Label
from marin_cas.recipe import FILE, TREE
from marin_cas.result import Output
from marin_cas.store.local import SEALED_NS, LocalStore
from marin_cas.tree.entries import FileEntry, Tree
from marin_cas.tree.export import export
from marin_cas.tree.ingest import ingest
from marin_cas.tree.materialise import materialise
from marin_cas.tree.whole import is_whole

MANY = 70_000  # ext4 allows 65,000 names of one file
LABEL = Label("exp", "x")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return open_cache(tmp_path / "cache")


def test_seventy_thousand_links_to_one_small_file(cache: Cache, tmp_path: Path) -> None:
    store = cache.store
    blob = store.put(b"same")
    tree = Tree.of(FileEntry(f"{n:05}", blob) for n in range(MANY))
    digest = store.put(tree.record())
    cache.links.publish(LABEL, {"out": Output(TREE, digest)})
    found = Counter()
    with os.scandir(cache.root / "out/exp/x") as entries:
        for entry in entries:
            st = entry.stat(follow_symlinks=False)
            found[st.st_nlink > 1, st.st_size, st.st_mtime_ns, st.st_mode & 0o777] += 1
    assert sum(found.values()) == MANY
    assert set(found) <= {(linked, 4, SEALED_NS, 0o444) for linked in (True, False)}
    if os.pathconf(cache.root, "PC_LINK_MAX") < MANY:
        assert {linked for linked, *_ in found} == {True, False}
    # The blob at its limit is a blob like any other.
    assert store.read(blob) == b"same"
    assert store.path(blob, executable=True) is not None
    materialise(store, FILE, blob, tmp_path / "one more")
    assert (tmp_path / "one more").read_bytes() == b"same"
    assert is_whole(store, TREE, digest, str((cache.root / "out/exp/x").resolve()))


# A cache on another file system than what it is used with, both ways


@pytest.fixture
def other() -> Iterator[Path]:
    """A folder on a file system other than that of temporary folders."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize("cache_is_there", [True, False], ids=["cache-in-memory", "work-in-memory"])
def test_two_file_systems(tmp_path: Path, other: Path, cache_is_there: bool) -> None:
    assert other.stat().st_dev != tmp_path.stat().st_dev
    root, place = (other, tmp_path) if cache_is_there else (tmp_path, other)
    store = LocalStore(root / "cas")
    (place / "made").mkdir()
    (place / "made/data").write_bytes(b"d" * 100_000)
    (place / "made/run").write_bytes(b"#!/bin/sh\n")
    (place / "made/run").chmod(0o755)
    taken = ingest(store, place / "made", move=True)
    assert os.listdir(place / "made") == []
    materialise(store, TREE, taken.digest, place / "copy")
    assert (place / "copy/data").read_bytes() == b"d" * 100_000
    assert (place / "copy/data").stat().st_mode & 0o777 == 0o444 and os.access(place / "copy/run", os.X_OK)
    assert is_whole(store, TREE, taken.digest, str(place / "copy"))
    export(store, TREE, taken.digest, place / "mine")
    (place / "mine/data").write_bytes(b"changed")
    assert ingest(store, place / "copy", move=False).digest == taken.digest


# Executables


def test_the_two_modes_of_a_blob_never_share_an_inode(cache: Cache, tmp_path: Path) -> None:
    digest = cache.store.put(b"#!/bin/sh\n")
    tree = Tree.of([FileEntry("plain", digest), FileEntry("run", digest, executable=True)])
    materialise(cache.store, TREE, cache.store.put(tree.record()), tmp_path / "t")
    plain, run = (tmp_path / "t/plain").stat(), (tmp_path / "t/run").stat()
    assert (plain.st_mode & 0o777, run.st_mode & 0o777) == (0o444, 0o555)
    assert plain.st_ino != run.st_ino
    # Damage to one of them is damage to that one.
    (tmp_path / "t/run").chmod(0o755)
    (tmp_path / "t/run").write_bytes(b"#!/bin/rm\n")
    if run.st_nlink > 1:
        assert [wrong.path[-2:] for wrong in verify(cache).wrong] == [".x"]
        with pytest.raises(IntegrityError, match=digest.short):
            cache.store.path(digest, executable=True)
    assert cache.store.path(digest) is not None


# People who write through


def write_through(path: Path, data: bytes) -> None:
    """What root can do at once, and others after a chmod."""
    mode = path.stat().st_mode & 0o777
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(data)
    path.chmod(mode)


@pytest.mark.parametrize("size", [10, 20 << 20], ids=["small", "big"])
def test_a_file_that_somebody_wrote_to_in_out_is_made_right_or_refused(cache: Cache, size: int) -> None:
    digest = cache.store.put(bytes(size))
    outputs = {"out": Output(FILE, digest)}
    place = cache.links.publish(LABEL, outputs)["out"]
    shared = place.stat().st_nlink > 1
    assert place.stat().st_mode & 0o222 == 0
    assert not (shared and size == 10)  # what an editor opens is never the store's own file
    write_through(place.resolve(), b"edited")
    if shared:
        with pytest.raises(IntegrityError, match=digest.short):
            cache.links.publish(LABEL, outputs)
        assert [wrong.digest for wrong in verify(cache, repair=True).wrong] == [digest.hex]
        cache.store.put(bytes(size))
    assert cache.links.publish(LABEL, outputs)["out"].read_bytes() == bytes(size)
    assert cache.store.read(digest) == bytes(size)
    assert verify(cache).ok


def test_a_tree_that_somebody_changed_in_out_is_laid_out_again(cache: Cache, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"made/{name}").mkdir(parents=True)
        (tmp_path / f"made/{name}/f").write_bytes(name.encode())
    digest = ingest(cache.store, tmp_path / "made", move=True).digest
    outputs = {"out": Output(TREE, digest)}
    place = cache.links.publish(LABEL, outputs)["out"]
    before = place.resolve().stat().st_ino
    cache.links.publish(LABEL, outputs)
    assert place.resolve().stat().st_ino == before
    (place / "a/f").unlink()
    (place / "b/mine").write_bytes(b"mine")
    cache.links.publish(LABEL, outputs)
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*")) == ["a", "a/f", "b", "b/f"]
    assert not list((cache.root / "tmp").iterdir())


def test_a_write_through_is_noticed_before_anyone_gets_the_bytes(cache: Cache, tmp_path: Path) -> None:
    digest = cache.store.put(b"right bytes")
    blob = cache.store.path(digest)
    assert blob is not None
    write_through(blob, b"wrong")
    for executable in (False, True):
        with pytest.raises(IntegrityError, match=digest.short):
            cache.store.path(digest, executable)
    with pytest.raises(IntegrityError, match=digest.short):
        materialise(cache.store, FILE, digest, tmp_path / "f")
    assert [wrong.digest for wrong in verify(cache).wrong] == [digest.hex]
    assert not (tmp_path / "f").exists()


def test_who_gives_the_time_back_is_found_by_verify_alone(cache: Cache) -> None:
    digest = cache.store.put(b"right bytes")
    blob = cache.store.path(digest)
    assert blob is not None
    write_through(blob, b"wrong")
    os.utime(blob, ns=(SEALED_NS, SEALED_NS))
    assert cache.store.path(digest) == blob
    assert [wrong.digest for wrong in verify(cache).wrong] == [digest.hex]


def test_a_blob_that_was_only_touched_is_fine(cache: Cache) -> None:
    digest = cache.store.put(b"right bytes")
    blob = cache.store.path(digest)
    assert blob is not None
    os.utime(blob)
    assert cache.store.path(digest) == blob and blob.stat().st_mtime_ns == SEALED_NS
    assert Digest.of(blob.read_bytes()) == digest
