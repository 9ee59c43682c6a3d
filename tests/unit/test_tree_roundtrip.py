"""Files to blobs and back: `ingest(materialise(t)) == t`, whatever the names, modes, links and empty folders."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.digest import Digest
from marin_cas.disk import Disk
from marin_cas.errors import BuildError, EnvironmentProblem, IntegrityError
from marin_cas.store.base import MissingBlob, Store
from marin_cas.store.faulty import FaultyDisk
from marin_cas.store.local import LocalStore
from marin_cas.store.memory import MemoryStore
from marin_cas.tree.entries import DirEntry, FileEntry, LinkEntry, Tree
from marin_cas.tree.ingest import ingest
from marin_cas.tree.materialise import materialise
from marin_cas.tree.walk import blobs, entry_at, files, first_missing

# What a model of a folder looks like: bytes and the executable bit, a link's target, or a folder.
type Node = tuple[bytes, bool] | str | dict[str, Node]

NASTY = ["a", "A", "é", "e\u0301", "-rf", " ", "a\nb", "$x", "*", "con", "a.x", "\u202e", "~", "😀", "\\", "x" * 200]
names = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=20),
).filter(lambda name: name not in (".", "..") and len(name.encode()) <= 255)
leaves = st.one_of(
    st.tuples(st.binary(max_size=50), st.booleans()),
    st.lists(names, min_size=1, max_size=2).map("/".join).filter(lambda target: len(target.encode()) < 500),
)
nodes = st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=4), max_leaves=12)
folders = st.dictionaries(names, nodes, max_size=5)


@pytest.fixture(scope="module")
def space() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp())
    yield path
    shutil.rmtree(path)


def build(path: Path, node: Node) -> None:
    if isinstance(node, dict):
        path.mkdir()
        for name, child in node.items():
            build(path / name, child)
    elif isinstance(node, str):
        path.symlink_to(node)
    else:
        path.write_bytes(node[0])
        path.chmod(0o751 if node[1] else 0o640)


def look(path: Path) -> Node:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    if stat.S_ISDIR(mode):
        return {child.name: look(child) for child in path.iterdir()}
    return path.read_bytes(), bool(mode & 0o100)


@given(model=folders, move=st.booleans(), writable=st.booleans(), local=st.booleans())
def test_round_trip(space: Path, model: dict[str, Node], move: bool, writable: bool, local: bool) -> None:
    place = Path(tempfile.mkdtemp(dir=space))
    store: Store = LocalStore(place / "cas") if local else MemoryStore()
    build(place / "first", model)
    taken = ingest(store, place / "first", move=move)
    assert first_missing(store, "tree", taken.digest) is None
    if not move:
        assert look(place / "first") == model
    materialise(store, "tree", taken.digest, place / "second", writable=writable)
    assert look(place / "second") == model
    assert ingest(store, place / "second", move=True) == taken
    for blob in blobs(store, "tree", taken.digest):
        assert Digest.of(store.read(blob) or b"") == blob
    shutil.rmtree(place)


def test_what_a_digest_depends_on(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")

    def digest(mode: int, mtime: int) -> Digest:
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "f").write_bytes(b"x")
        (folder / "f").chmod(mode)
        os.utime(folder / "f", (mtime, mtime))
        taken = ingest(store, folder, move=True)
        folder.rmdir()
        return taken.digest

    assert digest(0o644, 1) == digest(0o640, 2) == digest(0o604, 3)
    assert digest(0o755, 1) == digest(0o700, 2) != digest(0o644, 1)


def test_empty_folders_are_kept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    build(tmp_path / "t", {"a": {}, "b": {"c": {}}, "f": (b"", False)})
    taken = ingest(store, tmp_path / "t", move=True)
    materialise(store, "tree", taken.digest, tmp_path / "m")
    assert look(tmp_path / "m") == {"a": {}, "b": {"c": {}}, "f": (b"", False)}
    assert taken.files == 1


def test_modes_of_what_is_made(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    build(tmp_path / "t", {"f": (b"plain", False), "x": (b"tool", True)})
    digest = ingest(store, tmp_path / "t", move=True).digest
    materialise(store, "tree", digest, tmp_path / "shared")
    materialise(store, "tree", digest, tmp_path / "private", writable=True)
    modes = {p: stat.S_IMODE((tmp_path / p).stat().st_mode) for p in ("shared/f", "shared/x", "private/f", "private/x")}
    assert modes == {"shared/f": 0o444, "shared/x": 0o555, "private/f": 0o644, "private/x": 0o755}
    (tmp_path / "private/f").write_bytes(b"edited")
    assert store.read(Digest.of(b"plain")) == b"plain"
    assert (tmp_path / "private/f").stat().st_nlink == 1


def test_a_single_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    (tmp_path / "f").write_bytes(b"scores")
    taken = ingest(store, tmp_path / "f", move=True)
    assert (taken.kind, taken.digest, taken.files, taken.bytes) == ("file", Digest.of(b"scores"), 1, 6)
    materialise(store, "file", taken.digest, tmp_path / "g")
    assert (tmp_path / "g").read_bytes() == b"scores"
    assert first_missing(store, "file", taken.digest) is None
    assert first_missing(store, "file", Digest.of(b"no")) == Digest.of(b"no")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/etc/passwd", "absolute path `/etc/passwd`"),
        ("../../out", "leads out of the tree"),
        ("../x/../../../y", "goes up after going down"),
        ("link/../../secret", "goes up after going down"),
    ],
)
def test_links_that_lead_out_are_refused(tmp_path: Path, target: str, why: str) -> None:
    build(tmp_path / "t", {"f": (b"x", False), "d": {"link": target}})
    with pytest.raises(BuildError, match=f"`d/link` .*{why}"):
        ingest(LocalStore(tmp_path / "cas"), tmp_path / "t", move=True)
    assert (tmp_path / "t/f").read_bytes() == b"x"  # nothing was taken


def test_links_within_are_kept_as_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    model: dict[str, Node] = {"d": {"up": "../f", "root": "..", "self": ".", "none": "no//where/."}, "f": (b"x", True)}
    build(tmp_path / "t", model)
    materialise(store, "tree", ingest(store, tmp_path / "t", move=True).digest, tmp_path / "m")
    assert look(tmp_path / "m") == model


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")

    def refused(make: str) -> str:
        folder = tmp_path / make
        (folder / "d").mkdir(parents=True)
        (folder / "keep").write_bytes(b"x")
        match make:
            case "pipe":
                os.mkfifo(folder / "d/it")
            case "socket":
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(str(folder / "d/it"))
            case "name":
                os.close(os.open(os.fsencode(folder / "d") + b"/\xff\xfe", os.O_CREAT))
            case "target":
                os.symlink(b"\xff", os.fsencode(folder / "d/it"))
        with pytest.raises(BuildError) as caught:
            ingest(store, folder, move=True)
        assert (folder / "keep").exists()
        return caught.value.message

    assert refused("pipe") == "`d/it` is a named pipe, which cannot be stored"
    assert refused("socket") == "`d/it` is a socket, which cannot be stored"
    assert refused("name") == r"`d/\xff\xfe` has a name that is not UTF-8"
    assert refused("target") == "`d/it` is a link whose target is not UTF-8"


def test_an_output_that_is_itself_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "out").symlink_to("real")
    with pytest.raises(BuildError, match="`out` is a symbolic link"):
        ingest(LocalStore(tmp_path / "cas"), tmp_path / "out", move=True)


def test_deeper_than_the_recursion_limit(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    path = f"{tmp_path}/t"
    os.mkdir(path)
    for _ in range(1100):
        path += "/d"
        os.mkdir(path)
    taken = ingest(store, tmp_path / "t", move=True)
    assert sum(1 for _ in blobs(store, "tree", taken.digest)) == 1101
    materialise(store, "tree", taken.digest, tmp_path / "m")
    assert os.path.isdir(f"{tmp_path}/m{'/d' * 1100}")
    for name in ("t", "m"):
        Disk().remove_tree(tmp_path / name)
        assert not (tmp_path / name).exists()


def test_hard_links_and_read_only_folders_in_an_output(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    build(tmp_path / "t", {"a": (b"same", False), "d": {"f": (b"x", False)}})
    os.link(tmp_path / "t/a", tmp_path / "t/b")
    (tmp_path / "t/d").chmod(0o555)
    materialise(store, "tree", ingest(store, tmp_path / "t", move=True).digest, tmp_path / "m")
    assert look(tmp_path / "m") == {"a": (b"same", False), "b": (b"same", False), "d": {"f": (b"x", False)}}


def sample(store: Store, tmp_path: Path) -> Digest:
    build(tmp_path / "t", {"a": (b"aaa", False), "d": {"x": (b"xxx", True), "e": {}}, "l": "a"})
    return ingest(store, tmp_path / "t", move=True).digest


def test_every_missing_blob_is_found(tmp_path: Path) -> None:
    store = MemoryStore()
    digest = sample(store, tmp_path)
    everything = list(blobs(store, "tree", digest))
    assert len(everything) == 5
    for blob in everything:
        data = store.blobs.pop(blob)
        assert first_missing(store, "tree", digest) == blob
        with pytest.raises(MissingBlob) as caught:
            materialise(store, "tree", digest, tmp_path / f"m-{blob.short}")
        assert caught.value.digest == blob
        store.blobs[blob] = data
    assert first_missing(store, "tree", digest) is None


def test_damage_is_found(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    digest = sample(store, tmp_path)
    for index, blob in enumerate(blobs(store, "tree", digest)):
        path = store.path(blob) or Path()
        right = path.read_bytes()
        # Records are hashed; of blobs that are linked, the size is what is looked at.
        is_record = right.startswith(b"marin-cas tree 1\n")
        path.chmod(0o644)
        path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]) if is_record else right[:-1])
        (path.parent / (path.name + ".x")).unlink(missing_ok=True)
        with pytest.raises(IntegrityError, match=blob.short):
            materialise(store, "tree", digest, tmp_path / f"m{index}")
        path.write_bytes(right)
    materialise(store, "tree", digest, tmp_path / "good")


def test_hostile_records_make_nothing_outside(tmp_path: Path) -> None:
    store = MemoryStore()
    inner = store.put(Tree.of([LinkEntry("l", "../../../etc")]).record())
    outer = store.put(Tree.of([DirEntry("d", inner)]).record())
    with pytest.raises(IntegrityError, match="out of the tree"):
        materialise(store, "tree", outer, tmp_path / "m")
    assert not (tmp_path / "m/d/l").is_symlink()


def test_a_file_in_the_way_is_not_written_to(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    digest = sample(store, tmp_path)
    (tmp_path / "m").mkdir()
    (tmp_path / "m/a").write_bytes(b"mine")
    with pytest.raises(EnvironmentProblem, match="m"):
        materialise(store, "tree", digest, tmp_path / "m")
    with pytest.raises(EnvironmentProblem):
        materialise(store, "file", Digest.of(b"aaa"), tmp_path / "m/a")
    assert (tmp_path / "m/a").read_bytes() == b"mine"


class FoldingDisk(Disk):
    """A file system that takes names for one that differ in case or composition only."""

    def _check(self, path: object) -> None:
        import unicodedata

        path = Path(str(path))
        folded = unicodedata.normalize("NFC", path.name).casefold()
        if any(unicodedata.normalize("NFC", name).casefold() == folded for name in os.listdir(path.parent)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))

    def link(self, source: object, path: object) -> None:
        self._check(path)
        super().link(str(source), str(path))

    def mkdir(self, path: object) -> None:
        self._check(path)
        super().mkdir(str(path))


@pytest.mark.parametrize(("one", "two"), [("Readme", "README"), ("\u00e9", "e\u0301"), ("straße", "STRASSE")])
def test_names_that_clash_are_refused_only_where_they_do(tmp_path: Path, one: str, two: str) -> None:
    store = LocalStore(tmp_path / "cas")
    build(tmp_path / "t", {one: (b"1", False), two: {}})
    digest = ingest(store, tmp_path / "t", move=True).digest
    materialise(store, "tree", digest, tmp_path / "fine")
    with pytest.raises(EnvironmentProblem, match="are one name on the file system") as caught:
        materialise(store, "tree", digest, tmp_path / "clash", disk=FoldingDisk())
    assert one in caught.value.message and two in caught.value.message


@pytest.mark.parametrize("number", [errno.EMLINK, errno.EPERM, errno.EXDEV])
def test_a_link_that_is_refused_becomes_a_copy(tmp_path: Path, number: int) -> None:
    def before(call: str) -> None:
        if call == "link":
            raise OSError(number, os.strerror(number))

    store = LocalStore(tmp_path / "cas")
    digest = sample(store, tmp_path)
    materialise(store, "tree", digest, tmp_path / "m", disk=FaultyDisk(before))
    assert (tmp_path / "m/a").stat().st_nlink == 1
    assert stat.S_IMODE((tmp_path / "m/d/x").stat().st_mode) == 0o555
    assert ingest(store, tmp_path / "m", move=True).digest == digest


def test_any_failing_call_of_ingest_leaves_a_consistent_store(tmp_path: Path) -> None:
    model: dict[str, Node] = {"a": (b"aaa", False), "d": {"x": (b"xxx", True)}}
    for n in range(1, 60):
        place = tmp_path / str(n)
        place.mkdir()
        calls = 0

        def before(call: str) -> None:
            nonlocal calls
            calls += 1
            if calls == n:  # noqa: B023
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        build(place / "t", model)
        try:
            ingest(LocalStore(place / "cas", FaultyDisk(before)), place / "t", move=True)
        except EnvironmentProblem as problem:
            assert "the disk is full" in problem.message
        store = LocalStore(place / "cas")
        for hexed, entry in store.files():
            assert Digest.of(Path(entry.path).read_bytes()).hex == hexed
        shutil.rmtree(place / "t")
        build(place / "t", model)
        again = ingest(store, place / "t", move=True)
        assert first_missing(store, "tree", again.digest) is None
        if calls < n:
            return
    pytest.fail("never ran through")


def test_files_and_entry_at(tmp_path: Path) -> None:
    store = MemoryStore()
    digest = sample(store, tmp_path)
    assert [path for path, _ in files(store, digest)] == ["a", "d/x"]
    assert entry_at(store, digest, "d/x") == FileEntry("x", Digest.of(b"xxx"), True)
    assert isinstance(entry_at(store, digest, "d"), DirEntry)
    assert entry_at(store, digest, "a/b") is None
    assert entry_at(store, digest, "no/x") is None
