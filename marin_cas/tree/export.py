"""A private, writable copy of a file or tree somewhere else: checked as it is made, under its name only when whole."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress

from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problem
from marin_cas.errors import RequestError
from marin_cas.recipe import TREE
from marin_cas.store.base import MissingBlob, Store
from marin_cas.store.process import this_process
from marin_cas.tree.materialise import materialise

# Two names of one file are how a name is taken only if it is free; some file systems know no second name.
_NO_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def export(
    store: Store,
    kind: str,
    digest: Digest,
    dest: StrPath,
    *,
    executable: bool = False,
    replace: bool = False,
    keep: Iterable[StrPath] = (),
    disk: Disk = DISK,
) -> None:
    """Copies to `dest`, which must not exist unless `replace`; what is replaced is there until the copy is whole.

    A folder is never replaced that is or holds one of `keep`. Raises RequestError for a `dest` that may not be written,
    MissingBlob, IntegrityError, and EnvironmentProblem for the disk; then `dest` is as it was.
    """
    target = os.path.abspath(dest)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise RequestError(f"the folder `{folder}` does not exist", hint="create it, or name another place")
    if os.path.lexists(target):
        _check(os.fspath(dest), target, replace, keep)
    temporary = f"{folder}/.{os.path.basename(target)[:100]}.{this_process().prefix}"
    try:
        try:
            _copy(store, kind, digest, f"{temporary}new", executable, disk)
            _finish(f"{temporary}new", target, f"{temporary}old", replace, disk)
        finally:
            disk.remove_tree(f"{temporary}new")
    except FileExistsError:
        raise _taken(os.fspath(dest)) from None
    except OSError as error:
        raise disk_problem(error, target) from error


def _check(dest: str, target: str, replace: bool, keep: Iterable[StrPath]) -> None:
    if not replace:
        raise _taken(dest)
    if os.path.isdir(target) and not os.path.islink(target):
        real = os.path.realpath(target)
        for each in keep:
            if os.path.commonpath([real, os.path.realpath(each)]) == real:
                raise RequestError(
                    f"`{dest}` holds `{os.fspath(each)}`, and is not replaced", hint="name another place"
                )


def _taken(dest: str) -> RequestError:
    inside = ", or name a place in it" if os.path.isdir(dest) else ""
    return RequestError(f"`{dest}` exists", hint=f"`--force` replaces it{inside}")


def _copy(store: Store, kind: str, digest: Digest, path: str, executable: bool, disk: Disk) -> None:
    if kind == TREE:
        materialise(store, TREE, digest, path, writable=True, disk=disk)
    elif not store.fetch(digest, path):
        raise MissingBlob(digest)
    else:
        disk.chmod(path, (0o777 if executable else 0o666) & ~_umask())


def _finish(made: str, target: str, aside: str, replace: bool, disk: Disk) -> None:
    is_folder = os.path.isdir(made)
    if not replace:
        if not is_folder:
            try:
                # Somebody may have taken the name meanwhile, and a rename would overwrite it.
                disk.link(made, target)
                return
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
        disk.rename(made, target)
        return
    if is_folder or os.path.isdir(target):
        with suppress(FileNotFoundError):
            disk.rename(target, aside)
        try:
            disk.rename(made, target)
        except BaseException:
            with suppress(OSError):
                disk.rename(aside, target)
            raise
        disk.remove_tree(aside)
        return
    disk.rename(made, target)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
