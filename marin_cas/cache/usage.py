"""How much a cache holds, of what kind, and for whom, for `marin cache stat`."""

from __future__ import annotations

import os
import stat as modes
from array import array
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from marin_cas.cache.cache import Cache
from marin_cas.cache.copies import lone_bytes
from marin_cas.cache.inventory import ATTEMPT, SERVED, Inventory, take

OUTPUTS, REPORTS, SOURCES, RECORDS, ATTEMPTS, GARBAGE = (
    "outputs", "reports", "sources", "records", "attempts", "garbage",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Share:
    """`results` of a group, the bytes that their outputs reach, and those that no other group's outputs do."""

    name: str
    results: int
    bytes: int
    alone: int


@dataclass(frozen=True, slots=True)
class Usage:
    """`blobs` counts digests, `blob_bytes` what they take, `kinds` the same bytes by kind, each blob once: outputs of
    results, workspace files, tree records and recipes, logs and reports, what only other attempts hold, and what
    nothing names. The folders' bytes leave out what has a name elsewhere, so that removing one frees what is counted.
    """

    blobs: int
    blob_bytes: int
    keys: int
    results: int
    hollow: int
    attempts: int
    leases: int
    trees_bytes: int
    work_bytes: int
    scratch_bytes: int
    kinds: Mapping[str, int] = field(default_factory=dict)
    tools: tuple[Share, ...] = ()
    roots: tuple[Share, ...] = ()


def stat(cache: Cache) -> Usage:
    """Counts from records; nothing is hashed but these, and only what nothing names is looked at."""
    inventory = take(cache)
    kinds = _kinds(cache, inventory)
    served = list(inventory.served.values())
    tools: dict[str, list[str]] = {}
    for holding in served:
        tools.setdefault(holding.tool or "unknown", []).append(holding.key)
    roots = {f"{root.label}  {root.workspace}": [key.hex for key in root.keys] for root in inventory.roots}
    roots |= {f"pin {pin.what}": [key.hex for key in pin.keys] for pin in inventory.pins}
    trees, work, scratch = (lone_bytes(f"{cache.root}/{name}") for name in ("trees", "work", "scratch"))
    return Usage(
        sum(1 for files in inventory.nodes.files if files),
        sum(kinds.values()),
        sum(1 for _ in cache.actions.all_keys()),
        len(served),
        sum(holding.hollow for holding in served),
        sum(holding.kind == ATTEMPT for holding in inventory.holdings),
        len(inventory.leased),
        trees,
        work,
        scratch,
        kinds,
        _shares(inventory, tools),
        _shares(inventory, roots),
    )


def _kinds(cache: Cache, inventory: Inventory) -> dict[str, int]:
    nodes = inventory.nodes
    tops: dict[str, list[int]] = {
        OUTPUTS: [n for h in inventory.served.values() for n in h.outputs],
        REPORTS: [*inventory.reports, *(n for h in inventory.holdings if h.kind == SERVED for n in h.extras)],
        SOURCES: [n for h in inventory.holdings if h.kind == SERVED for n in h.sources],
        RECORDS: [*inventory.recipes, *inventory.environments],
        ATTEMPTS: [n for h in inventory.holdings for n in h.named],
    }
    kinds: dict[str, int] = dict.fromkeys((OUTPUTS, SOURCES, RECORDS, REPORTS, ATTEMPTS, GARBAGE), 0)
    seen = bytearray(len(nodes))
    for kind, at in tops.items():
        for n in nodes.reach(at, seen):
            kinds[RECORDS if nodes.is_tree[n] and kind != ATTEMPTS else kind] += nodes.taken(n)
    hashes = nodes.hashes()
    for n, files in enumerate(nodes.files):
        if files and not seen[n]:
            kinds[GARBAGE] += _looked_up(f"{cache.store.root}/{hashes[n].hex()[:2]}/{hashes[n].hex()}")
    return kinds


def _looked_up(path: str) -> int:
    total = 0
    for name in (path, f"{path}.x"):
        with suppress(FileNotFoundError):
            total += os.stat(name).st_size
    return total


def _shares(inventory: Inventory, groups: Mapping[str, Iterable[str]]) -> tuple[Share, ...]:
    """Groups of keys, the largest first."""
    nodes, served = inventory.nodes, inventory.served
    reached = [0] * len(groups)
    owner = array("i", [-1]) * len(nodes)
    several = len(groups)
    for i, keys in enumerate(groups.values()):
        tops = [n for key in keys if key in served for n in served[key].outputs]
        for n in nodes.reach(tops, bytearray(len(nodes))):
            reached[i] += nodes.taken(n)
            owner[n] = i if owner[n] == -1 else several
    alone = [0] * (several + 1)
    for n, i in enumerate(owner):
        if i >= 0:
            alone[i] += nodes.taken(n)
    shares = [
        Share(name, sum(key in served for key in keys), reached[i], alone[i])
        for i, (name, keys) in enumerate(groups.items())
    ]
    return tuple(sorted(shares, key=lambda share: (-share.bytes, share.name)))


def folder_bytes(path: str, shared: set[tuple[int, int]] = frozenset()) -> int:  # type: ignore[assignment]
    """Bytes of the regular files below a folder, each inode once and those in `shared` never; 0 when absent."""
    total = 0
    seen = set(shared)
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                found = os.lstat(f"{folder}/{name}")
            except FileNotFoundError:
                continue
            inode = (found.st_dev, found.st_ino)
            if modes.S_ISREG(found.st_mode) and inode not in seen:
                seen.add(inode)
                total += found.st_size
    return total
