"""Blobs in a folder: `ab/<64 hex>` (0444), and for an executable a second inode `ab/<64 hex>.x` (0555).

A name appears by rename, after its bytes were hashed; so a file under a digest's name was once right. A blob is sealed
with one constant modification time: 0444 keeps nobody from writing who really wants to, but a write moves the time, and
then the bytes are hashed again before anyone gets them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from marin_cas.digest import Digest, hash_file
from marin_cas.disk import DISK, Disk, StrPath, disk_problem, disk_problems
from marin_cas.errors import EnvironmentProblem
from marin_cas.store.base import wrong_blob
from marin_cas.store.temporary import Temporary

# Up to here one read and one hash on this core beat a mapping and threads.
_SMALL = 1 << 20
# Without O_NONBLOCK, opening a pipe waits for a writer.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
_PLAIN, _EXECUTABLE = 0o444, 0o555
# 2000-01-01: not 0 or 1, since some archive formats cannot hold years before 1980.
SEALED_NS = 946_684_800 * 10**9


class LocalStore:
    """The Store of one machine. `temporary` lies on the file system of `root`."""

    def __init__(self, root: StrPath, disk: Disk = DISK, temporary: Temporary | None = None) -> None:
        self.root = Path(root)
        self.disk = disk
        self.temporary = temporary or Temporary(self.root / "tmp", disk)
        self._base = os.fspath(root)

    def _name(self, hexed: str, executable: bool = False) -> str:
        return f"{self._base}/{hexed[:2]}/{hexed}.x" if executable else f"{self._base}/{hexed[:2]}/{hexed}"

    def contains(self, digest: Digest) -> bool:
        name = self._name(digest.hex)
        return os.path.exists(name) or os.path.exists(name + ".x")

    def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        return {digest for digest in digests if not self.contains(digest)}

    def read(self, digest: Digest) -> bytes | None:
        hexed = digest.hex
        for executable in (False, True):
            try:
                with open(self._name(hexed, executable), "rb") as file:
                    # One byte more than promised is enough to see that it is wrong.
                    data = file.read(digest.size + 1)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk_problem(error, self._name(hexed, executable)) from error
            if len(data) != digest.size:
                raise wrong_blob(digest, f"it should have {digest.size} bytes and has {_count(data, digest)}")
            if blake3(data).digest() != digest.hash:
                raise wrong_blob(digest, "its bytes have another digest")
            return data
        return None

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        found = self.find(digest, executable)
        return None if found is None else Path(found)

    def find(self, digest: Digest, executable: bool = False) -> str | None:
        """`path` as a plain string, for loops over many files."""
        name = self._name(digest.hex, executable)
        try:
            if self._sound(name, digest, executable):
                return name
            other = self._name(digest.hex, not executable)
            if not self._sound(other, digest, not executable):
                return None
            # The mode belongs to the inode, so the other mode needs the bytes a second time.
            with suppress(FileNotFoundError):
                self._place(self._copied(other), name, executable)
                return name
        except OSError as error:
            raise disk_problem(error, name) from error
        return None

    def _sound(self, name: str, digest: Digest, executable: bool) -> bool:
        """Whether the blob is there. Raises IntegrityError when it was changed since it was sealed."""
        try:
            found = os.stat(name)
        except FileNotFoundError:
            return False
        if found.st_size != digest.size:
            raise wrong_blob(digest, f"it should have {digest.size} bytes and has {found.st_size}")
        if found.st_mtime_ns != SEALED_NS:
            if hash_file(name, exclusive=True) != digest:
                raise wrong_blob(digest, "its bytes have another digest")
            # Small records are put without a seal, and somebody may only have touched it.
            self.disk.seal(name, _EXECUTABLE if executable else _PLAIN, SEALED_NS)
        return True

    def put(self, data: bytes) -> Digest:
        digest = Digest.of(data)
        name = self._name(digest.hex)
        try:
            if not _has_size(name, digest.size):
                temporary = self._temporary()
                try:
                    self.disk.write(temporary, data, _PLAIN)
                except FileNotFoundError:
                    self.temporary.prepare()
                    self.disk.write(temporary, data, _PLAIN)
                self._finish(temporary, name)
        except OSError as error:
            raise disk_problem(error, name) from error
        return digest

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        source = os.fspath(path)
        try:
            if not move:
                return self._put_copy(source, executable)
            digest, links = _digest_of(source)
            name = self._name(digest.hex, executable)
            if _has_size(name, digest.size):
                # Also when the source is a hard link to that very blob: a rename would do nothing and leave it.
                self.disk.unlink(source)
            elif links > 1:
                # The inode has another name, perhaps outside: in the store it could be changed from there.
                self._place(self._copied(source), name, executable)
                self.disk.unlink(source)
            else:
                self._place(source, name, executable)
        except OSError as error:
            raise disk_problem(error, source) from error
        return digest

    def _put_copy(self, source: str, executable: bool) -> Digest:
        # The copy is hashed, not the source, which may be changing under us.
        temporary = self._copied(source)
        try:
            digest = _digest_of(temporary)[0]
            name = self._name(digest.hex, executable)
            if _has_size(name, digest.size):
                self.disk.unlink(temporary)
            else:
                self._place(temporary, name, executable)
        except BaseException:
            self._drop(temporary)
            raise
        return digest

    def _copied(self, source: str) -> str:
        temporary = self._temporary()
        if not stat.S_ISREG(os.stat(source).st_mode):
            raise EnvironmentProblem(f"`{source}` is not a regular file")
        try:
            self.disk.copy(source, temporary, 0o600)
        except FileNotFoundError:
            self.temporary.prepare()
            self.disk.copy(source, temporary, 0o600)
        return temporary

    def _place(self, source: str, name: str, executable: bool) -> None:
        self.disk.seal(source, _EXECUTABLE if executable else _PLAIN, SEALED_NS)
        try:
            self.disk.rename(source, name)
        except FileNotFoundError:
            self.disk.makedirs(os.path.dirname(name))
            self.disk.rename(source, name)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # Written on another file system than the store's: the one case of an output that is copied.
            self._place(self._copied(source), name, executable)
            self.disk.unlink(source)

    def _finish(self, temporary: str, name: str) -> None:
        try:
            try:
                self.disk.rename(temporary, name)
            except FileNotFoundError:
                self.disk.makedirs(os.path.dirname(name))
                self.disk.rename(temporary, name)
        except BaseException:
            self._drop(temporary)
            raise

    def _temporary(self) -> str:
        return self.temporary.name()

    def _drop(self, temporary: str) -> None:
        with suppress(OSError):
            self.disk.unlink(temporary)

    def delete(self, digest: Digest) -> None:
        name = self._name(digest.hex)
        with disk_problems(name):
            for each in (name, name + ".x"):
                with suppress(FileNotFoundError):
                    self.disk.unlink(each)

    def files(self, changed_since_ns: int | None = None) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Every file of the store: the hex of its digest (its length is not in the name) and where it is.

        With a time, folders to which no name was added or removed since are left out.
        """
        with disk_problems(self._base):
            for folder in sorted(_folders(self._base)):
                if changed_since_ns is not None and os.stat(f"{self._base}/{folder}").st_mtime_ns < changed_since_ns:
                    continue
                with os.scandir(f"{self._base}/{folder}") as entries:
                    for entry in sorted(entries, key=lambda entry: entry.name):
                        hexed = entry.name.removesuffix(".x")
                        if len(hexed) == 64 and hexed.startswith(folder):
                            yield hexed, entry


def _folders(base: str) -> list[str]:
    try:
        return [name for name in os.listdir(base) if len(name) == 2]
    except FileNotFoundError:
        return []


def _has_size(name: str, size: int) -> bool:
    """Whether a file of that size is there. One of another size is damaged, and the good bytes replace it."""
    try:
        return os.stat(name).st_size == size
    except FileNotFoundError:
        return False


def _digest_of(path: str) -> tuple[Digest, int]:
    """The digest of a file that is ours alone, and how many names its inode has."""
    fd = os.open(path, _READ)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise EnvironmentProblem(f"`{path}` is not a regular file")
        if found.st_size <= _SMALL:
            data = os.read(fd, found.st_size + 1)
            if len(data) == found.st_size:
                return Digest(blake3(data).digest(), found.st_size), found.st_nlink
    finally:
        os.close(fd)
    return hash_file(path, exclusive=True), found.st_nlink


def _count(data: bytes, digest: Digest) -> str:
    return "more" if len(data) > digest.size else str(len(data))
