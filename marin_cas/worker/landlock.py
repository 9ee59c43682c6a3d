"""Landlock: the kernel denies a process, and all that it starts, writes outside of some folders.

Reads stay free. Where the kernel has no Landlock nothing is restricted, and `abi()` says so.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import stat
import struct
import sys
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
# Remove and make every kind of entry, and since ABI 2 link or rename between folders (REFER).
_MANAGE, _REFER = 0b1_1111_1111_0000, 1 << 13

_DEVICES = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts",
    "/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/accel*", "/dev/vfio",
)  # fmt: skip


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def abi() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _libc().syscall(_CREATE_RULESET, None, 0, 1))


@functools.cache
def _rights() -> int:
    rights = _WRITE_FILE | _MANAGE
    if abi() >= 2:
        rights |= _REFER
    if abi() >= 3:
        rights |= _TRUNCATE
    return rights


@functools.cache
def devices() -> tuple[str, ...]:
    """The harmless devices that this machine has."""
    return tuple(path for pattern in _DEVICES for path in sorted(glob.glob(pattern)))


def restrict(writable: Iterable[str]) -> bool:
    """From now on this process may write only below `writable` (and to harmless devices). False: no Landlock here.

    There is no way back. Paths that do not exist are left out. Raises OSError when the kernel refuses.
    """
    if not abi():
        return False
    rights, libc = _rights(), _libc()
    ruleset = _checked(libc.syscall(_CREATE_RULESET, struct.pack("=Q", rights), 8, 0))
    try:
        for path in dict.fromkeys([*writable, "/dev/shm"]):
            _allow(ruleset, path, rights)
        for path in devices():
            _allow(ruleset, path, rights & (_WRITE_FILE | _TRUNCATE))
        # A process names its own threads by writing here.
        _allow(ruleset, f"/proc/{os.getpid()}/task", _WRITE_FILE)
        _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _WRITE_FILE | _TRUNCATE  # the other rights are about a folder's entries
        _checked(_libc().syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, fd), 0))
    finally:
        os.close(fd)


def _checked(outcome: int) -> int:
    if outcome < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return outcome
