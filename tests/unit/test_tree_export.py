"""Private copies outside the cache: whole under their names or not there at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_cas.digest import Digest
from marin_cas.errors import EnvironmentProblem, IntegrityError, RequestError
from marin_cas.recipe import FILE, TREE
from marin_cas.store.base import MissingBlob
from marin_cas.store.faulty import FaultyDisk
from marin_cas.store.local import LocalStore
from marin_cas.tree.export import export
from marin_cas.tree.ingest import ingest


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "cas")


@pytest.fixture
def tree(store: LocalStore, tmp_path: Path) -> Digest:
    made = tmp_path / "made"
    (made / "deep").mkdir(parents=True)
    (made / "a").write_bytes(b"a")
    (made / "deep/run").write_bytes(b"run")
    (made / "deep/run").chmod(0o755)
    (made / "link").symlink_to("deep/run")
    return ingest(store, made, move=True).digest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def content(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


WHOLE = {"a": b"a", "deep/run": b"run", "link": "deep/run"}


def test_copies_are_private_and_writable(store: LocalStore, tree: Digest, place: Path) -> None:
    export(store, TREE, tree, place / "copy")
    assert content(place / "copy") == WHOLE
    (place / "copy/a").write_bytes(b"mine")
    (place / "copy/deep/new").write_bytes(b"")
    assert store.read(Digest.of(b"a")) == b"a"
    assert os.access(place / "copy/deep/run", os.X_OK)
    assert os.listdir(place) == ["copy"]


@pytest.mark.parametrize(("umask", "mode", "executable"), [(0o022, 0o644, False), (0o077, 0o700, True)])
def test_a_file_has_the_modes_that_its_owner_wants(
    store: LocalStore, place: Path, umask: int, mode: int, executable: bool
) -> None:
    digest = store.put(b"data")
    before = os.umask(umask)
    try:
        export(store, FILE, digest, place / "f", executable=executable)
    finally:
        os.umask(before)
    assert (place / "f").stat().st_mode & 0o777 == mode
    assert (place / "f").stat().st_nlink == 1


def test_what_exists_is_refused(store: LocalStore, tree: Digest, place: Path) -> None:
    digest = store.put(b"data")
    (place / "folder").mkdir()
    (place / "file").write_bytes(b"mine")
    (place / "dangling").symlink_to("nowhere")
    for name in ("folder", "file", "dangling"):
        for kind, what in ((FILE, digest), (TREE, tree)):
            with pytest.raises(RequestError, match=f"`{place}/{name}` exists") as caught:
                export(store, kind, what, place / name)
            assert "--force" in str(caught.value.hint)
    assert (place / "file").read_bytes() == b"mine" and len(os.listdir(place)) == 3


def test_a_missing_folder_is_named(store: LocalStore, place: Path) -> None:
    with pytest.raises(RequestError, match="nowhere` does not exist"):
        export(store, FILE, store.put(b"data"), place / "nowhere/f")


def test_a_name_taken_meanwhile_is_not_overwritten(store: LocalStore, place: Path) -> None:
    def before(call: str) -> None:
        if call == "link":
            (place / "f").write_bytes(b"theirs")

    with pytest.raises(RequestError, match="exists"):
        export(store, FILE, store.put(b"data"), place / "f", disk=FaultyDisk(before))
    assert content(place) == {"f": b"theirs"}


def test_where_there_are_no_second_names(store: LocalStore, place: Path) -> None:
    def before(call: str) -> None:
        if call == "link":
            raise OSError(errno.EPERM, "not here")

    export(store, FILE, store.put(b"data"), place / "f", disk=FaultyDisk(before))
    assert content(place) == {"f": b"data"}


OLD: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "file": lambda path: path.write_bytes(b"old"),
    "folder": lambda path: (path.mkdir(), (path / "old").write_bytes(b"old")),
    "link": lambda path: path.symlink_to("elsewhere"),
}


@pytest.mark.parametrize("old", OLD)
@pytest.mark.parametrize("kind", [FILE, TREE])
def test_force_replaces(store: LocalStore, tree: Digest, place: Path, kind: str, old: str) -> None:
    (place / "elsewhere").mkdir()
    OLD[old](place / "x")
    digest = store.put(b"data") if kind == FILE else tree
    export(store, kind, digest, place / "x", replace=True)
    if kind == FILE:
        assert (place / "x").read_bytes() == b"data"
    else:
        assert content(place / "x") == WHOLE
    assert sorted(os.listdir(place)) == ["elsewhere", "x"]
    assert not os.listdir(place / "elsewhere")


def test_force_never_takes_along_what_must_stay(store: LocalStore, tree: Digest, place: Path) -> None:
    (place / "work/cache").mkdir(parents=True)
    (place / "alias").symlink_to("work")
    for dest in (place, place / "work", place / "work/cache"):
        with pytest.raises(RequestError, match="is not replaced"):
            export(store, TREE, tree, dest, replace=True, keep=[place / "alias/cache"])
    export(store, TREE, tree, place / "other", replace=True, keep=[place / "work/cache"])


@pytest.mark.parametrize("damage", ["wrong", "missing"])
@pytest.mark.parametrize("kind", [FILE, TREE])
def test_nothing_is_left_of_what_is_not_right(
    store: LocalStore, tree: Digest, place: Path, kind: str, damage: str
) -> None:
    (place / "x").write_bytes(b"old")
    digest = Digest.of(b"run")
    blob = store.path(digest, executable=True)
    assert blob is not None
    before = blob.stat()
    if damage == "missing":
        store.delete(digest)
    else:
        blob.chmod(0o755)
        blob.write_bytes(b"RUN")
        os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))  # no seal is broken: only hashing tells
    for dest in ("x", "y"):
        with pytest.raises(MissingBlob if damage == "missing" else IntegrityError, match=digest.short):
            export(store, kind, digest if kind == FILE else tree, place / dest, replace=dest == "x")
    assert content(place) == {"x": b"old"}


@pytest.mark.parametrize("old", ["nothing", "file", "folder"])
@pytest.mark.parametrize("kind", [FILE, TREE])
def test_after_any_failing_call_the_old_is_there(
    store: LocalStore, tree: Digest, place: Path, kind: str, old: str
) -> None:
    digest = store.put(b"data") if kind == FILE else tree
    made = {"x": b"data"} if kind == FILE else {f"x/{name}": data for name, data in WHOLE.items()}
    for n in range(1, 60):
        here, left = place / str(n), n
        here.mkdir()
        OLD[old](here / "x")
        kept = content(here)

        def before(call: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        try:
            export(store, kind, digest, here / "x", replace=old != "nothing", disk=FaultyDisk(before))
        except EnvironmentProblem as problem:
            assert "full" in problem.message
            # What could not be removed in the end is left beside it.
            assert {name: data for name, data in content(here).items() if not name.startswith(".")} in (kept, made)
        else:
            assert content(here) == made
            if left > 0:
                return
    pytest.fail("never ran through")
