"""The gate: many users or one deleter, across threads, processes, forks and kills, and neither starves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_cas.digest import Digest
from marin_cas.errors import EnvironmentProblem
from marin_cas.store.gate import Gate
from marin_cas.store.local import LocalStore

FOREVER = 60.0


class Other:
    """Another process with the gate: it does what it is told, says when it is done, and waits for a word to go on."""

    def __init__(self, path: Path, code: str) -> None:
        prelude = "import os, sys, threading, time\nfrom marin_cas.store.gate import Gate\ngate = Gate(sys.argv[1])\n"
        prelude += "def say():\n    os.write(1, b'x\\n')\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", prelude + code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def said(self) -> None:
        assert self.process.stdout is not None and self.process.stdout.read(2) == b"x\n"

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> None:
        self.process.communicate(timeout=FOREVER)


HOLDS = "with gate.{how}():\n    say()\n    sys.stdin.readline()\nsay()\nsys.stdin.readline()\n"


def taking(gate: Gate, how: str) -> tuple[threading.Thread, threading.Event]:
    """A thread that takes the gate, and the event that says it has (and has let go again)."""
    done = threading.Event()

    def take() -> None:
        with getattr(gate, how)():
            done.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread, done


@pytest.mark.parametrize(("theirs", "ours"), [("shared", "exclusive"), ("exclusive", "shared"), ("exclusive",) * 2])
@pytest.mark.parametrize("killed", [False, True])
def test_another_process_is_waited_for(tmp_path: Path, theirs: str, ours: str, killed: bool) -> None:
    other = Other(tmp_path / "lock", HOLDS.format(how=theirs))
    other.said()
    thread, done = taking(Gate(tmp_path / "lock"), ours)
    assert not done.wait(0.1)
    other.kill() if killed else other.go_on()
    assert done.wait(FOREVER)
    thread.join()
    if not killed:
        other.go_on()
        other.end()


def test_users_share_between_processes(tmp_path: Path) -> None:
    other = Other(tmp_path / "lock", HOLDS.format(how="shared"))
    other.said()
    with Gate(tmp_path / "lock").shared():
        pass
    other.kill()


@pytest.mark.parametrize(("first", "second"), [("shared", "exclusive"), ("exclusive", "shared"), ("exclusive",) * 2])
@pytest.mark.parametrize("one_object", [True, False])
def test_threads_of_one_process(tmp_path: Path, first: str, second: str, one_object: bool) -> None:
    gate = Gate(tmp_path / "lock")
    with getattr(gate, first)():
        thread, done = taking(gate if one_object else Gate(tmp_path / "lock"), second)
        assert not done.wait(0.1)
    assert done.wait(FOREVER)
    thread.join()


def test_a_deleter_waits_until_the_last_thread_has_left(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "lock")
    leave = [threading.Event() for _ in range(3)]
    inside = threading.Barrier(4)

    def use(event: threading.Event) -> None:
        with gate.shared():
            inside.wait()
            event.wait()

    users = [threading.Thread(target=use, args=(event,), daemon=True) for event in leave]
    for user in users:
        user.start()
    inside.wait()
    deleter, done = taking(gate, "exclusive")
    for event, user in zip(leave, users, strict=True):
        assert not done.wait(0.05)
        event.set()
        user.join()
    assert done.wait(FOREVER)
    deleter.join()


def test_who_holds_it_may_share_again_while_a_deleter_waits(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "lock")
    with gate.shared():
        thread, done = taking(Gate(tmp_path / "lock"), "exclusive")
        assert not done.wait(0.1)
        with gate.shared():
            pass
        assert not done.wait(0.1)
    assert done.wait(FOREVER)
    thread.join()
    with gate.exclusive(), gate.shared():
        pass
    for how in ("shared", "exclusive"):
        with getattr(gate, how)(), pytest.raises(RuntimeError), gate.exclusive():
            pass


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "lock")
    for how in ("shared", "exclusive"):
        with pytest.raises(KeyError), getattr(gate, how)():
            raise KeyError
    with gate.exclusive():
        pass


@pytest.mark.parametrize("how", ["shared", "exclusive"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_forked_child_holds_nothing(tmp_path: Path, how: str, killed: bool) -> None:
    # The child lives on; its parent lets go, or is killed while it holds.
    code = f"""
with gate.{how}():
    if os.fork() == 0:
        say()
        time.sleep({FOREVER})
        os._exit(0)
    say()
    sys.stdin.readline()
say()
time.sleep({FOREVER})
"""
    other = Other(tmp_path / "lock", "os.setsid()\n" + code)
    other.said()
    other.said()
    thread, done = taking(Gate(tmp_path / "lock"), "exclusive")
    assert not done.wait(0.1)
    if killed:
        os.kill(other.process.pid, signal.SIGKILL)
    else:
        other.go_on()
    assert done.wait(FOREVER)
    thread.join()
    os.killpg(other.process.pid, signal.SIGKILL)
    other.end()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_forked_while_threads_are_in_the_gate_can_use_it(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "lock")
    stop = threading.Event()

    def use() -> None:
        while not stop.is_set():
            with gate.shared():
                pass

    threads = [threading.Thread(target=use, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                with gate.shared():
                    pass
                with gate.exclusive():
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_inside_leaves_the_parents_hold_to_the_parent(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "lock")
    with gate.shared():
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        thread, done = taking(Gate(tmp_path / "lock"), "exclusive")
        assert not done.wait(0.1)
    assert done.wait(FOREVER)
    thread.join()


def test_users_without_pause_do_not_starve_a_deleter(tmp_path: Path) -> None:
    busy = """
