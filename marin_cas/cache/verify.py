"""Reading every blob again: the one check that a size and a read-only mode cannot stand in for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from marin_cas.cache.cache import Cache
from marin_cas.cache.entry import UNREADABLE
from marin_cas.cache.listing import results
from marin_cas.digest import Digest, hash_file
from marin_cas.disk import disk_problem, disk_problems
from marin_cas.errors import IntegrityError
from marin_cas.tree.walk import first_missing


@dataclass(frozen=True, slots=True)
class Wrong:
    """A file of the store whose bytes have another digest than its name says."""

    digest: str
    path: str
    found: str


@dataclass(frozen=True, slots=True)
class Hollow:
    """A result some of whose bytes are gone: `blob` is one of them. No damage: it is built again when needed."""

    label: str
    key: Digest
    output: str
    blob: Digest


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """`entries` are damaged files of the action cache, which count as absent."""

    files: int
    bytes: int
    wrong: tuple[Wrong, ...]
    hollow: tuple[Hollow, ...]
    entries: tuple[str, ...]
    removed: int

    @property
    def ok(self) -> bool:
        """Nothing is damaged, or all that was is removed."""
        return len(self.wrong) == self.removed


def verify(
    cache: Cache,
    sample: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    repair: bool = False,
) -> VerifyReport:
    """Hashes all blobs, or a random `sample` (0 to 1) of them; `progress` is told files done and in all.

    With `repair` wrong blobs are removed, so that they are built again, and with them the trees that people see.
    """
    files = [(hexed, entry.path) for hexed, entry in cache.store.files()]
    if sample is not None:
        files = [each for each in files if random.random() < sample]
    wrong: list[Wrong] = []
    total = removed = 0
    for done, (hexed, path) in enumerate(files):
        if progress is not None:
            progress(done, len(files))
        try:
            found = hash_file(path, exclusive=True)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise disk_problem(error, path) from error
        total += found.size
        if found.hex != hexed:
            wrong.append(Wrong(hexed, path, str(found)))
            if repair:
                with disk_problems(path):
                    cache.disk.unlink(path)
                removed += 1
    if removed:
        # What people see may share those bytes, in any tree; it is made again from the store when next wanted.
        with disk_problems(cache.root):
            cache.disk.remove_tree(cache.root / "trees")
    if progress is not None:
        progress(len(files), len(files))
    damaged = tuple(
        f"{cache.root}/ac/{hexed[:2]}/{hexed}/{entry.n}"
        for hexed in cache.actions.all_keys()
        for entry in cache.actions.entries(hexed)
        if entry.state == UNREADABLE
    )
    return VerifyReport(len(files), total, tuple(wrong), _hollow(cache), damaged, removed)


def _hollow(cache: Cache) -> tuple[Hollow, ...]:
    found: list[Hollow] = []
    for result in results(cache):
        for name, output in result.outputs.items():
            try:
                blob = first_missing(cache.store, output.kind, output.digest)
            except IntegrityError:
                continue  # a damaged record: among the wrong ones
            if blob is not None:
                found.append(Hollow(result.label, result.key, name, blob))
    return tuple(found)
