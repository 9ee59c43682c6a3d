"""BLAKE3-256 of some bytes, and their length: the name of everything in the store.

`b3sum` prints the same hash. Text form: 64 hex digits, `-`, the length in bytes.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

from blake3 import blake3

# Up to here one read beats setting up a mapping; above it blake3 may use all cores.
_AT_ONCE = 1 << 20
_CHUNK = 8 << 20
_WINDOW = 64 << 20
_POPULATE_READ = 22  # MADV_POPULATE_READ, Linux 5.14


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """`hash` is 32 bytes, `size` the number of bytes hashed."""

    hash: bytes
    size: int

    @classmethod
    def of(cls, data: bytes) -> Digest:
        return cls(blake3(data).digest(), len(data))

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The digest written as `<hex>-<size>`; ValueError for anything else."""
        hexed, _, size = text.partition("-")
        if len(hexed) != 64 or not size.isdecimal():
            raise ValueError(f"`{text}` is not a digest (64 hex digits, `-`, a size)")
        return cls(bytes.fromhex(hexed), int(size))

    @classmethod
    def from_record(cls, field: object) -> Digest:
        """The digest held in a record as `[32 bytes, length]`; ValueError for anything else."""
        match field:
            case [bytes() as hash, int() as size] if len(hash) == 32 and size >= 0 and type(size) is int:
                return cls(hash, size)
        raise ValueError(f"{field!r} is not a digest field")

    def to_record(self) -> list[bytes | int]:
        return [self.hash, self.size]

    @property
    def hex(self) -> str:
        return self.hash.hex()

    @property
    def short(self) -> str:
        """The first 12 hex digits, as people say it."""
        return self.hash.hex()[:12]

    def __str__(self) -> str:
        return f"{self.hex}-{self.size}"


def hash_file(path: str | os.PathLike[str], *, exclusive: bool = False) -> Digest:
    """The digest of a file's bytes. Raises OSError.

    `exclusive` promises that nobody truncates the file meanwhile, so that it may be mapped; a mapped file that a user
    truncates could end the process with SIGBUS.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return hash_open(fd, os.fstat(fd).st_size, exclusive=exclusive)
    finally:
        os.close(fd)


def hash_open(fd: int, size: int, *, exclusive: bool = False) -> Digest:
    """The same for a file open for reading at its beginning, which had that size. What is read decides."""
    if size <= _AT_ONCE:
        data = os.read(fd, size + 1)
        if len(data) == size:
            return Digest(blake3(data).digest(), size)
        os.lseek(fd, 0, os.SEEK_SET)
    elif exclusive and (digest := _hash_mapped(fd, size)) is not None:
        return digest
    hasher, total, buffer = blake3(max_threads=blake3.AUTO), 0, bytearray(_CHUNK)
    view = memoryview(buffer)
    while count := os.readv(fd, [buffer]):
        hasher.update(view[:count])
        total += count
    return Digest(hasher.digest(), total)


def _hash_mapped(fd: int, size: int) -> Digest | None:
    """None when it cannot be done, or not without the risk of a SIGBUS."""
    hasher = blake3(max_threads=blake3.AUTO)
    try:
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
            for at in range(0, size, _WINDOW):
                length = min(_WINDOW, size - at)
                # Where the disk cannot be read, touching a page would end the process; this only fails.
                mapped.madvise(_POPULATE_READ, at, length)
                if at + length < size:
                    os.posix_fadvise(fd, at + length, _WINDOW, os.POSIX_FADV_WILLNEED)
                with view[at : at + length] as window:
                    hasher.update(window)
    except (OSError, ValueError, AttributeError):
        return None
    return Digest(hasher.digest(), size)
