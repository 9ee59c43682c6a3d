"""Every disk write of the store and the cache: one method a kind of call, so that a test can make the n-th one fail.

Methods raise OSError with `filename` set. No method leaves a file under its final name half written: what must
appear at once is written under a temporary name and then linked or renamed.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from marin_cas.errors import EnvironmentProblem

type StrPath = str | os.PathLike[str]

_FICLONE = 0x40049409
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_COPY_CHUNK = 16 << 20
# What a kernel answers when it cannot clone between these two files, rather than when something is broken.
_NO_CLONE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
_NO_COPY_RANGE = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}

_WHY = {
    errno.ENOSPC: ("the disk is full", "free some space (`marin cache gc` deletes what nothing needs), and repeat it"),
    errno.EDQUOT: ("your disk quota is used up", "free some space (`marin cache gc` deletes what nothing needs)"),
    errno.EFBIG: ("the file would be larger than is allowed here", "raise the limit on file sizes (`ulimit -f`)"),
    errno.EIO: ("the disk reported an input/output error", "look at `dmesg` and at the disk's health"),
    errno.EROFS: ("the file system is read-only", "choose a writable folder with `cache = ...` in `marin.toml`"),
    errno.EACCES: ("you may not do that there", "check who owns the folder"),
    errno.EPERM: ("you may not do that there", "check who owns the folder"),
    errno.EMFILE: ("this process has too many open files", "raise the limit (`ulimit -n`)"),
    errno.ENFILE: ("this machine has too many open files", "close other programs"),
    errno.ENAMETOOLONG: ("a name or path is too long for the file system", "use shorter names"),
}


def disk_problem(error: OSError, path: StrPath | None = None) -> EnvironmentProblem:
    """What to tell a user about a failed disk call: the path, why, and one next step."""
    name = error.filename if error.filename is not None else path
    why, hint = _WHY.get(error.errno or 0, (error.strerror or str(error), None))
    return EnvironmentProblem(f"`{os.fsdecode(name) if name is not None else '?'}`: {why}", hint=hint)


@contextmanager
def disk_problems(path: StrPath) -> Iterator[None]:
    """Turns an OSError of its body into an EnvironmentProblem that names the file, or else `path`."""
    try:
        yield
    except OSError as error:
        raise disk_problem(error, path) from error


def names_in(folder: StrPath) -> list[str]:
    """The names in a folder, in no order; none when there is no such folder."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


