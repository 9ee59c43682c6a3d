"""The action cache: for each key a short append-only sequence of entries, `ab/<key's hex>/<n>`.

Each entry is created only if absent and never changed or removed. Who holds the key moves on by creating the next
one; a holder that was overtaken finds that name taken, so publishing is itself the check of the fence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from marin_cas.cache.clock import Clock, SystemClock
from marin_cas.cache.entry import (
    ATTEMPT,
    DONE,
    EQUATED,
    FREE,
    LEASED,
    REVOKED,
    TAINTED,
    UNTAINTED,
    Entry,
    Run,
    Standing,
    fold,
)
from marin_cas.cache.heart import TTL_S, Heart
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease, LostLease
from marin_cas.cache.sequence import Sequences
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problem, names_in
from marin_cas.errors import Interrupted
from marin_cas.result import Result
from marin_cas.store.process import Process, is_gone
from marin_cas.store.temporary import Temporary

POLL_S = 0.1
# A result in steady use is marked about once a second, not once a hit.
_TOUCH_S = 1.0


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
        self._disk = disk
        self._entries = Sequences(lambda hexed: f"{self._root}/{hexed[:2]}/{hexed}", temporary, disk)
        self.heart = heart or Heart(temporary.folder, disk)
        self._clock = clock or SystemClock()
        self._gone = gone
        self._ttl = ttl_s
        self._changed: tuple[int, frozenset[bytes]] = (0, frozenset())

    # Reading

    def standing(self, key: Digest) -> Standing:
        """What all entries of the key add up to."""
        return self.standing_of(key.hex)

    def standing_of(self, hexed: str) -> Standing:
        """What all entries of the key with this hex add up to."""
        return fold(self.entries(hexed))

    def state(self, key: Digest) -> Entry | None:
        """The last entry of the key, None when it has none."""
        return self.standing(key).last

    def result(self, key: Digest) -> Result | None:
        """The chosen realisation, None when there is none or it is tainted. Its bytes may be gone."""
        run = self._chosen(key.hex)
        return None if run is None else run.result

    def touch(self, key: Digest) -> None:
        """The chosen result of the key is in use now: `last_used` moves, and GC keeps young use. Unwritable caches
        are left as they are."""
        run = self._chosen(key.hex)
        path = None if run is None else f"{self._entries.folder(key.hex)}/{run.n}"
        used = None if path is None else _mtime(path)
        if path is not None and used is not None and not 0 <= time.time() - used < _TOUCH_S:
            with suppress(OSError):
                self._disk.touch(path)

    def last_used(self, key: Digest) -> float | None:
        """When the chosen result was published or last served, in Unix seconds; None when there is none."""
        run = self._chosen(key.hex)
        return None if run is None else _mtime(f"{self._entries.folder(key.hex)}/{run.n}")

    def _chosen(self, hexed: str) -> Run | None:
        # As `standing(key).served`, from the end: most often that is one small file to read.
        for n in reversed(self._entries.numbers(hexed)):
            entry = self._entries.entry(hexed, n)
            if entry.state in (DONE, EQUATED) and entry.result is not None:
                return Run(n, entry.result)
            if entry.state in (TAINTED, UNTAINTED, REVOKED):
                return self.standing_of(hexed).served
        return None

    def attempts(self, key: Digest) -> list[Result]:
        """All other runs of the key, oldest first."""
        return list(self.standing(key).attempts)

    def entries(self, hexed: str) -> list[Entry]:
        """The entries of the key with this hex, in order."""
        return self._entries.entries(hexed)

    def all_keys(self) -> Iterator[str]:
        """The hex of every key that has entries, sorted."""
        for prefix in sorted(names_in(self._root)):
            if len(prefix) == 2:
                yield from (name for name in sorted(names_in(f"{self._root}/{prefix}")) if len(name) == 64)

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
        second, with the holder's `since` that of this lease; `cancelled` ends the wait with Interrupted.
        """
        began = looked = self._clock.monotonic()
        seen: tuple[str, int | None] | None = None
        quiet = 0.0
        while True:
            standing = self.standing(key)
            if standing.chosen is not None and not force:
                return standing.chosen
            if cancelled():
                raise Interrupted(f"stopped while waiting for `{key.short}`")
            lease = standing.lease
            if lease is not None and lease.holder is not None:
                sign = (lease.fence, self.heart.pulse(lease.holder))
                now = self._clock.monotonic()
                # A gap between two looks is no silence of the holder: perhaps the whole machine stood still.
                quiet = quiet + min(now - looked, self._ttl / 4) if sign == seen else 0.0
                seen, looked = sign, now
                if quiet < self._ttl and not self._gone(lease.holder.process):
                    if on_wait is not None:
                        on_wait(replace(lease.holder, since=lease.time), now - began)
                    self._clock.sleep(POLL_S)
                    continue
            fence = os.urandom(16).hex()
            entry = Entry(standing.n + 1, LEASED, self._clock.now(), fence, holder)
            # Before the entry, or a waiter might find a lease without any sign of life.
            mine = Lease(self, key, fence)
            self.heart.start(fence, holder, mine.held)
            if self._entries.append(key.hex, entry):
                mine.open = True
                return mine
            self.heart.stop(fence)

    def holds(self, key: Digest, fence: str) -> bool:
        """Whether the lease with this fence is the open one."""
        lease = self.standing(key).lease
        return lease is not None and lease.fence == fence

    def publish(self, key: Digest, fence: str, result: Result, *, replacing: bool = False) -> Result:
        """See Lease.publish."""
        while True:
            standing = self._held(key, fence)
            chosen = standing.chosen
            if chosen is not None and not replacing:
                self.record_attempt(key, fence, result)
                self.release(key, fence)
                return chosen
            if chosen is not None:
                # First the notice: with it alone, fingerprints are looked up the long way, which is never wrong.
                self.mark_changed(key.hex)
            if self._entries.append(key.hex, Entry(standing.n + 1, DONE, self._clock.now(), fence, result=result)):
                return result

    def record_attempt(self, key: Digest, fence: str, result: Result) -> None:
        """See Lease.record_attempt."""
        while True:
            n = self._held(key, fence).n + 1
            if self._entries.append(key.hex, Entry(n, ATTEMPT, self._clock.now(), fence, result=result)):
                return

    def release(self, key: Digest, fence: str) -> None:
        """Ends the lease with this fence; nothing happens when it is not the open one."""
        while True:
            standing = self.standing(key)
            if standing.lease is None or standing.lease.fence != fence:
                return
            if self._entries.append(key.hex, Entry(standing.n + 1, FREE, self._clock.now(), fence)):
                return

    def equate(self, key: Digest, fence: str, result: Result, source: Digest, reason: str, who: str) -> bool:
        """See Lease.equate."""
        while True:
            standing = self._held(key, fence)
            if standing.chosen is not None:
                self.release(key, fence)
                return False
            n, now = standing.n + 1, self._clock.now()
            if self._entries.append(key.hex, Entry(n, EQUATED, now, fence, None, result, reason, who, source=source)):
                return True

    def revoke(self, key: Digest, reason: str, who: str) -> Result | None:
        """Takes an equated result, which is returned, back; None when the choice is none."""
        while True:
            standing = self.standing(key)
            if standing.equated is None or standing.choice is None:
                return None
            self.mark_changed(key.hex)
            if self._entries.append(key.hex, Entry(standing.n + 1, REVOKED, self._clock.now(), reason=reason, who=who)):
                return standing.choice.result

    def taint(self, key: Digest, reason: str, who: str, cause: str = "") -> Result | None:
        """From now on the choice, which is returned, is not served, nor what was made from it.

        None, and nothing is written, when there is none or a taint of that `cause` is on it already.
        """
        while True:
            standing = self.standing(key)
            choice = standing.choice
            if choice is None or any(t.run.n == choice.n and t.entry.cause == cause for t in standing.taints):
                return None
            self.mark_changed(key.hex)
            entry = Entry(standing.n + 1, TAINTED, self._clock.now(), reason=reason, who=who, cause=cause)
            if self._entries.append(key.hex, entry):
                return choice.result

    def untaint(self, key: Digest, reason: str, who: str, cause: str = "") -> bool:
        """Takes every taint of that `cause` back: a choice without any other is served again. False for none."""
        while True:
            standing = self.standing(key)
            if all(taint.entry.cause != cause for taint in standing.taints):
                return False
            entry = Entry(standing.n + 1, UNTAINTED, self._clock.now(), reason=reason, who=who, cause=cause)
            if self._entries.append(key.hex, entry):
                return True

    def in_use(self, hexed: str) -> Holder | None:
        """The holder of the key with this hex, if its lease is open and its process not known to be gone."""
        lease = self.standing_of(hexed).lease
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

    def mark_changed(self, hexed: str = "") -> None:
        """What was made from the choice of that key so far is not found by fingerprint any more. Without a key: only
        whoever watches the file sees that something has happened."""
        path = f"{self._root}/changed"
        try:
            self._disk.makedirs(self._root)
            self._disk.append(path, f"{hexed}\n".encode("ascii"))
        except OSError as error:
            raise disk_problem(error, path) from error


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _mtime(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


__all__ = ["ActionCache", "Entry", "Holder", "Lease", "LostLease"]
