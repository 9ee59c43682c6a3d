"""How far a check of all blobs has come: a small disposable file, so that a check that was cut short goes on there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from marin_cas.cache.cache import Cache
from marin_cas.cache.small import read_small, replace_small
from marin_cas.disk import disk_problems
from marin_cas.errors import MarinError


@dataclass(frozen=True, slots=True)
class Cursor:
    """`after` is the name of the last file of the store that was looked at: they come in the order of their names.

    `share` (0 to 1) and `seed` say which are looked at. `files` and `bytes` were hashed; `suspects` are the names of
    those that were wrong or could not be read. `began` is in Unix seconds.
    """

    began: float
    share: float = 1.0
    seed: int = 0
    after: str = ""
    files: int = 0
    bytes: int = 0
    suspects: tuple[str, ...] = ()

    def chooses(self, hexed: str) -> bool:
        """Whether a blob is in the sample: another one for each seed, and whole blobs, small or large."""
        return (int(hexed[:8], 16) ^ self.seed) < self.share * 2**32


def load(cache: Cache) -> Cursor | None:
    """Where the last check was cut short; None when it was not, or the file is damaged."""
    data = read_small(_path(cache))
    if data is None:
        return None
    try:
        fields = json.loads(data)
        cursor = Cursor(**{**fields, "suspects": tuple(map(str, fields["suspects"]))})
        return replace(
            cursor,
            began=float(cursor.began),
            share=float(cursor.share),
            seed=int(cursor.seed),
            after=str(cursor.after),
            files=int(cursor.files),
            bytes=int(cursor.bytes),
        )
    except (ValueError, TypeError, KeyError):
        return None


def save(cache: Cache, cursor: Cursor) -> None:
    """Notes it, where the cache can be written: otherwise the next check begins anew."""
    with suppress(MarinError):
        replace_small(cache.disk, cache.temporary, _path(cache), json.dumps(asdict(cursor)).encode())


def forget(cache: Cache) -> None:
    path = _path(cache)
    if os.path.exists(path):
        with disk_problems(path):
            cache.disk.unlink(path)


def _path(cache: Cache) -> str:
    return f"{cache.root}/verify"
