"""From blobs and tree records to files on disk: by reflink, else hard link, else copy.

What is made shares bytes with the store, is read-only and sealed as the store's files are, unless private copies are
asked for.
"""

from __future__ import annotations

import errno
import os
import unicodedata

from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problem
from marin_cas.errors import EnvironmentProblem
from marin_cas.recipe import TREE
from marin_cas.store.base import MissingBlob, Store
from marin_cas.store.local import SEALED_NS, LocalStore
from marin_cas.tree.entries import DirEntry, FileEntry, Tree
from marin_cas.tree.walk import read_tree

# A blob at its limit of names, a file system that forbids the link, another file system: each can still be copied.
_NO_LINK = {errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS}


def materialise(
    store: Store, kind: str, digest: Digest, dest: StrPath, *, writable: bool = False, disk: Disk = DISK
) -> None:
    """Makes the file or tree at `dest`, which does not exist yet (a tree may use an empty folder that does).

    With `writable` all bytes are private copies with ordinary modes, each checked as it is made. Raises MissingBlob for
    a blob that is gone, IntegrityError for a damaged record or blob (bytes of linked blobs are read again only where
    size or seal say that they changed), and EnvironmentProblem for the disk and for names that this file system takes
    for one. After an error the caller removes what was made.
    """
    target = os.fspath(dest)
    try:
        if kind == TREE:
            _tree(store, digest, target, writable, disk)
        else:
            _file(store, FileEntry(os.path.basename(target), digest), target, writable, disk)
    except OSError as error:
        raise disk_problem(error, target) from error


def _tree(store: Store, digest: Digest, dest: str, writable: bool, disk: Disk) -> None:
    try:
        disk.mkdir(dest)
    except FileExistsError:
        if not os.path.isdir(dest) or os.path.islink(dest) or os.listdir(dest):
            raise
    pending = [(digest, dest, 0)]
    while pending:
        at, folder, depth = pending.pop()
        tree = read_tree(store, at, depth)
        for entry in tree.entries:
            path = f"{folder}/{entry.name}"
            try:
                if isinstance(entry, FileEntry):
                    _file(store, entry, path, writable, disk)
                elif isinstance(entry, DirEntry):
                    disk.mkdir(path)
                    pending.append((entry.digest, path, depth + 1))
                else:
                    disk.symlink(entry.target, path)
            except FileExistsError as error:
                raise _clash(tree, entry.name, folder) or error from error


def _file(store: Store, entry: FileEntry, path: str, writable: bool, disk: Disk) -> None:
    digest, executable = entry.digest, entry.executable
    source = None
    if not writable:
        # The plain string when the store has one: a tree may have a million files.
        source = store.find(digest, executable) if isinstance(store, LocalStore) else store.path(digest, executable)
    if source is not None:
        _shared(source, entry, path, disk)
        return
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    if not store.fetch(digest, path):
        raise MissingBlob(digest, f"`{entry.name}`")
    if not writable:
        disk.seal(path, 0o555 if executable else 0o444, SEALED_NS)
    elif executable:
        disk.chmod(path, 0o755)


def _shared(source: StrPath, entry: FileEntry, path: str, disk: Disk) -> None:
    """The same file as `source`, or one that shares its blocks, or a copy; sealed in any case."""
    mode = 0o555 if entry.executable else 0o444
    try:
        if not disk.clone(source, path, mode):
            try:
                disk.link(source, path)
                return
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                disk.copy(source, path, mode)
    except FileNotFoundError:
        # Deleted between the look and the link; or the destination's folder is what is missing.
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise
        raise MissingBlob(entry.digest, f"`{entry.name}`") from None
    disk.seal(path, mode, SEALED_NS)


def _clash(tree: Tree, name: str, folder: str) -> EnvironmentProblem | None:
    """The error for a name that is taken, when a sibling that folds to the same text explains it."""
    folded = _fold(name)
    twins = [entry.name for entry in tree.entries if entry.name != name and _fold(entry.name) == folded]
    if not twins:
        return None
    return EnvironmentProblem(
        f"`{twins[0]}` and `{name}` are one name on the file system of `{folder}`",
        hint="put the cache on a file system that tells upper and lower case apart, or rename one of the two",
    )


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
