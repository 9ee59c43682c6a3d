"""Looks through outputs, whatever their size, for what must not be in them: this machine's folders, its name, secrets.

Paths and names count only as whole words, and a host's name only when it cannot be a word of a text.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PATH, HOST, SECRET = "path", "host", "secret"

_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
# Big enough to make calls cheap, small enough to stay in the processor's cache between two needles.
_CHUNK = 1 << 20
_SEGMENT = 64 << 20


@dataclass(frozen=True, slots=True)
class Needle:
    kind: str
    text: bytes

    def found(self, data: bytes | bytearray, at: int, end: int) -> bool:
        """Whether a match at `at` stands as a word of its own; secrets count anywhere."""
        if self.kind == SECRET:
            return True
        after = at + len(self.text)
        before_is_word = at > 0 and (data[at - 1] in _WORD or (self.kind == PATH and data[at - 1] == 0x2E))
        return not before_is_word and not (after < end and data[after] in _WORD)


@dataclass(frozen=True, slots=True)
class Finding:
    """`file` as given to `scan`."""

    file: str
    needle: Needle


def needles(paths: Iterable[Path], host: str, secrets: Iterable[bytes]) -> tuple[Needle, ...]:
    """What to look for. A path of one component (`/src`) is left out: it names no machine."""
    texts = sorted({os.fspath(path) for path in paths if len(path.parts) > 2})
    outer = [text for text in texts if not any(text.startswith(f"{other}/") for other in texts)]
    found = [Needle(PATH, os.fsencode(text)) for text in outer]
    if _tells(host):
        found.append(Needle(HOST, host.encode()))
    return (*found, *(Needle(SECRET, secret) for secret in secrets))


def _tells(host: str) -> bool:
    # `athena` or `localhost` stand in many a corpus; `gpu-17` and `ip-10-0-0-3` do not.
    return len(host) >= 5 and (any(c.isdecimal() for c in host) or (len(host) >= 8 and any(c in "-." for c in host)))


def scan(root: Path, files: Sequence[tuple[str, int]], wanted: Sequence[Needle]) -> list[Finding]:
    """Every needle that is in each file or its name: `files` are (path below `root`, size). Raises OSError.

    Names of folders, names of links and where links lead to are looked at too: a tree record holds them all. Nobody
    may be writing to the files.
    """
    findings: list[Finding] = []
    if not wanted:
        return findings
    large: list[tuple[str, int]] = []
    top = str(root)
    for name, size in files:
        findings += [Finding(name, needle) for needle in wanted if _in_bytes(os.fsencode(name), needle)]
        if size > _CHUNK:
            large.append((name, size))
        elif size:
            with open(f"{top}/{name}", "rb", buffering=0) as file:
                data = file.read()
            findings += [Finding(name, needle) for needle in wanted if _in_bytes(data, needle)]
    if large:
        pieces = [(name, at, min(at + _SEGMENT, size)) for name, size in large for at in range(0, size, _SEGMENT)]
        with ThreadPoolExecutor(min(len(pieces), os.cpu_count() or 1)) as pool:
            found = pool.map(lambda piece: _in_piece(root, piece, wanted), pieces)
            for (name, _, _), hits in zip(pieces, found, strict=True):
                findings += [Finding(name, needle) for needle in hits]
    for name, text in _names_below(root):
        findings += [Finding(name, needle) for needle in wanted if _in_bytes(text, needle)]
    return list(dict.fromkeys(findings))


def _in_bytes(data: bytes, needle: Needle) -> bool:
    at = data.find(needle.text)
    while at >= 0:
        if needle.found(data, at, len(data)):
            return True
        at = data.find(needle.text, at + 1)
    return False


def _in_piece(root: Path, piece: tuple[str, int, int], wanted: Sequence[Needle]) -> set[Needle]:
    """The needles that begin between the two offsets of a file."""
    name, start, end = piece
    hits: set[Needle] = set()
    # One byte before and one after a match decide whether it is a word.
    margin = max(len(needle.text) for needle in wanted) + 1
    buffer = bytearray(1 + _CHUNK + margin)
    find = _finder(buffer)
    fd = os.open(root / name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for at in range(start, end, _CHUNK):
            lead = 1 if at else 0
            got = os.preadv(fd, [buffer], at - lead)
            for needle in wanted:
                if needle not in hits and _begins(buffer, find, needle, lead, got, lead + min(_CHUNK, end - at)):
                    hits.add(needle)
    finally:
        os.close(fd)
    return hits


type _Find = Callable[[bytes, int, int], int]


def _begins(buffer: bytearray, find: _Find, needle: Needle, first: int, got: int, stop: int) -> bool:
    at = find(needle.text, first, got)
    while 0 <= at < stop:
        if needle.found(buffer, at, got):
            return True
        at = find(needle.text, at + 1, got)
    return False


def _finder(buffer: bytearray) -> _Find:
    """Search in `buffer`: the C library's is two to three times faster than Python's and lets other threads run."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "memmem"):
        return buffer.find
    memmem = libc.memmem
    memmem.restype = ctypes.c_void_p
    memmem.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    base = ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))

    def find(text: bytes, first: int, end: int) -> int:
        found = memmem(base + first, max(0, end - first), text, len(text))
        return -1 if found is None else found - base

    return find


def files_below(root: Path) -> Iterator[tuple[str, int]]:
    """(path below `root`, size) of every regular file, links not followed."""
    top, pending = str(root), [""]
    while pending:
        folder = pending.pop()
        with os.scandir(f"{top}/{folder}") as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False).st_size


def _names_below(root: Path) -> Iterator[tuple[str, bytes]]:
    """(path below `root`, text that a record of it would hold) of every folder and link."""
    top, pending = str(root), [""]
    while pending:
        folder = pending.pop()
        with os.scandir(f"{top}/{folder}") as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if entry.is_symlink():
                    yield path, os.fsencode(f"{entry.name}\n{os.readlink(entry.path)}")
                elif entry.is_dir():
                    yield path, os.fsencode(entry.name)
                    pending.append(f"{path}/")
