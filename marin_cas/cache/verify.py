"""Reading everything again: the one check that sizes, seals and read-only modes cannot stand in for.

Nothing that is looked at counts as used by it. A run that is cut short, by a kill too, leaves a note of how far it
came, and the next one goes on there.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from marin_cas.cache import cursor as cursors
from marin_cas.cache.cache import Cache
from marin_cas.cache.cursor import Cursor
from marin_cas.cache.entry import UNREADABLE
from marin_cas.cache.laid import wrong_copies
from marin_cas.cache.records import Hollow, Malformed, check_records
from marin_cas.digest import hash_open
from marin_cas.disk import disk_problem, disk_problems

_NOTE_S = 1.0
# A pipe or a link under a blob's name must neither block nor lead elsewhere.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A file of the store whose bytes have another digest than its name says: `found`, or not known (`why`)."""

    digest: str
    path: str
    found: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the blobs: looked at so far, and in all."""

    files: int
    bytes: int
    all_files: int
    all_bytes: int


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """`files` and `bytes` were hashed, by the run that was cut short (`resumed`) too.

    `wrong` blobs have other bytes, `unreadable` ones could not be read. `malformed` records and damaged `entries` of
    the action cache count as absent. `copies` are names under `trees/` of what was laid out and changed. `removed`
    counts what was repaired; `laid` and `unlinked` the links under `out/` that led nowhere then.
    """

    files: int
    bytes: int
    wrong: tuple[Wrong, ...] = ()
    unreadable: tuple[Wrong, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    entries: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    hollow: tuple[Hollow, ...] = ()
    removed: int = 0
    laid: int = 0
    unlinked: int = 0
    resumed: Cursor | None = None

    @property
    def ok(self) -> bool:
        """Nothing is wrong, or all that was is repaired."""
        return self.left == 0

    @property
    def left(self) -> int:
        """How many things are wrong now."""
        repairable = len(self.wrong) + len(self.entries) + len(self.copies)
        return repairable - self.removed + len(self.unreadable) + len(self.malformed)


def verify(
    cache: Cache,
    share: float = 1.0,
    progress: Callable[[Progress], None] | None = None,
    *,
    repair: bool = False,
    restart: bool = False,
) -> VerifyReport:
    """Hashes all blobs, or a random `share` (0 to 1) of them, then looks at records, entries and what is laid out.

    With `repair` what is wrong is removed, so that it is built or laid out again; what cannot be read stays. Raises
    EnvironmentProblem when the disk is in the way of anything but reading a blob.
    """
    resumed = None if restart else cursors.load(cache)
    if resumed is not None and resumed.share != share:
        resumed = None
    state = _State(cache, resumed or Cursor(time.time(), share, random.getrandbits(32)))
    try:
        state.run(progress)
    except BaseException:
        cursors.save(cache, state.cursor)
        raise
    wrong, unreadable = tuple(state.wrong), tuple(state.unreadable)
    hollow, malformed = check_records(cache, {each.digest for each in (*wrong, *unreadable)})
    report = VerifyReport(
        state.cursor.files,
        state.cursor.bytes,
        wrong,
        unreadable,
        malformed,
        tuple(_damaged_entries(cache)),
        tuple(wrong_copies(cache, {each.path for each in wrong})),
        hollow,
        resumed=resumed,
    )
    if repair and report.left:
        report = _repaired(cache, report, state.seen)
    cursors.forget(cache)
    return report


@dataclass(slots=True)
class _State:
    """`seen` is the stat of each wrong file, by its path."""

    cache: Cache
    cursor: Cursor
    wrong: list[Wrong] = field(default_factory=list)
    unreadable: list[Wrong] = field(default_factory=list)
    seen: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def run(self, progress: Callable[[Progress], None] | None) -> None:
        files, size = _count(self.cache, self.cursor) if progress is not None else (0, 0)
        # What was wrong when the run was cut short may have been built again.
        for name in self.cursor.suspects:
            hexed = name.removesuffix(".x")
            self._look(hexed, self.cache.store.names(hexed)[name != hexed])
        noted = time.monotonic()
        for hexed, entry in self.cache.store.files():
            if entry.name <= self.cursor.after:
                continue
            if self.cursor.chooses(hexed):
                if progress is not None:
                    progress(Progress(self.cursor.files, self.cursor.bytes, files, size))
                count, suspect = self._look(hexed, entry.path)
                self.cursor = replace(
                    self.cursor,
                    after=entry.name,
                    files=self.cursor.files + (count is not None),
                    bytes=self.cursor.bytes + (count or 0),
                    suspects=(*self.cursor.suspects, entry.name) if suspect else self.cursor.suspects,
                )
                if (now := time.monotonic()) - noted >= _NOTE_S:
                    noted = now
                    cursors.save(self.cache, self.cursor)
        if progress is not None:
            progress(Progress(self.cursor.files, self.cursor.bytes, self.cursor.files, self.cursor.bytes))

    def _look(self, hexed: str, path: str) -> tuple[int | None, bool]:
        """The bytes hashed, None when the file has vanished, and whether something is wrong with it."""
        try:
            fd = os.open(path, _READ)
            try:
                before = os.fstat(fd)
                # Only reading: whoever decides what was not used lately must not see this.
                found = hash_open(fd, before.st_size, exclusive=True)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return None, False
        except OSError as error:
            self.unreadable.append(Wrong(hexed, path, why=disk_problem(error, path).message))
            return 0, True
        if found.hex == hexed:
            return found.size, False
        self.wrong.append(Wrong(hexed, path, str(found)))
        self.seen[path] = _identity(before)
        return found.size, True


def _count(cache: Cache, cursor: Cursor) -> tuple[int, int]:
    """Files and bytes that the whole run looks at."""
    files = size = 0
    for hexed, entry in cache.store.files():
        if cursor.chooses(hexed):
            try:
                size += entry.stat(follow_symlinks=False).st_size
                files += 1
            except FileNotFoundError:
                continue
    return files, size


def _damaged_entries(cache: Cache) -> Iterator[str]:
    for hexed in cache.actions.all_keys():
        for entry in cache.actions.entries(hexed):
            if entry.state == UNREADABLE:
                yield f"{cache.root}/ac/{hexed[:2]}/{hexed}/{entry.n}"


def _repaired(cache: Cache, report: VerifyReport, seen: dict[str, tuple[int, int, int]]) -> VerifyReport:
    removed = 0
    if report.wrong:
        cache.epoch.advance()
    for wrong in report.wrong:
        with disk_problems(wrong.path), cache.gate.exclusive():
            # Good bytes may have been put in its place since it was read.
            try:
                if _identity(os.stat(wrong.path)) == seen[wrong.path]:
                    cache.disk.unlink(wrong.path)
            except FileNotFoundError:
                pass
        removed += 1
    for path in report.entries:
        # Not deleted: nothing in it is known to be worthless.
        with disk_problems(path):
            cache.disk.rename(path, f"{path}.damaged")
        removed += 1
    removed += _remove_copies(cache, report.copies)
    laid, unlinked = cache.links.mend()
    return replace(report, removed=removed, laid=laid, unlinked=unlinked)


def _remove_copies(cache: Cache, names: Sequence[str]) -> int:
    for name in names:
        path, aside = f"{cache.root}/trees/{name}", cache.temporary.name()
        with disk_problems(path):
            try:
                # At once, so that nobody sees half of it.
                cache.disk.rename(path, aside)
                cache.disk.remove_tree(aside)
            except FileNotFoundError:
                pass
    return len(names)


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns
