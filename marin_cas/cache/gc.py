"""What a cache may delete, and what of it goes, as a plan: names, bytes, what each costs to make again.

Never deleted: records of any kind (results, recipes, histories), the outputs of roots, pins and published refs, what
somebody builds or reads now, what was used within the grace time. Blobs that nothing names are garbage; results give
up their bytes only for an age or a size that somebody asked for, and are hollow then.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from marin_cas.cache.cache import Cache
from marin_cas.cache.choice import Candidate, choose, full_price
from marin_cas.cache.claims import Claims
from marin_cas.cache.copies import Copies, Strays
from marin_cas.cache.inventory import ATTEMPT, SERVED, Holding, Inventory, take
from marin_cas.cache.leftovers import Leftover, leftovers
from marin_cas.cache.price import UNREACHABLE, price
from marin_cas.cache.probe import Probe
from marin_cas.errors import IntegrityError

GARBAGE, AGE, SIZE = "garbage", "age", "size"
DAY_S = 86400.0
# A use within a second of an earlier one is not noted.
_LAG_S = 1.0
# So long at most takes a run between storing its first output and publishing.
_STORING_S = 6 * 3600.0
_HOLDERS = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """`grace_s`: what was used within it stays. `max_age_s`: what no root leads to and was not used for longer goes.
    `max_size`: bytes that the cache may have; when it has more, it is brought down to `down_to` (or `max_size`)."""

    grace_s: float = DAY_S
    max_age_s: float | None = None
    max_size: int | None = None
    down_to: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that goes: the bytes of a run (`holding`), folders (`leftover`), or blobs that nothing names.

    `why` is GARBAGE, AGE or SIZE. `again` are the CPU-seconds that stand for making it again, with what else is gone
    then and must be made first. `blobs` are numbers in the plan's inventory, a tree before what it names, that nothing
    else holds when all items before it went; `bytes` is what they and copies of them take. `tops` are those that the
    run names directly and that go with this or another item.
    """

    why: str
    bytes: int
    holding: Holding | None = None
    leftover: Leftover | None = None
    again: float = 0.0
    blobs: array[int] = field(default_factory=lambda: array("I"), compare=False)
    tops: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """`size` is what the cache has now, `freed` what the items give back. `lacking`: so much more than `max_size` would
    be left; then `holders` are the largest that hold it. `young`: bytes that would go, were they not used within the
    grace time. `absent` are workspaces that cannot be found now: their roots count. `cutoff` (ns, the file system's
    clock) is when the grace time began, `before` the moment since which a blob counts as used: while somebody builds,
    not after the first of these runs began, as far as they may have stored something since. `copied` are inodes of
    blobs, each with the number of its names in copies that go too."""

    wanted: Wanted
    items: tuple[Item, ...]
    size: int
    freed: int
    lacking: int
    holders: tuple[tuple[str, int], ...]
    young: int
    absent: tuple[str, ...]
    cutoff: int
    before: int
    copied: Mapping[int, int] = field(compare=False)
    inventory: Inventory = field(compare=False)

    @property
    def left(self) -> int:
        return self.size - self.freed


def plan(cache: Cache, wanted: Wanted, now: float | None = None) -> Plan:
    """What a GC would delete. Nothing is changed. `now` is in Unix seconds.

    Raises IntegrityError when a record that says what is needed is damaged, EnvironmentProblem when the disk is in the
    way.
    """
    return _Planning(cache, wanted, time.time() if now is None else now).run()


