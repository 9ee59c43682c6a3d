"""Small files that are replaced whole: what fingerprints and refs are kept in."""

from __future__ import annotations

import os
from contextlib import suppress
from urllib.parse import quote

from marin_cas.digest import Digest
from marin_cas.disk import Disk, disk_problem, disk_problems, names_in
from marin_cas.store.temporary import Temporary

_LONGEST = 200


def read_small(path: str) -> bytes | None:
    """The bytes of a file, None when there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_problem(error, path) from error


def replace_small(disk: Disk, temporary: Temporary, path: str, data: bytes) -> None:
    """Makes `path` hold `data`, at once and whole; the folders above it are made. Nothing is written when it does."""
    try:
        if read_small(path) == data:
            return
        name = temporary.name()
        try:
            disk.write(name, data)
        except FileNotFoundError:
            temporary.prepare()
            disk.write(name, data)
        try:
            try:
                disk.rename(name, path)
            except FileNotFoundError:
                disk.makedirs(os.path.dirname(path))
                disk.rename(name, path)
        except BaseException:
            with suppress(OSError):
                disk.unlink(name)
            raise
    except OSError as error:
        raise disk_problem(error, path) from error


def small_names(folder: str) -> list[str]:
    """The names in a folder of small files, in order; none when there is no such folder."""
    with disk_problems(folder):
        return sorted(names_in(folder))


def file_name(text: str) -> str:
    """A file name for any text: itself where that is plain, percent-escaped, or cut short and ended by its digest."""
    name = quote(text, safe="@+=,") if text not in (".", "..") else text.replace(".", "%2E")
    if len(name) <= _LONGEST:
        return name
    return f"{name[:100]}%~{Digest.of(text.encode()).hex}"
