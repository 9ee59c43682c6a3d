"""The local store: layout, modes, links, damage, and the failure of any one disk call."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_cas.digest import Digest
from marin_cas.disk import Disk
from marin_cas.errors import EnvironmentProblem, IntegrityError
from marin_cas.store.faulty import FaultyDisk
from marin_cas.store.local import LocalStore
from marin_cas.store.temporary import Temporary


def nth(n: int, number: int) -> Callable[[str], None]:
    """Raises the error at the n-th call."""
    calls = 0

    def before(call: str) -> None:
        nonlocal calls
        calls += 1
        if calls == n:
            raise OSError(number, os.strerror(number), call)

    return before


def blob_files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.parent.name != "tmp"}


def assert_consistent(root: Path) -> None:
    """Every file under a digest's name has that digest's bytes."""
    for name, data in blob_files(root).items():
        assert Digest.of(data).hex == name.removesuffix(".x")


def test_layout(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    digest = store.put(b"hello")
    path = tmp_path / "cas" / digest.hex[:2] / digest.hex
    assert path.read_bytes() == b"hello"
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert store.path(digest) == path


def test_moving_keeps_the_inode(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    source = tmp_path / "big"
    source.write_bytes(os.urandom(2_000_000))
    inode = source.stat().st_ino
    path = store.path(store.put_file(source, move=True))
    assert path is not None and path.stat().st_ino == inode


def test_executable_is_a_second_inode(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    for executable in (True, False):
        (tmp_path / "f").write_bytes(b"tool")
        store.put_file(tmp_path / "f", move=True, executable=executable)
    plain, runnable = store.path(Digest.of(b"tool")), store.path(Digest.of(b"tool"), executable=True)
    assert plain is not None and runnable is not None
    assert runnable.name == plain.name + ".x"
    assert plain.stat().st_ino != runnable.stat().st_ino
    assert stat.S_IMODE(plain.stat().st_mode) == 0o444


@pytest.mark.parametrize("executable", [False, True])
def test_a_file_linked_to_a_blob_is_taken(tmp_path: Path, executable: bool) -> None:
    # A tool that links its input to its output: rename() between two names of one inode does nothing.
    store = LocalStore(tmp_path / "cas")
    digest = store.put(b"input")
    blob = store.path(digest)
    assert blob is not None
    os.link(blob, tmp_path / "output")
    assert store.put_file(tmp_path / "output", move=True, executable=executable) == digest
    assert not (tmp_path / "output").exists()
    assert store.read(digest) == b"input"
    assert stat.S_IMODE(blob.stat().st_mode) == 0o444
    taken = store.path(digest, executable)
    assert taken is not None and taken.stat().st_nlink == 1


def test_a_file_linked_from_outside_shares_no_inode_with_the_store(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    (tmp_path / "users").write_bytes(b"theirs")
    os.link(tmp_path / "users", tmp_path / "output")
    digest = store.put_file(tmp_path / "output", move=True)
    with (tmp_path / "users").open("ab") as file:
        file.write(b", edited")
    assert store.read(digest) == b"theirs"
    assert stat.S_IMODE((tmp_path / "users").stat().st_mode) != 0o444


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    before = os.umask(0o077)
    try:
        path = store.path(store.put(b"x"))
    finally:
        os.umask(before)
    assert path is not None and stat.S_IMODE(path.stat().st_mode) == 0o444


def damage(store: LocalStore, digest: Digest, data: bytes) -> None:
    path = store.path(digest)
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


@pytest.mark.parametrize("data", [b"", b"hell", b"hellO", b"hello, longer"])
def test_damage_is_found_by_reading(tmp_path: Path, data: bytes) -> None:
    store = LocalStore(tmp_path / "cas")
    digest = store.put(b"hello")
    damage(store, digest, data)
    with pytest.raises(IntegrityError, match=digest.short) as caught:
        store.read(digest)
    assert "marin cache verify" in str(caught.value)


def test_wrong_size_is_found_by_path_and_healed_by_put(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    digest = store.put(b"hello")
    damage(store, digest, b"hel")
    for executable in (False, True):
        with pytest.raises(IntegrityError, match=digest.short):
            store.path(digest, executable)
    store.put(b"hello")
    assert store.read(digest) == b"hello"


def test_only_regular_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        for move in (True, False):
            with pytest.raises(EnvironmentProblem, match=name):
                store.put_file(tmp_path / name, move=move)


def put_bytes(store: LocalStore, folder: Path) -> None:
    store.put(b"some bytes")


def put_moved(store: LocalStore, folder: Path) -> None:
    (folder / "f").write_bytes(b"moved")
    store.put_file(folder / "f", move=True, executable=True)


def put_copied(store: LocalStore, folder: Path) -> None:
    (folder / "f").write_bytes(b"copied")
    store.put_file(folder / "f", move=False)


def put_linked(store: LocalStore, folder: Path) -> None:
    (folder / "g").write_bytes(b"linked")
    os.link(folder / "g", folder / "f")
    store.put_file(folder / "f", move=True)


def second_mode(store: LocalStore, folder: Path) -> None:
    store.path(store.put(b"some bytes"), executable=True)


@pytest.mark.parametrize("action", [put_bytes, put_moved, put_copied, put_linked, second_mode])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_any_failing_call_leaves_no_half_blob(
    tmp_path: Path, action: Callable[[LocalStore, Path], None], number: int
) -> None:
    for n in range(1, 50):
        folder = tmp_path / str(n)
        folder.mkdir()
        try:
            action(LocalStore(folder / "cas", FaultyDisk(nth(n, number))), folder)
        except EnvironmentProblem as problem:
            assert str(folder) in problem.message
            assert_consistent(folder / "cas")
            for name in ("f", "g"):
                (folder / name).unlink(missing_ok=True)
            action(LocalStore(folder / "cas"), folder)
            assert_consistent(folder / "cas")
        else:
            assert_consistent(folder / "cas")
            if n > 12:  # more calls than any of these makes
                return
    pytest.fail("never ran through")


def test_output_on_another_file_system_is_copied(tmp_path: Path) -> None:
    class TwoDisks(Disk):
        def rename(self, source: object, path: object) -> None:
            if Path(str(source)).parent.name != "tmp":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
            super().rename(str(source), str(path))

    store = LocalStore(tmp_path / "cas", TwoDisks())
    (tmp_path / "f").write_bytes(b"from afar")
    digest = store.put_file(tmp_path / "f", move=True)
    assert store.read(digest) == b"from afar"
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("far", [False, True])
def test_many_files_of_a_folder_at_once(tmp_path: Path, far: bool) -> None:
    class Far(Disk):
        def rename(self, source: object, path: object) -> None:
            if Path(str(source)).parent == tmp_path / "d":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
            super().rename(str(source), str(path))

    store = LocalStore(tmp_path / "cas", Far() if far else Disk())
    there = store.put(b"3")
    (tmp_path / "d").mkdir()
    names = [f"{n}" for n in range(200)]
    for n, name in enumerate(names):
        (tmp_path / "d" / name).write_bytes(b"%d" % (n % 150))  # the last 50 are the first once more
        (tmp_path / "d" / name).chmod(0o750 if n % 7 == 0 else 0o640)
    (tmp_path / "d/0").unlink()
    os.link(tmp_path / "d/7", tmp_path / "d/0")
    os.link(tmp_path / "d/8", tmp_path / "outside")
    kept = store.put_files(os.fspath(tmp_path / "d"), names)
    assert kept == [(Digest.of(b"%d" % (n % 150 or (0 if n else 7))), n % 7 == 0) for n in range(200)]
    assert not os.listdir(tmp_path / "d")
    for digest, executable in kept:
        path = store.path(digest, executable)
        assert path is not None and stat.S_IMODE(path.stat().st_mode) == (0o555 if executable else 0o444)
        assert path.stat().st_nlink == 1
    assert store.read(there) == b"3"
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o640
    assert_consistent(tmp_path / "cas")


def test_who_writes_to_a_file_that_was_taken_breaks_its_seal(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    (tmp_path / "f").write_bytes(b"right")
    with (tmp_path / "f").open("r+b") as kept_open:
        digest = store.put_file(tmp_path / "f", move=True)
        kept_open.write(b"wrong")
    with pytest.raises(IntegrityError, match=digest.short):
        store.path(digest)


def test_file_size_limit_is_one_message(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(EnvironmentProblem, match="larger than is allowed"):
            LocalStore(tmp_path / "cas").put(b"x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not LocalStore(tmp_path / "cas").contains(Digest.of(b"x" * 20_000))


def test_many_threads_put_the_same(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for n in range(30):
                source = tmp_path / f"{index}-{n}"
                source.write_bytes(b"%d" % n)
                store.put_file(source, move=True, executable=bool(index % 2))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(blob_files(tmp_path / "cas")) == 60
    assert_consistent(tmp_path / "cas")


def test_files_of_a_killed_process_are_swept(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from marin_cas.store.temporary import Temporary\n"
        "t = Temporary(sys.argv[1]); t.prepare()\n"
        "open(t.name(), 'w').write('half'); os.mkdir(t.name()); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    temporary = Temporary(tmp_path)
    mine = Path(temporary.name())
    mine.write_text("in use")
    (tmp_path / "unknown").write_text("another machine's, young")
    old = tmp_path / "unknown-old"
    old.write_text("another machine's, old")
    os.utime(old, (0, 0))
    assert len(list(tmp_path.iterdir())) == 5
    assert temporary.sweep() == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([mine.name, "unknown"])


def test_a_touched_blob_that_vanishes_while_it_is_looked_at_is_absent(tmp_path: Path) -> None:
    def before(call: str) -> None:
        if call == "seal" and blob.exists():
            blob.unlink()

    digest = LocalStore(tmp_path).put(b"touched")
    blob = tmp_path / digest.hex[:2] / digest.hex
    os.utime(blob)
    assert LocalStore(tmp_path, FaultyDisk(before)).path(digest) is None
