"""Workspace files: hashed with two looks, copied into the store, never trusted to hold still."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from marin_cas.action import Source
from marin_cas.digest import Digest
from marin_cas.errors import BuildError, RequestError
from marin_cas.store.local import LocalStore
from marin_cas.store.memory import MemoryStore
from marin_cas.tree import sources
from marin_cas.tree.ingest import ingest
from marin_cas.tree.sources import hash_file_source, put_source, tree_of
from marin_cas.tree.walk import files, first_missing


class Counting:
    """A stat cache that trusts every stat, however young, and counts what it is told."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], Digest] = {}

    def digest_of(self, path: str, st: os.stat_result) -> Digest | None:
        return self.known.get((st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns))

    def digests_of(self, looks: Sequence[os.stat_result]) -> list[Digest | None]:
        return [self.digest_of("", st) for st in looks]

    def remember(self, path: str, st: os.stat_result, digest: Digest, taken_ns: int) -> None:
        self.known[(st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)] = digest


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, 9 << 20])
def test_hash(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    assert hash_file_source(tmp_path, "f") == Digest.of(data)


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"text")
    (tmp_path / "l").symlink_to("f")
    assert hash_file_source(tmp_path, "l") == Digest.of(b"text")


@pytest.mark.parametrize(("name", "why"), [("none", "does not exist"), ("d", "is a folder"), ("p", "not a regular")])
def test_what_is_no_source(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "p")
    with pytest.raises(RequestError, match=f"`{name}` .*{why}"):
        hash_file_source(tmp_path, name)


def test_known_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats = Counting()
    (tmp_path / "f").write_bytes(b"text")
    digest = hash_file_source(tmp_path, "f", stats)
    assert len(stats.known) == 1
    monkeypatch.setattr(sources, "_hash", lambda path, relpath: pytest.fail("read again"))
    assert hash_file_source(tmp_path, "f", stats) == digest


def test_a_file_that_never_holds_still_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sources._hash
    (tmp_path / "f").write_bytes(b"text")

    def hash_and_touch(path: str, relpath: str) -> object:
        with (tmp_path / "f").open("ab") as file:
            file.write(b"more")
        return real(path, relpath)

    monkeypatch.setattr(sources, "_hash", hash_and_touch)
    with pytest.raises(BuildError, match="`f` changed while"):
        hash_file_source(tmp_path, "f")


def test_a_file_truncated_while_it_is_read_ends_well(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(os.urandom(8 << 20))
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            os.truncate(path, 0)
            os.truncate(path, 8 << 20)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(5):
            try:
                hash_file_source(tmp_path, "f")
            except BuildError as error:
                assert "changed while" in error.message
    finally:
        stop.set()
        thread.join()


def test_tree_of_is_pure_and_equals_an_ingest(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "data/deep").mkdir(parents=True)
    (root / "data/a").write_bytes(b"a")
    (root / "data/deep/b").write_bytes(b"b")
    (root / "data/deep/b").chmod(0o755)
    paths, names = ["data/a", "data/deep/b"], ["a", "deep/b"]
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    digest = tree_of(root, paths, names)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    store = MemoryStore()
    assert tree_of(root, paths, names, store=store) == digest
    assert [(path, entry.executable) for path, entry in files(store, digest)] == [("a", False), ("deep/b", True)]
    assert ingest(MemoryStore(), root / "data", move=False).digest == digest


def test_two_files_for_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(RequestError, match="`a` and `b` would both be `x`"):
        tree_of(tmp_path, ["a", "b"], ["x", "x"])
    with pytest.raises(RequestError, match="both a file and a folder"):
        tree_of(tmp_path, ["a", "b"], ["x", "x/y"])


def test_put_source_copies(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    root = tmp_path / "root"
    root.mkdir()
    for name in ("a", "b"):
        (root / name).write_bytes(name.encode())
    file = Source("file", hash_file_source(root, "a"), ("a",))
    tree = Source("tree", tree_of(root, ["a", "b"], ["a", "n/b"]), ("a", "b"), ("a", "n/b"))
    for source in (file, tree):
        put_source(store, root, source)
        assert first_missing(store, source.kind, source.digest) is None
    (root / "a").write_bytes(b"edited")  # in place: the store must have its own bytes
    assert store.read(Digest.of(b"a")) == b"a"
    put_source(store, root, tree)  # it is in the store already, so the workspace does not matter


@pytest.mark.parametrize("kind", ["file", "tree"])
def test_put_source_refuses_what_changed(tmp_path: Path, kind: str) -> None:
    store = LocalStore(tmp_path / "cas")
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_bytes(b"before")
    digest = hash_file_source(root, "a") if kind == "file" else tree_of(root, ["a"], ["a"])
    (root / "a").write_bytes(b"after!")
    with pytest.raises(BuildError, match=r"`a` .*changed while"):
        put_source(store, root, Source(kind, digest, ("a",), ("a",)))
    assert not store.contains(digest)