class _Planning:
    def __init__(self, cache: Cache, wanted: Wanted, now: float) -> None:
        self.cache, self.wanted, self.now = cache, wanted, now
        self.inventory = inventory = take(cache)
        self.nodes = inventory.nodes
        if self.nodes.damaged:
            raise IntegrityError(
                f"the tree record `{self.nodes.damaged[0].short}` is damaged, so what it names is not known",
                hint="`marin cache verify --repair` removes it, then collect again",
            )
        self.cutoff = cutoff = int((now - wanted.grace_s) * 1e9)
        self.before = cutoff
        if inventory.oldest_lease is not None:
            # What a run that is under way has stored, nothing names before it is published.
            self.before = min(cutoff, max(inventory.oldest_lease, int((now - _STORING_S) * 1e9)))
        self.used_before = now - wanted.grace_s - min(_LAG_S, wanted.grace_s)
        self.copies = Copies.of(cache.root)
        self.linked: dict[int, list[str]] = {}  # of each blob that has copies, those that go with it only
        self.probe = Probe(os.fspath(cache.store.root), self.nodes, self.before, self.copies)

    def run(self) -> Plan:
        kept = self._kept()
        free = [holding for holding in self.inventory.holdings if self._is_free(holding)]
        claims = Claims(self.nodes, kept, self.probe, self.probe.goes, self.linked)
        for holding in free:
            claims.claim(holding.named)
        counts = claims.counts
        loose = array("I", [n for n, files in enumerate(self.nodes.files) if files and not kept[n] and not counts[n]])
        folders = leftovers(self.cache, self.inventory, self.copies, self.cutoff)
        going = {os.path.basename(folder.path) for folder in folders if folder.is_copy and not folder.young}
        for name in going:
            self.probe.copy_goes(name)
        for hexed, names in self.copies.entries.items():
            if (n := self.nodes.known(bytes.fromhex(hexed))) is not None:
                self.linked[n] = [name for name in names if name not in going]
        garbage = self._garbage(loose)
        self.strays = Strays(self.copies, self._copies_not_whole())
        size = self._size(folders)
        start = array("I", counts)
        items = [*self._ungraced(claims, free, folders), *self._aged(claims, free, folders)]
        left = size - garbage.bytes - sum(item.bytes for item in items)
        chosen, moved = self._sized(claims, free, folders, items, left)
        items += chosen
        if moved:
            # Once more from the start, in the order in which they go: what each of them frees then.
            claims.counts[:] = start
            items = [item if item.leftover else self._let_go(claims, item.why, item.holding) for item in items]
        items = [*([garbage] if garbage.blobs else []), *self._priced(items, claims)]
        items = list(self._with_strays(items))
        freed = sum(item.bytes for item in items)
        limit = self.wanted.max_size
        lacking = max(0, size - freed - limit) if limit is not None else 0
        return Plan(
            self.wanted, tuple(items), size, freed, lacking, tuple(self._holders()) if lacking else (),
            self.probe.young, self._absent(), self.cutoff, self.before, self.probe.names, self.inventory,
        )  # fmt: skip

    # What stays

    def _is_free(self, holding: Holding) -> bool:
        inventory = self.inventory
        if holding.key in inventory.leased:
            return False
        if holding.kind == ATTEMPT:
            return holding.changed < self.used_before
        return holding.key not in inventory.kept and holding.used < self.used_before

    def _kept(self) -> bytearray:
        """Marks all that stays, whatever is asked for."""
        inventory = self.inventory
        kept = bytearray(len(self.nodes))
        tops = [*inventory.records, *inventory.pinned, *(n for reads in inventory.leased.values() for n in reads)]
        for holding in inventory.holdings:
            if not self._is_free(holding):
                tops += holding.named
        self.nodes.mark(tops, kept)
        return kept

    def _holders(self) -> Iterator[tuple[str, int]]:
        """What keeps the most, with the bytes that it reaches."""
        inventory = self.inventory
        by_reason: dict[str, set[int]] = {}
        for holding in inventory.holdings:
            reasons = inventory.kept.get(holding.key, []) if holding.kind == SERVED else []
            if not reasons and holding.used >= self.used_before:
                reasons = ["used within the grace time"]
            if holding.key in inventory.leased:
                reasons = [*reasons, "being built"]
            for reason in dict.fromkeys(reasons):
                by_reason.setdefault(reason, set()).update(holding.named)
        if inventory.pinned:
            by_reason.setdefault("pinned blobs", set()).update(inventory.pinned)
        by_reason["records of results: recipes, versions, logs"] = set(inventory.records)
        held = {reason: self.nodes.bytes_at(tops) for reason, tops in by_reason.items()}
        yield from sorted(held.items(), key=lambda each: (-each[1], each[0]))[:_HOLDERS]

    def _absent(self) -> tuple[str, ...]:
        workspaces = dict.fromkeys(root.workspace for root in self.inventory.roots)
        return tuple(workspace for workspace in workspaces if not os.path.isdir(workspace))

    # What goes

    def _garbage(self, loose: array[int]) -> Item:
        """Blobs that nothing names."""
        for n in loose:
            self.probe.goes(n)
        going = array("I", [n for n in loose if self.probe(n) is not None])
        return Item(GARBAGE, sum(self.probe(n) or 0 for n in going) + self._copies_of(going), blobs=going)

    def _let_go(self, claims: Claims, why: str, holding: Holding | None) -> Item:
        before = claims.freed
        blobs = claims.release(holding.named if holding else ())
        return self._item(why, holding, blobs, claims.freed - before)

    def _item(self, why: str, holding: Holding | None, blobs: array[int], bytes_: int) -> Item:
        return Item(why, bytes_ + self._copies_of(blobs), holding, blobs=blobs)

    def _copies_of(self, blobs: array[int]) -> int:
        """The bytes of the copies that go with blobs."""
        if not self.linked:
            return 0
        found = [name for n in blobs for name in self.linked.get(n, ())]
        return sum(self._copied(name.removesuffix(".file"), name) for name in found)

    def _tops(self, item: Item, claims: Claims) -> tuple[int, ...]:
        files, kept, counts = self.nodes.files, claims.kept, claims.counts
        named = dict.fromkeys(item.holding.named if item.holding else ())
        return tuple(n for n in named if files[n] and not kept[n] and not counts[n])

    def _copied(self, hexed: str, name: str) -> int:
        n = self.nodes.known(bytes.fromhex(hexed))
        return self.copies.own_bytes(name, whole=n is not None and self.nodes.whole(n))

    def _copies_not_whole(self) -> Iterator[str]:
        for hexed, names in self.copies.entries.items():
            n = self.nodes.known(bytes.fromhex(hexed))
            if n is None or not self.nodes.whole(n):
                yield from names

    def _with_strays(self, items: Sequence[Item]) -> Iterator[Item]:
        if not self.strays.bytes:
            yield from items
            return
        for item in items:
            names = [name for n in item.blobs for name in self.linked.get(n, ())]
            if item.leftover is not None and item.leftover.is_copy:
                names.append(item.leftover.name)
            yield replace(item, bytes=item.bytes + sum(map(self.strays.go, names)))

    def _ungraced(self, claims: Claims, free: Sequence[Holding], folders: Sequence[Leftover]) -> Iterator[Item]:
        for holding in free:
            if holding.kind == ATTEMPT:
                yield self._let_go(claims, GARBAGE, holding)
        for folder in folders:
            if not folder.young and not folder.valued:
                yield Item(GARBAGE, folder.bytes, leftover=folder)

    def _aged(self, claims: Claims, free: Sequence[Holding], folders: Sequence[Leftover]) -> Iterator[Item]:
        if self.wanted.max_age_s is None:
            return
        limit = self.now - self.wanted.max_age_s
        for holding in sorted(free, key=lambda holding: (holding.used, holding.key)):
            if holding.kind != ATTEMPT and holding.key not in self.inventory.reachable and holding.used < limit:
                yield self._let_go(claims, AGE, holding)
        for folder in folders:
            if folder.valued and not folder.young and folder.changed < limit:
                yield Item(AGE, folder.bytes, leftover=folder, again=folder.price)

    def _sized(
        self,
        claims: Claims,
        free: Sequence[Holding],
        folders: Sequence[Leftover],
        going: Sequence[Item],
        left: int,
    ) -> tuple[list[Item], bool]:
        limit = self.wanted.max_size
        if limit is None or left <= limit:
            return [], False
        goal = limit if self.wanted.down_to is None else min(limit, self.wanted.down_to)
        gone = {id(item.holding or item.leftover) for item in going}
        things: list[Holding | Leftover] = [
            *(holding for holding in self.inventory.holdings if holding.kind != ATTEMPT),
            *(folder for folder in folders if folder.valued and not folder.young),
        ]
        at = {id(each): i for i, each in enumerate(things)}
        ids = {id(holding) for holding in free} | {id(folder) for folder in folders}
        candidates = [
            self._candidate(each, free=id(each) in ids - gone, gone=id(each) in gone, at=at) for each in things
        ]
        chosen, moved = choose(candidates, claims, left - goal)
        items: list[Item] = []
        for each in chosen:
            thing = things[each.index]
            if isinstance(thing, Leftover):
                items.append(Item(SIZE, each.bytes, leftover=thing, again=thing.price))
            else:
                items.append(self._item(SIZE, thing, each.blobs, each.bytes))
        return items, moved

    def _candidate(self, each: Holding | Leftover, *, free: bool, gone: bool, at: dict[int, int]) -> Candidate:
        if isinstance(each, Leftover):
            return Candidate(each.price, (), each.bytes, (), 1.0, each.changed, gone, free)
        weight = 1.0 if each.kind == SERVED and each.key in self.inventory.reachable else UNREACHABLE
        return Candidate(
            price(each.cost), each.named, 0, self._producers(each, at), 0.0 if each.empty else weight,
            each.used, gone or each.hollow, free,
        )  # fmt: skip

    def _producers(self, holding: Holding, at: dict[int, int]) -> tuple[int, ...]:
        makers = (self.inventory.makers.get(n) for n in holding.inputs)
        return tuple({at[id(maker)] for maker in makers if maker is not None and id(maker) in at})

    def _priced(self, items: Sequence[Item], claims: Claims) -> Iterator[Item]:
        """Those that lose something, each with what making it again takes once all of them are gone."""
        holdings = [holding for holding in self.inventory.holdings if holding.kind != ATTEMPT]
        at = {id(holding): i for i, holding in enumerate(holdings)}
        candidates = [self._candidate(holding, free=False, gone=False, at=at) for holding in holdings]
        # What a run let go of another may have freed, and then both lose it.
        items = [replace(item, tops=self._tops(item, claims)) for item in items]
        items = [item for item in items if item.leftover is not None or item.blobs or item.tops]
        gone = {at[id(item.holding)] for item in items if id(item.holding) in at}
        gone |= {i for i, candidate in enumerate(candidates) if candidate.gone}
        for item in items:
            if id(item.holding) in at:
                item = replace(item, again=full_price(at[id(item.holding)], candidates, gone))
            yield item

    def _size(self, folders: Sequence[Leftover]) -> int:
        """What the cache has: its blobs, copies of single files, and work and scratch folders."""
        blobs = sum(self.nodes.all_taken())
        copies = sum(self._copied(hexed, name) for hexed, names in self.copies.entries.items() for name in names)
        return blobs + copies + self.strays.bytes + sum(folder.bytes for folder in folders if not folder.is_copy)