class Disk:
    """The real disk. Safe for use by several threads."""

    def __init__(self) -> None:
        self._no_clone: set[tuple[int, int]] = set()  # pairs of devices between which cloning was refused

    def write(self, path: StrPath, data: bytes, mode: int = 0o644) -> None:
        """A new file holding `data`; FileExistsError when the name is taken."""
        fd = os.open(path, _NEW, 0o600)
        try:
            with _named(path):
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fchmod(fd, mode)
        except BaseException:
            os.close(fd)
            _forget(path)
            raise
        os.close(fd)

    def append(self, path: StrPath, data: bytes) -> None:
        """One write at the end of a file, made when absent: whole lines of several processes never mix."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            with _named(path):
                if os.write(fd, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        finally:
            os.close(fd)

    def clone(self, source: StrPath, path: StrPath, mode: int) -> bool:
        """A new file that shares `source`'s blocks, or False where the file system cannot do that."""
        pair = (os.stat(source).st_dev, os.stat(os.path.dirname(os.fspath(path)) or ".").st_dev)
        if pair[0] != pair[1] or pair in self._no_clone:
            return False
        import fcntl

        reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            writer = os.open(path, _NEW, 0o600)
            try:
                with _named(path):
                    fcntl.ioctl(writer, _FICLONE, reader)
                    os.fchmod(writer, mode)
            except BaseException as error:
                _forget(path)
                if isinstance(error, OSError) and error.errno in _NO_CLONE:
                    self._no_clone.add(pair)
                    return False
                raise
            finally:
                os.close(writer)
        finally:
            os.close(reader)
        return True

    def copy(self, source: StrPath, path: StrPath, mode: int) -> None:
        """A new file with `source`'s bytes of its own; shares blocks where the file system can."""
        if self.clone(source, path, mode):
            return
        reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            writer = os.open(path, _NEW, 0o600)
            try:
                with _named(path):
                    _copy_bytes(reader, writer)
                    os.fchmod(writer, mode)
            except BaseException:
                _forget(path)
                raise
            finally:
                os.close(writer)
        finally:
            os.close(reader)

    def link(self, source: StrPath, path: StrPath) -> None:
        """A second name for a file, created only if absent: the one atomic test-and-set a local disk has."""
        os.link(source, path, follow_symlinks=False)

    def rename(self, source: StrPath, path: StrPath) -> None:
        os.rename(source, path)

    def unlink(self, path: StrPath) -> None:
        os.unlink(path)

    def symlink(self, target: str, path: StrPath) -> None:
        os.symlink(target, path)

    def chmod(self, path: StrPath, mode: int) -> None:
        os.chmod(path, mode)

    def seal(self, path: StrPath, mode: int, mtime_ns: int, fd: int | None = None) -> None:
        """Gives a finished file its mode and its modification time: whoever writes to it later moves the time.

        `fd`, where the caller has the file open, spares two searches for its name.
        """
        file = path if fd is None else fd
        try:
            os.chmod(file, mode)
            os.utime(file, ns=(mtime_ns, mtime_ns))
        except OSError as error:
            error.filename = os.fspath(path)
            raise

    def mkdir(self, path: StrPath) -> None:
        os.mkdir(path)

    def makedirs(self, path: StrPath) -> None:
        os.makedirs(path, exist_ok=True)

    def touch(self, path: StrPath) -> None:
        """Moves the modification time to now. It needs no space, so it works on a full disk."""
        os.utime(path)

    def remove_tree(self, path: StrPath) -> None:
        """Removes a file or a folder with all it holds; what is gone already is fine."""
        name = os.fspath(path)
        if not os.path.isdir(name) or os.path.islink(name):
            with suppress(FileNotFoundError):
                os.unlink(name)
            return
        # Not shutil.rmtree, which recurses: a tool may nest folders deeper than Python its calls.
        found, pending = [], [name]
        while pending:
            folder = pending.pop()
            found.append(folder)
            with suppress(FileNotFoundError):
                pending += _empty(folder)
        for folder in reversed(found):
            with suppress(FileNotFoundError):
                os.rmdir(folder)

    def sync(self, path: StrPath) -> None:
        """Everything written so far to the file system of `path` survives a power cut."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if not hasattr(libc, "syncfs"):
                os.sync()
            elif libc.syncfs(fd) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), os.fspath(path))
        finally:
            os.close(fd)


def _copy_bytes(reader: int, writer: int) -> None:
    kernel = hasattr(os, "copy_file_range")
    while kernel:
        try:
            if not os.copy_file_range(reader, writer, _COPY_CHUNK):
                return
        except OSError as error:
            if error.errno not in _NO_COPY_RANGE:
                raise
            break
    # Both descriptors stand where the kernel left them, so this goes on from there.
    while chunk := os.read(reader, 1 << 20):
        view = memoryview(chunk)
        while view:
            view = view[os.write(writer, view) :]


@contextmanager
def _named(path: StrPath) -> Iterator[None]:
    # Calls on a descriptor leave `filename` empty, and a message must name the file.
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def _forget(path: StrPath) -> None:
    # A temporary name: what cannot be removed now is swept when this process is gone.
    with suppress(OSError):
        os.unlink(path)


def _empty(folder: str) -> list[str]:
    """Removes all but folders from a folder; returns these."""
    # A tool may have left it read-only, and then its entries cannot be removed.
    mode = os.stat(folder).st_mode
    if mode & 0o700 != 0o700:
        os.chmod(folder, 0o700)
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(entry.path)
    return folders


DISK = Disk()
