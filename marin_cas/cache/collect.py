"""Deleting what a plan says, beside builds that go on: in small steps, each of which looks again before it deletes.

A step holds the gate alone. What was used, leased, changed, pinned or made a root since the plan stays, with all that
it shares. A run's own trees go first, so that from its first step on it is hollow for all, and what is left of it after
a kill is garbage that the next collection finds. Copies that people see go last.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from marin_cas.cache.cache import Cache
from marin_cas.cache.copies import Copies, folder_time, links, lone_bytes
from marin_cas.cache.gc import Item, Plan
from marin_cas.cache.inventory import SERVED, Holding, Keepers, pinned_blob
from marin_cas.cache.leftovers import COPIES, Leftover
from marin_cas.disk import disk_problems

# Blobs a step: some milliseconds, in which no build can put or use one.
_STEP = 200


@dataclass(frozen=True, slots=True)
class Collected:
    """`freed` bytes; `blobs` deleted; `spared` runs and folders that somebody used since the plan. `stopped`: it was
    asked to stop, and there is more to do."""

    freed: int
    blobs: int
    spared: int
    stopped: bool


def collect(cache: Cache, plan: Plan, stop: Callable[[], bool] = lambda: False) -> Collected:
    """Deletes what the plan names and nobody has used since. Between two steps `stop` is asked whether to end there.

    Raises EnvironmentProblem when the disk is in the way; what was deleted until then is.
    """
    if not plan.items:
        return Collected(0, 0, 0, False)
    # First of all: whoever found something whole looks again before relying on it.
    cache.epoch.advance()
    collecting = _Collecting(cache, plan, stop)
    collecting.run()
    cache.sync()
    return Collected(collecting.freed, collecting.blobs, collecting.spared, collecting.stopped)


class _Stopped(Exception):
    pass


class _Collecting:
    def __init__(self, cache: Cache, plan: Plan, stop: Callable[[], bool]) -> None:
        self.cache, self.plan, self.stop = cache, plan, stop
        self.nodes = plan.inventory.nodes
        self.hashes = self.nodes.hashes()
        self.kept = bytearray(len(self.nodes))
        self.signature: object = None
        self.keepers: Keepers | None = None
        self.freed = self.blobs = self.spared = 0
        self.stopped = False

    def run(self) -> None:
        try:
            for item in self.plan.items:
                if item.holding is None and item.leftover is None:
                    self._delete_all(item.blobs)
            for group in _groups(self.plan.items, self.plan):
                self._group(group)
            for item in self.plan.items:
                if item.leftover is not None and item.leftover.room != COPIES:
                    self._folder(item.leftover)
            self._copies()
        except _Stopped:
            self.stopped = True

    def _step(self) -> None:
        if self.stop():
            raise _Stopped

    # Blobs

    def _group(self, items: Sequence[Item]) -> None:
        """Runs that share blobs which go: they become hollow in one step, or a use of one would not save its share."""
        self._step()
        with self.cache.gate.exclusive():
            self._look_at_roots()
            for item in items:
                if item.holding is not None and not self._unused(item.holding):
                    self._keep(item.holding.named)
                    self.spared += 1
            for item in items:
                for n in item.tops:
                    self._delete(n)
        for item in items:
            self._delete_all(item.blobs)

    def _delete_all(self, blobs: Sequence[int]) -> None:
        for begin in range(0, len(blobs), _STEP):
            self._step()
            with self.cache.gate.exclusive():
                self._look_at_roots()
                for n in blobs[begin : begin + _STEP]:
                    self._delete(n)

    def _delete(self, n: int) -> None:
        if self.kept[n]:
            return
        freed = self.cache.store.delete_unused(self.hashes[n].hex(), self.plan.before)
        if freed is None:
            self._keep([n])
            return
        self.kept[n] = 1  # gone: nothing more to do here
        self.freed += freed
        self.blobs += 1

    def _keep(self, tops: Iterable[int]) -> None:
        self.nodes.mark(tops, self.kept)

    # Looking again

    def _look_at_roots(self) -> None:
        """Whoever registers or pins something saves it from the next step on."""
        signature = (self.cache.roots.signature(), self.cache.refs.signature())
        if signature == self.signature:
            return
        self.signature, self.keepers = signature, Keepers.of(self.cache)
        pinned = [pinned_blob(self.cache.store, self.nodes, d) for pin in self.keepers.pins for d in pin.digests]
        self.kept.extend(bytes(len(self.nodes) - len(self.kept)))
        self._keep(pinned)

    def _unused(self, holding: Holding) -> bool:
        """Whether nothing has happened to the run since it was planned to go."""
        folder = f"{self.cache.root}/ac/{holding.key[:2]}/{holding.key}"
        with disk_problems(folder):
            numbers = [int(name) for name in os.listdir(folder) if name.isdecimal()]
            used = os.stat(f"{folder}/{holding.entry}").st_mtime
        if max(numbers) != holding.entries or (holding.kind == SERVED and used != holding.used):
            return False
        return self.keepers is None or holding.kind != SERVED or holding.key not in self.keepers.keys

    # Folders

    def _folder(self, leftover: Leftover) -> None:
        """Work or scratch, unless somebody has come back to it."""
        self._step()
        key = os.path.basename(leftover.path)
        with self.cache.gate.exclusive():
            idle = not self._in_use(key) and folder_time(leftover.path) < self.plan.cutoff
            aside = self._aside(leftover.path) if idle else None
            if aside is not None and self._in_use(key):
                # Its lease was taken between the two looks: it is put back before anybody has got that far.
                with disk_problems(leftover.path):
                    self.cache.disk.rename(aside, leftover.path)
                aside = None
        if aside is None:
            self.spared += 1
            return
        self._remove(aside)

    def _in_use(self, key: str) -> bool:
        return len(key) == 64 and self.cache.actions.in_use(key) is not None

    def _copies(self) -> None:
        """Copies of what is gone, with the links to them, and those that nothing leads to."""
        copies = Copies.of(self.cache.root)
        planned = {
            os.path.basename(item.leftover.path)
            for item in self.plan.items
            if item.leftover is not None and item.leftover.room == COPIES
        }
        going = [n for names in copies.entries.values() for n in names if n in planned or not self._is_there(n)]
        for begin in range(0, len(going), _STEP):
            self._step()
            aside: list[tuple[str, str]] = []
            with self.cache.gate.exclusive():
                led_to = links(self.cache.root)
                for name in going[begin : begin + _STEP]:
                    path = f"{copies.trees}/{name}"
                    if self._is_there(name) and (name in led_to or copies.young(name, self.plan.cutoff)):
                        continue
                    for link in led_to.get(name, ()):
                        self._unlink(link)
                    if (moved := self._aside(path)) is not None:
                        aside.append((name, moved))
            for name, path in aside:
                n = self.nodes.known(bytes.fromhex(name.removesuffix(".file")))
                whole = n is not None and self.nodes.whole(n) and not name.endswith(".file")
                # What shares its blocks with the store instead of its name was counted as blobs were deleted.
                self._remove(path, self.plan.copied if whole else None)

    def _is_there(self, name: str) -> bool:
        """Whether the blob that this is a copy of is in the store."""
        hexed = name.removesuffix(".file")
        base = f"{self.cache.store.root}/{hexed[:2]}/{hexed}"
        return os.path.lexists(base) or os.path.lexists(f"{base}.x")

    def _unlink(self, link: str) -> None:
        with disk_problems(link), suppress(FileNotFoundError):
            self.cache.disk.unlink(link)

    def _aside(self, path: str) -> str | None:
        """Moves a folder out of sight, to be removed when nobody waits at the gate. None when it is gone."""
        aside = self.cache.temporary.name()
        with disk_problems(path):
            try:
                self.cache.disk.rename(path, aside)
            except FileNotFoundError:
                return None
        return aside

    def _remove(self, path: str, inodes: Container[int] | None = None) -> None:
        """Counts the files that have no other name, where `inodes` are given only these."""
        with disk_problems(path):
            self.freed += lone_bytes(path, inodes)
            self.cache.disk.remove_tree(path)


def _groups(items: Sequence[Item], plan: Plan) -> list[list[Item]]:
    """The runs among the items, together with those that share something which goes."""
    runs = [item for item in items if item.holding is not None]
    nodes = plan.inventory.nodes
    owner = array("i", [-1]) * len(nodes)
    for i, item in enumerate(runs):
        for n in item.blobs:
            owner[n] = i
    leader = list(range(len(runs)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    for i, item in enumerate(runs):
        for n in (*(item.holding.named if item.holding else ()), *item.blobs):
            for each in (n, *(nodes.below(n) if nodes.is_tree[n] else ())):
                if owner[each] not in (-1, i):
                    leader[find(i)] = find(owner[each])
    groups: dict[int, list[Item]] = {}
    for i, item in enumerate(runs):
        groups.setdefault(find(i), []).append(item)
    return list(groups.values())
