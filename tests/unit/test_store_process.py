"""Telling a process that lives from one that is gone, also under a number that is used again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from marin_cas.store.process import Process, is_gone, owner_is_gone, this_process


def test_this_process_is_not_gone() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert not is_gone(me)
    assert owner_is_gone(me.prefix + "file") is False


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"started": 1}, True),  # the number was given to another process
        ({"boot": "another"}, True),  # this machine was started again
        ({"host": "elsewhere"}, False),  # cannot be known from here
        ({"host": "elsewhere", "boot": "another"}, False),
        ({"space": "pid:[1]"}, False),  # another container's numbers
        ({"boot": ""}, False),
    ],
)
def test_what_is_known_of_others(change: dict[str, str | int], gone: bool) -> None:
    assert is_gone(replace(this_process(), **change)) is gone  # type: ignore[arg-type]


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen(["sleep", "60"])
    with open(f"/proc/{child.pid}/stat") as file:
        started = int(file.read().rpartition(")")[2].split()[19])
    process = replace(this_process(), pid=child.pid, started=started)
    assert not is_gone(process)
    child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while not is_gone(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        assert is_gone(process)  # killed, and nobody has waited for it yet
    finally:
        child.wait()
    assert is_gone(process)


def test_after_a_fork_the_child_is_another() -> None:
    code = (
        "import os\n"
        "from marin_cas.store.process import this_process\n"
        "parent = this_process(); child = os.fork()\n"
        "if child == 0:\n"
        "    me = this_process()\n"
        "    os._exit(0 if me.pid == os.getpid() and me != parent else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["", "x", "1-2", "a-b-c-d", "1-2-3-4"])
def test_names_of_others_are_not_judged(name: str) -> None:
    assert owner_is_gone(name) is None


def test_processes_are_values() -> None:
    assert Process("h", "b", "s", 1, 2) == Process("h", "b", "s", 1, 2)
    assert Process("h", "b", "s", 1, 2).prefix != Process("h", "c", "s", 1, 2).prefix