def use():
    while True:
        with gate.shared():
            time.sleep(0.001)
for _ in range(3):
    threading.Thread(target=use, daemon=True).start()
time.sleep(0.1)
say()
sys.stdin.readline()
"""
    others = [Other(tmp_path / "lock", busy) for _ in range(3)]
    for other in others:
        other.said()
    gate = Gate(tmp_path / "lock")
    for _ in range(20):
        thread, done = taking(gate, "exclusive")
        assert done.wait(FOREVER)
        thread.join()
    for other in others:
        other.kill()


def test_deleters_without_pause_do_not_starve_a_user(tmp_path: Path) -> None:
    busy = "say()\nwhile True:\n    with gate.exclusive():\n        time.sleep(0.001)\n"
    others = [Other(tmp_path / "lock", busy) for _ in range(2)]
    for other in others:
        other.said()
    gate = Gate(tmp_path / "lock")
    for _ in range(10):
        thread, done = taking(gate, "shared")
        assert done.wait(FOREVER)
        thread.join()
    for other in others:
        other.kill()


def test_what_it_cannot_open_is_named(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "no" / "lock")
    for how in ("shared", "exclusive"):
        with pytest.raises(EnvironmentProblem, match="lock"), getattr(gate, how)():
            pass
    (tmp_path / "no").mkdir()
    with gate.shared():
        pass
    with gate.exclusive():
        pass


def test_it_leaves_no_descriptors_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        gate = Gate(tmp_path / "lock")
        with gate.shared():
            pass
        with gate.exclusive():
            pass
    del gate
    assert len(os.listdir("/proc/self/fd")) == before


# What the store does in it.


def put_bytes(store: LocalStore, folder: Path) -> Digest:
    return store.put(b"blob")


def put_file(store: LocalStore, folder: Path) -> Digest:
    (folder / "f").write_bytes(b"blob")
    return store.put_file(folder / "f", move=True)


def put_copy(store: LocalStore, folder: Path) -> Digest:
    (folder / "f").write_bytes(b"blob")
    return store.put_file(folder / "f", move=False)


def put_linked(store: LocalStore, folder: Path) -> Digest:
    (folder / "g").write_bytes(b"blob")
    (folder / "f").unlink(missing_ok=True)
    os.link(folder / "g", folder / "f")
    return store.put_file(folder / "f", move=True)


@pytest.mark.parametrize("put", [put_bytes, put_file, put_copy, put_linked])
def test_putting_again_is_a_use(tmp_path: Path, put: Callable[[LocalStore, Path], Digest]) -> None:
    gate = Gate(tmp_path / "lock")
    store = LocalStore(tmp_path / "cas", gate=gate)
    digest = put(store, tmp_path)
    used = os.stat(store.path(digest) or "").st_ctime_ns
    while (tmp_path / "cas").stat().st_ctime_ns <= used:  # the file system's clock ticks slowly
        os.utime(tmp_path / "cas")
    put(store, tmp_path)
    with gate.exclusive():
        assert store.delete_unused(digest.hex, used + 1) is None
        again = os.stat(store.path(digest) or "").st_ctime_ns
        assert again > used
        assert store.delete_unused(digest.hex, again) is None
        assert store.delete_unused(digest.hex, again + 1) == 4
        assert store.delete_unused(digest.hex, again + 1) == 0
    assert store.path(digest) is None


@pytest.mark.parametrize("put", [put_bytes, put_file, put_copy, put_linked])
def test_nothing_is_put_while_somebody_deletes(tmp_path: Path, put: Callable[[LocalStore, Path], Digest]) -> None:
    gate = Gate(tmp_path / "lock")
    store = LocalStore(tmp_path / "cas", gate=gate)
    thread = threading.Thread(target=put, args=(store, tmp_path), daemon=True)
    with gate.exclusive():
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert not store.contains(Digest.of(b"blob"))
    thread.join()
    assert store.contains(Digest.of(b"blob"))


def test_both_inodes_go_or_none_does(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    digest = store.put(b"tool")
    plain, runnable = store.path(digest), store.path(digest, executable=True)
    assert plain is not None and runnable is not None
    old, young = plain.stat().st_ctime_ns, runnable.stat().st_ctime_ns
    if old != young:
        assert store.delete_unused(digest.hex, young) is None
        assert plain.exists() and runnable.exists()
    os.link(runnable, tmp_path / "used")
    later = os.stat(runnable).st_ctime_ns + 1
    assert store.delete_unused(digest.hex, later) == 4  # the other has a name left
    assert not plain.exists() and not runnable.exists()


def test_a_changed_blob_is_not_sealed_again_by_a_use(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cas")
    path = store.path(store.put(b"right"))
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(b"wrong")
    store.put(b"right")
    assert path.read_bytes() == b"right"
