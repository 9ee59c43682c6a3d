"""Folders of a cache that are no blobs: copies that nothing leads to, and what runs left in `work/` and `scratch/`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from marin_cas.cache.cache import Cache
from marin_cas.cache.copies import Copies, folder_time, links, lone_bytes
from marin_cas.cache.entry import LEASED
from marin_cas.cache.inventory import Inventory
from marin_cas.cache.price import ACCELERATOR_S
from marin_cas.disk import names_in

COPIES, WORK, SCRATCH = "trees", "work", "scratch"


@dataclass(frozen=True, slots=True)
class Leftover:
    """`room` is COPIES, WORK or SCRATCH, `path` the folder. `held_s`: for how long leases were held for it; `price` the
    CPU-seconds that this stands for. `valued`: a run of a key without a result would go on from it. `young`: changed
    within the grace time, or in use. `changed` is in Unix seconds."""

    room: str
    path: str
    name: str
    bytes: int
    changed: float
    young: bool
    held_s: float = 0.0
    valued: bool = False

    @property
    def is_copy(self) -> bool:
        return self.room == COPIES

    @property
    def price(self) -> float:
        # What it ran on is not known before it ends. Who leaves a checkpoint has most often held an accelerator.
        return self.held_s * ACCELERATOR_S if self.valued else 0.0


def leftovers(cache: Cache, inventory: Inventory, copies: Copies, before: int) -> list[Leftover]:
    """All of them. What changed since `before` (ns) or belongs to a key that somebody builds is young."""
    return [*_copies(cache, inventory, copies, before), *_rooms(cache, inventory, before)]


def _copies(cache: Cache, inventory: Inventory, copies: Copies, before: int) -> list[Leftover]:
    led_to = links(cache.root)
    nodes = inventory.nodes
    found: list[Leftover] = []
    for hexed, names in copies.entries.items():
        n = nodes.known(bytes.fromhex(hexed))
        there = n is not None and nodes.files[n] != 0
        for name in names:
            # Of a blob that is gone, a link does not keep a copy: a GC that was killed had begun with it.
            if there and name in led_to:
                continue
            path = f"{copies.trees}/{name}"
            size = copies.own_bytes(name, whole=n is not None and nodes.whole(n))
            changed = _changed(path)
            found.append(Leftover(COPIES, path, name, size, changed / 1e9, changed >= before))
    return found


def _rooms(cache: Cache, inventory: Inventory, before: int) -> list[Leftover]:
    found: list[Leftover] = []
    labels = {holding.key: holding.label for holding in inventory.holdings}
    for room in (WORK, SCRATCH):
        for key in sorted(names_in(f"{cache.root}/{room}")):
            path = f"{cache.root}/{room}/{key}"
            served = inventory.served.get(key)
            changed = folder_time(path)
            young = changed >= before or (len(key) == 64 and cache.actions.in_use(key) is not None)
            label = labels.get(key) or key[:12]
            valued = room == SCRATCH and (served is None or served.hollow) and len(key) == 64
            held = _held_s(cache, key, changed / 1e9) if valued else 0.0
            found.append(Leftover(room, path, label, lone_bytes(path), changed / 1e9, young, held, valued))
    return found


def _held_s(cache: Cache, key: str, changed: float) -> float:
    """For how long leases of a key were held: each until what came next, or its scratch was last changed."""
    total, since = 0.0, None
    for entry in cache.actions.entries(key):
        if since is not None:
            total += max(0.0, min(entry.time, max(changed, since)) - since)
        since = entry.time if entry.state == LEASED else None
    return total + (max(0.0, changed - since) if since is not None else 0.0)


def _changed(path: str) -> int:
    try:
        return os.lstat(path).st_ctime_ns
    except FileNotFoundError:
        return 0
