"""BLAKE3-256 of some bytes, and their length: the name of everything in the store.

`b3sum` prints the same hash. Text form: 64 hex digits, `-`, the length in bytes.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

from blake3 import blake3

# Below this a read beats setting up a mapping; above it blake3 may use all cores.
_MMAP_FROM = 1 << 20
_CHUNK = 1 << 20


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

    `exclusive` promises that nobody truncates the file meanwhile, so that it may be mapped and hashed on all
    cores; a mapped file that a user truncates would end the process with SIGBUS.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if exclusive and size >= _MMAP_FROM:
            hasher = blake3(max_threads=blake3.AUTO)
            with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped:
                hasher.update(mapped)
            return Digest(hasher.digest(), size)
        hasher, total = blake3(), 0
        while chunk := os.read(fd, _CHUNK):
            hasher.update(chunk)
            total += len(chunk)
        return Digest(hasher.digest(), total)
    finally:
        os.close(fd)
