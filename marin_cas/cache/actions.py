"""The action cache: for each key a short append-only sequence of entries, `ab/<key's hex>/<n>`.

Each entry is created only if absent and never changed or removed. Who holds the key moves on by creating the next
one; a holder that was overtaken finds that name taken, so publishing is itself the check of the fence.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from marin_cas.cache.clock import Clock, SystemClock
from marin_cas.cache.entry import ATTEMPT, DONE, FREE, LEASED, TAINTED, Entry, Standing, fold
from marin_cas.cache.heart import TTL_S, Heart
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease, LostLease
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problem
from marin_cas.errors import Interrupted
from marin_cas.result import Result
from marin_cas.store.process import Process, is_gone
from marin_cas.store.temporary import Temporary

POLL_S = 0.1
# A result in steady use is marked about once a minute, not once a hit.
_TOUCH_S = 60.0


def _never() -> bool:
    return False


class ActionCache:
    """Keys to results, on a local disk. Safe for several threads and processes."""

    def __init__(
        self,
        root: StrPath,
        temporary: Temporary,
        disk: Disk = DISK,
        *,
        heart: Heart | None = None,
        clock: Clock | None = None,
        gone: Callable[[Process], bool] = is_gone,
        ttl_s: float = TTL_S,
    ) -> None:
        self._root = os.fspath(root)
        self._temporary = temporary
        self._disk = disk
        self.heart = heart or Heart(temporary.folder, disk)
        self._clock = clock or SystemClock()
        self._gone = gone
        self._ttl = ttl_s
        self._changed: tuple[int, frozenset[bytes]] = (0, frozenset())

    # Reading

    def standing(self, key: Digest) -> Standing:
        """What all entries of the key add up to."""
        return fold(self.entries(key.hex))

    def state(self, key: Digest) -> Entry | None:
        """The last entry of the key, None when it has none."""
        return self.standing(key).last

    def result(self, key: Digest) -> Result | None:
        """The chosen realisation, None when there is none or it is tainted. Its bytes may be gone."""
        entry = self._chosen(self._folder(key.hex))
        return None if entry is None else entry.result

    def touch(self, key: Digest) -> None:
        """The chosen result of the key is in use now: `last_used` moves, and GC keeps young use. Unwritable caches
        are left as they are."""
        folder = self._folder(key.hex)
        entry = self._chosen(folder)
        used = None if entry is None else _mtime(f"{folder}/{entry.n}")
        if entry is not None and used is not None and not 0 <= time.time() - used < _TOUCH_S:
            with suppress(OSError):
                self._disk.touch(f"{folder}/{entry.n}")

    def last_used(self, key: Digest) -> float | None:
        """When the chosen result was published or last served, in Unix seconds; None when there is none."""
        folder = self._folder(key.hex)
        entry = self._chosen(folder)
        return None if entry is None else _mtime(f"{folder}/{entry.n}")

    def _chosen(self, folder: str) -> Entry | None:
        # As `standing(key).chosen`, from the end: most often that is one small file to read.
        for n in reversed(self._numbers(folder)):
            entry = self._entry(folder, n)
            if entry.state == DONE:
                return entry
            if entry.state == TAINTED:
                return None
        return None

    def attempts(self, key: Digest) -> list[Result]:
        """All other runs of the key, oldest first."""
        return list(self.standing(key).attempts)

    def entries(self, hexed: str) -> list[Entry]:
        """The entries of the key with this hex, in order."""
        folder = self._folder(hexed)
        return [self._entry(folder, n) for n in self._numbers(folder)]

    def _numbers(self, folder: str) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise disk_problem(error, folder) from error

    def _entry(self, folder: str, n: int) -> Entry:
        try:
            return Entry.parse(n, _read(f"{folder}/{n}"))
        except OSError as error:
            raise disk_problem(error, f"{folder}/{n}") from error

    def all_keys(self) -> Iterator[str]:
        """The hex of every key that has entries, sorted."""
        for prefix in _names(self._root):
            if len(prefix) == 2:
                yield from (name for name in _names(f"{self._root}/{prefix}") if len(name) == 64)

    def changed_keys(self) -> frozenset[bytes]:
        """Keys that were ever tainted, or whose chosen result was replaced: what was made from the earlier result is
        found by its key or not at all, never by its fingerprint."""
        path = f"{self._root}/changed"
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return frozenset()
        if size != self._changed[0]:
            keys: set[bytes] = set()
            for line in _read(path).split(b"\n"):
                # A line that was cut short by a full disk is followed by a whole one without a break between.
                with suppress(ValueError):
                    keys.add(bytes.fromhex(line[-64:].decode("ascii")))
            self._changed = (size, frozenset(key for key in keys if len(key) == 32))
        return self._changed[1]

    # Holding

    def acquire(
        self,
        key: Digest,
        holder: Holder,
        *,
        on_wait: Callable[[Holder, float], None] | None = None,
        cancelled: Callable[[], bool] = _never,
        force: bool = False,
    ) -> Lease | Result:
        """The chosen result when there is one (unless `force`), else the lease, waiting while another holds it.

        A holder whose process has ended is overtaken at once, another when its heartbeat stood still for the time to
        live on our own clock. While waiting, `on_wait(who holds it, seconds waited)` is called about ten times a
        second; `cancelled` ends the wait with Interrupted.
        """
        began = self._clock.monotonic()
        seen: tuple[str, int | None] | None = None
        seen_at = began
        while True:
            standing = self.standing(key)
            if standing.chosen is not None and not force:
                return standing.chosen
            if cancelled():
                raise Interrupted(f"stopped while waiting for `{key.short}`")
            lease = standing.lease
            if lease is not None and lease.holder is not None:
                sign = (lease.fence, self.heart.pulse(lease.holder))
                if sign != seen:
                    seen, seen_at = sign, self._clock.monotonic()
                expired = self._clock.monotonic() - seen_at >= self._ttl
                if not expired and not self._gone(lease.holder.process):
                    if on_wait is not None:
                        on_wait(lease.holder, self._clock.monotonic() - began)
                    self._clock.sleep(POLL_S)
                    continue
            fence = secrets.token_hex(16)
            entry = Entry(standing.n + 1, LEASED, self._clock.now(), fence, holder)
            # Before the entry, or a waiter might find a lease without any sign of life.
            mine = Lease(self, key, fence)
            self.heart.start(fence, holder, mine.held)
            if self._append(key.hex, entry):
                mine.open = True
                return mine
            self.heart.stop(fence)

    def holds(self, key: Digest, fence: str) -> bool:
        """Whether the lease with this fence is the open one."""
        lease = self.standing(key).lease
        return lease is not None and lease.fence == fence

    def publish(self, key: Digest, fence: str, result: Result, *, replace: bool = False) -> Result:
        """See Lease.publish."""
        while True:
            standing = self._held(key, fence)
            chosen = standing.chosen
            if chosen is not None and not replace:
                self.record_attempt(key, fence, result)
                self.release(key, fence)
                return chosen
            if chosen is not None:
                # First the notice: with it alone, fingerprints are looked up the long way, which is never wrong.
                self._mark_changed(key)
            if self._append(key.hex, Entry(standing.n + 1, DONE, self._clock.now(), fence, result=result)):
                return result

    def record_attempt(self, key: Digest, fence: str, result: Result) -> None:
        """See Lease.record_attempt."""
        while True:
            n = self._held(key, fence).n + 1
            if self._append(key.hex, Entry(n, ATTEMPT, self._clock.now(), fence, result=result)):
                return

    def release(self, key: Digest, fence: str) -> None:
        """Ends the lease with this fence; nothing happens when it is not the open one."""
        while True:
            standing = self.standing(key)
            if standing.lease is None or standing.lease.fence != fence:
                return
            if self._append(key.hex, Entry(standing.n + 1, FREE, self._clock.now(), fence)):
                return

    def taint(self, key: Digest, reason: str, who: str) -> Result | None:
        """From now on the chosen result, which is returned, is not served, nor what was made from it."""
        while True:
            standing = self.standing(key)
            if standing.chosen is None:
                return None
            self._mark_changed(key)
            entry = Entry(standing.n + 1, TAINTED, self._clock.now(), reason=reason, who=who)
            if self._append(key.hex, entry):
                return standing.chosen

    def in_use(self, hexed: str) -> Holder | None:
        """The holder of the key with this hex, if its lease is open and its process not known to be gone."""
        lease = fold(self.entries(hexed)).lease
        if lease is None or lease.holder is None or self._gone(lease.holder.process):
            return None
        return lease.holder

    # Writing

    def _held(self, key: Digest, fence: str) -> Standing:
        standing = self.standing(key)
        lease = standing.lease
        if lease is None or lease.fence != fence:
            raise LostLease(key, str(lease.holder) if lease is not None and lease.holder is not None else "")
        return standing

    def _append(self, hexed: str, entry: Entry) -> bool:
        """Creates the entry; False when its number is taken."""
        folder = self._folder(hexed)
        temporary = self._temporary.name()
        try:
            try:
                self._disk.write(temporary, entry.record())
            except FileNotFoundError:
                self._temporary.prepare()
                self._disk.write(temporary, entry.record())
            try:
                # A link and not a rename: a rename would overwrite the entry of whoever was faster.
                try:
                    self._disk.link(temporary, f"{folder}/{entry.n}")
                except FileNotFoundError:
                    self._disk.makedirs(folder)
                    self._disk.link(temporary, f"{folder}/{entry.n}")
            except FileExistsError:
                return False
            finally:
                with suppress(OSError):
                    self._disk.unlink(temporary)
        except OSError as error:
            raise disk_problem(error, folder) from error
        return True

    def _mark_changed(self, key: Digest) -> None:
        path = f"{self._root}/changed"
        try:
            self._disk.makedirs(self._root)
            self._disk.append(path, key.hex.encode("ascii") + b"\n")
        except OSError as error:
            raise disk_problem(error, path) from error

    def _folder(self, hexed: str) -> str:
        return f"{self._root}/{hexed[:2]}/{hexed}"


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _mtime(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


__all__ = ["ActionCache", "Entry", "Holder", "Lease", "LostLease"]
