"""From files on disk to blobs and tree records: everything is looked at before the first file is taken.

So a tree that must be refused (a socket, a link that leads out) is still whole for whoever asks why.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from marin_cas.digest import Digest
from marin_cas.disk import StrPath, disk_problem
from marin_cas.errors import BuildError
from marin_cas.recipe import FILE, TREE
from marin_cas.store.base import Store
from marin_cas.store.local import LocalStore
from marin_cas.tree.entries import DirEntry, Entry, FileEntry, LinkEntry, Tree
from marin_cas.tree.names import link_problem


@dataclass(frozen=True, slots=True)
class Ingested:
    """`files` and `bytes` count the regular files, not the records."""

    kind: str
    digest: Digest
    files: int
    bytes: int


@dataclass(slots=True)
class _Folder:
    path: str  # on disk
    name: str
    parent: int  # index of the folder that holds it
    depth: int
    files: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


def ingest(store: Store, path: StrPath, *, move: bool) -> Ingested:
    """Keeps the file or folder at `path`, an output that nobody writes to any more.

    With `move` its files become the store's and only empty folders and links stay behind. Raises BuildError naming
    what cannot be kept, and EnvironmentProblem when the disk is in the way; then files may be in the store already,
    whole and harmless, and calling again with what is left is wrong: run the action again.
    """
    root = os.fspath(path)
    try:
        mode = os.lstat(root).st_mode
        if stat.S_ISREG(mode):
            digest = store.put_file(root, move=move)
            return Ingested(FILE, digest, 1, digest.size)
        if not stat.S_ISDIR(mode):
            raise _refused(root, "", _what(mode))
        folders, files = _look(root, move)
    except OSError as error:
        raise disk_problem(error, root) from error
    return _take(store, folders, files, move)


def _look(root: str, move: bool) -> tuple[list[_Folder], int]:
    """All folders, each after the one that holds it, and the number of regular files."""
    folders = [_Folder(root, "", -1, 0)]
    files = 0
    # The list grows while it is walked: no recursion, however deep the tree.
    for index, folder in enumerate(folders):
        if move:
            _open_up(folder.path)
        with os.scandir(folder.path) as found:
            for entry in found:
                name = entry.name
                if not name.isascii():
                    _check_utf8(root, entry.path)
                if entry.is_file(follow_symlinks=False):
                    folder.files.append(name)
                    files += 1
                elif entry.is_symlink():
                    target = os.readlink(entry.path)
                    problem = link_problem(target, folder.depth)
                    if problem:
                        raise _refused(root, entry.path, problem)
                    folder.entries.append(LinkEntry(name, target))
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(_Folder(entry.path, name, index, folder.depth + 1))
                else:
                    raise _refused(root, entry.path, _what(entry.stat(follow_symlinks=False).st_mode))
    return folders, files


def _take(store: Store, folders: list[_Folder], files: int, move: bool) -> Ingested:
    total = 0
    digest = Digest.of(b"")
    # Children come after their parents in the list, so backwards every folder is complete when its turn comes, and
    # a record is stored after all that it names.
    while folders:
        folder = folders.pop()
        entries = folder.entries
        for name, (blob, executable) in zip(folder.files, _kept(store, folder, move), strict=True):
            entries.append(FileEntry(name, blob, executable))
            total += blob.size
        digest = store.put(Tree.of(entries).record())
        if folder.parent >= 0:
            folders[folder.parent].entries.append(DirEntry(folder.name, digest))
    return Ingested(TREE, digest, files, total)


def _kept(store: Store, folder: _Folder, move: bool) -> Iterator[tuple[Digest, bool]]:
    """The digest of each file of a folder, now in the store, and whether it is executable."""
    if move and isinstance(store, LocalStore):
        yield from store.put_files(folder.path, folder.files)
        return
    for name in folder.files:
        path = f"{folder.path}/{name}"
        try:
            executable = bool(os.lstat(path).st_mode & stat.S_IXUSR)
        except OSError as error:
            raise disk_problem(error, path) from error
        yield store.put_file(path, move=move, executable=executable), executable


def _open_up(path: str) -> None:
    # A tool may leave a folder read-only, and then not even its owner can take a file out.
    mode = os.lstat(path).st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(path, stat.S_IMODE(mode) | stat.S_IRWXU)


def _check_utf8(root: str, path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise _refused(root, path, "has a name that is not UTF-8") from None


def _refused(root: str, path: str, why: str) -> BuildError:
    shown = os.path.relpath(path, root) if path else os.path.basename(root)
    # A name that is not UTF-8 is shown with its bytes as escapes, since it must be named and cannot be printed.
    shown = os.fsencode(shown).decode("utf-8", "backslashreplace")
    return BuildError(f"`{shown}` {why}", hint="an output may hold regular files, folders and links within itself")


def _what(mode: int) -> str:
    for test, name in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISBLK, "a block device"),
        (stat.S_ISCHR, "a character device"),
    ):
        if test(mode):
            return f"is {name}, which cannot be stored"
    return "is not a regular file, a folder or a link"
