"""Blobs in a folder: `ab/<64 hex>` (0444), and for an executable a second inode `ab/<64 hex>.x` (0555).

A name appears by rename, after its bytes were hashed; so a file under a digest's name was once right. A blob is sealed
with one constant modification time: 0444 keeps nobody from writing who really wants to, but a write moves the time, and
then the bytes are hashed again before anyone gets them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from blake3 import blake3

from marin_cas.digest import Digest, hash_file, hash_open
from marin_cas.disk import DISK, Disk, StrPath, disk_problem, disk_problems
from marin_cas.errors import EnvironmentProblem
from marin_cas.store.base import wrong_blob
from marin_cas.store.gate import Gate
from marin_cas.store.temporary import Temporary

# How many files are put in place in one hold of the gate: some milliseconds.
_BATCH = 64
# Without O_NONBLOCK, opening a pipe waits for a writer.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
_PLAIN, _EXECUTABLE = 0o444, 0o555
# 2000-01-01: not 0 or 1, since some archive formats cannot hold years before 1980.
SEALED_NS = 946_684_800 * 10**9


class LocalStore:
    """The Store of one machine. `temporary` lies on the file system of `root`.

    With a `gate`, "it is there and is used now" and "it is put there" happen while nobody deletes. A blob was last used
    at its inode's ctime: putting it again moves that, as does a link made or removed.
    """

    def __init__(
        self, root: StrPath, disk: Disk = DISK, temporary: Temporary | None = None, gate: Gate | None = None
    ) -> None:
        self.root = Path(root)
        self.disk = disk
        self.temporary = temporary or Temporary(self.root / "tmp", disk)
        self._base = os.fspath(root)
        self._using = gate.shared if gate else nullcontext

    def _name(self, hexed: str, executable: bool = False) -> str:
        return f"{self._base}/{hexed[:2]}/{hexed}.x" if executable else f"{self._base}/{hexed[:2]}/{hexed}"

    def names(self, hexed: str) -> tuple[str, str]:
        """The files in which the blob with that hash may be: plain and executable."""
        return self._name(hexed), self._name(hexed, executable=True)

    def known(self, hexed: str) -> Digest | None:
        """The digest of the blob with that hash, by the length that its file has; None when absent."""
        for name in self.names(hexed):
            with disk_problems(name), suppress(FileNotFoundError):
                return Digest(bytes.fromhex(hexed), os.stat(name).st_size)
        return None

    def contains(self, digest: Digest) -> bool:
        name = self._name(digest.hex)
        return os.access(name, os.F_OK) or os.access(name + ".x", os.F_OK)

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
                temporary = self._copied(other)
                self.disk.seal(temporary, _mode(executable), SEALED_NS)
                self._settle(temporary, digest, executable)
                return name
        except OSError as error:
            raise disk_problem(error, name) from error
        return None

    def _sound(self, name: str, digest: Digest, executable: bool) -> bool:
        """Whether the blob is there. Raises IntegrityError when it was changed since it was sealed."""
        try:
            found = os.stat(name)
            if found.st_size != digest.size:
                raise wrong_blob(digest, f"it should have {digest.size} bytes and has {found.st_size}")
            if found.st_mtime_ns != SEALED_NS:
                if hash_file(name, exclusive=True) != digest:
                    raise wrong_blob(digest, "its bytes have another digest")
                # Somebody may only have touched it.
                self.disk.seal(name, _mode(executable), SEALED_NS)
        except FileNotFoundError:
            return False
        return True

    def fetch(self, digest: Digest, path: StrPath) -> bool:
        target = os.fspath(path)
        for executable in (False, True):
            name = self._name(digest.hex, executable)
            try:
                self.disk.copy(name, target, 0o644)
            except FileNotFoundError as error:
                if not os.path.isdir(os.path.dirname(target) or "."):
                    raise disk_problem(error, target) from error
                continue
            except OSError as error:
                raise disk_problem(error, target) from error
            try:
                with disk_problems(target):
                    found = hash_file(target, exclusive=True)
                if found != digest:
                    raise wrong_blob(digest, f"it has the bytes of `{found.short}`")
            except BaseException:
                self._drop(target)
                raise
            return True
        return False

    def put(self, data: bytes) -> Digest:
        digest = Digest.of(data)
        name = self._name(digest.hex)
        try:
            with self._using():
                if self._use(name, digest, executable=False):
                    return digest
            temporary = self.temporary.name()
            try:
                try:
                    self.disk.write(temporary, data, _PLAIN)
                except FileNotFoundError:
                    self.temporary.prepare()
                    self.disk.write(temporary, data, _PLAIN)
                self.disk.seal(temporary, _PLAIN, SEALED_NS)
                self._settle(temporary, digest, executable=False)
            except BaseException:
                self._drop(temporary)
                raise
        except OSError as error:
            raise disk_problem(error, name) from error
        return digest

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        source = os.fspath(path)
        try:
            return self._put_moved([source], executable)[0][0] if move else self._put_copy(source, executable)
        except OSError as error:
            raise disk_problem(error, source) from error

    def put_files(self, folder: str, names: Sequence[str]) -> list[tuple[Digest, bool]]:
        """Moves files of one folder in, as `put_file` does, and tells which are executable: each by its own mode.

        For trees of many small files: it holds the gate for many of them at a time.
        """
        kept: list[tuple[Digest, bool]] = []
        try:
            for at in range(0, len(names), _BATCH):
                kept += self._put_moved([f"{folder}/{name}" for name in names[at : at + _BATCH]], None)
        except OSError as error:
            raise disk_problem(error, folder) from error
        return kept

    def _put_moved(self, sources: Sequence[str], executable: bool | None) -> list[tuple[Digest, bool]]:
        taken = [self._take(source, executable) for source in sources]
        copied: list[int] = []
        with self._using():
            for at, (source, (digest, runs, alone)) in enumerate(zip(sources, taken, strict=True)):
                name = self._name(digest.hex, runs)
                if self._use(name, digest, runs):
                    # Also when the source is a hard link to that very blob: a rename would do nothing and leave it.
                    self.disk.unlink(source)
                elif not alone or not self._moved(source, name):
                    copied.append(at)
        kept = [(digest, runs) for digest, runs, _ in taken]
        for at in copied:
            kept[at] = self._put_copy(sources[at], kept[at][1]), kept[at][1]
            self.disk.unlink(sources[at])
        return kept

    def _put_copy(self, source: str, executable: bool) -> Digest:
        # The copy is hashed, not the source, which may be changing under us.
        temporary = self._copied(source)
        try:
            digest = self._take(temporary, executable)[0]
            self._settle(temporary, digest, executable)
        except BaseException:
            self._drop(temporary)
            raise
        return digest

    def _take(self, path: str, executable: bool | None) -> tuple[Digest, bool, bool]:
        """The digest of a file that is to be a blob, whether it is executable, and whether its inode has one name."""
        fd = os.open(path, _READ)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise EnvironmentProblem(f"`{path}` is not a regular file")
            if executable is None:
                executable = bool(found.st_mode & stat.S_IXUSR)
            if found.st_nlink == 1:
                # Sealed first, so that who writes while it is hashed breaks the seal.
                self.disk.seal(path, _mode(executable), SEALED_NS, fd)
            return hash_open(fd, found.st_size, exclusive=True), executable, found.st_nlink == 1
        finally:
            os.close(fd)

    def _copied(self, source: str) -> str:
        temporary = self.temporary.name()
        if not stat.S_ISREG(os.stat(source).st_mode):
            raise EnvironmentProblem(f"`{source}` is not a regular file")
        try:
            self.disk.copy(source, temporary, 0o600)
        except FileNotFoundError:
            self.temporary.prepare()
            self.disk.copy(source, temporary, 0o600)
        return temporary

    def _use(self, name: str, digest: Digest, executable: bool) -> bool:
        """Marks a blob as used now. False when it is absent or was changed, so that good bytes shall replace it."""
        try:
            found = os.stat(name)
            if found.st_size != digest.size or found.st_mtime_ns != SEALED_NS:
                return False
            self.disk.seal(name, _mode(executable), SEALED_NS)
        except FileNotFoundError:
            return False
        return True

    def _settle(self, source: str, digest: Digest, executable: bool) -> None:
        """Makes a sealed file of ours the blob, or removes it where the blob is there already."""
        name = self._name(digest.hex, executable)
        with self._using():
            if self._use(name, digest, executable):
                self.disk.unlink(source)
            else:
                self._rename(source, name)

    def _moved(self, source: str, name: str) -> bool:
        """False when the source was written on another file system than the store's."""
        try:
            self._rename(source, name)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
        return True

    def _rename(self, source: str, name: str) -> None:
        try:
            self.disk.rename(source, name)
        except FileNotFoundError:
            self.disk.makedirs(os.path.dirname(name))
            self.disk.rename(source, name)

    def _drop(self, temporary: str) -> None:
        with suppress(OSError):
            self.disk.unlink(temporary)

    def delete(self, digest: Digest) -> None:
        name = self._name(digest.hex)
        with disk_problems(name):
            for each in (name, name + ".x"):
                with suppress(FileNotFoundError):
                    self.disk.unlink(each)

    def delete_unused(self, hexed: str, before_ns: int) -> int | None:
        """Forgets a blob last used before that time (ns, the file system's clock). Called with the gate all to oneself.

        Returns the bytes that the disk gets back, which is 0 for a file that has other names, or None, and nothing is
        deleted, when the blob was used since. Raises EnvironmentProblem.
        """
        name = self._name(hexed)
        freed, names = 0, []
        with disk_problems(name):
            for each in (name, name + ".x"):
                with suppress(FileNotFoundError):
                    found = os.stat(each)
                    if found.st_ctime_ns >= before_ns:
                        return None
                    names.append(each)
                    freed += found.st_size if found.st_nlink == 1 else 0
            for each in names:
                self.disk.unlink(each)
        return freed

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


def _mode(executable: bool) -> int:
    return _EXECUTABLE if executable else _PLAIN


def _count(data: bytes, digest: Digest) -> str:
    return "more" if len(data) > digest.size else str(len(data))
