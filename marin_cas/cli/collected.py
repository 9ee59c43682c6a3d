"""A plan of what a cache gives up, for people and as data."""

from __future__ import annotations

import time

from marin_cas.cache.collect import Collected
from marin_cas.cache.gc import Item, Plan
from marin_cas.cache.inventory import ATTEMPT, SERVED, Holding
from marin_cas.cache.price import price, resources
from marin_cas.ui import words

SHOWN = 20
_ROOMS = {"work": "work folder", "scratch": "scratch"}


def lines(plan: Plan, *, everything: bool) -> list[str]:
    """A line a thing, the largest first: bytes, why, what, what it costs to make again, when it was last used."""
    copies = [item for item in plan.items if item.leftover is not None and item.leftover.is_copy]
    single = [item for item in plan.items if item.leftover is None or not item.leftover.is_copy]
    items = sorted(single, key=lambda item: -item.bytes)
    shown = items if everything else items[:SHOWN]
    now = time.time()
    rows = [[words.size(item.bytes), item.why, _what(item), _again(item), _used(item, now)] for item in shown]
    if copies:
        size, count = words.size(sum(item.bytes for item in copies)), len(copies)
        text = "1 copy" if count == 1 else f"{count:,} copies"
        rows.append([size, copies[0].why, f"{text} in trees/ that no link leads to", "-", "-"])
    rest = items[len(shown) :]
    found = words.table(rows)
    if rest:
        found.append(f"and {len(rest):,} more, {words.size(sum(item.bytes for item in rest))} (`--all` lists them)")
    return found


def notes(plan: Plan, done: Collected | None) -> list[str]:
    """What a user should know besides the list."""
    found: list[str] = []
    for workspace in plan.absent:
        found.append(
            f"the workspace `{workspace}` is not there; what it has built is kept "
            f"(`marin cache roots --forget {workspace}` lets it go)"
        )
    if plan.lacking and plan.wanted.max_size is not None:
        limit = words.size(plan.wanted.max_size)
        verb = "would be" if done is None else "are"
        found.append(f"{words.size(plan.left)} {verb} left, {words.size(plan.lacking)} more than {limit}; held by:")
        found += [f"  {words.size(held)}  {name}" for name, held in plan.holders]
    if plan.young and (plan.lacking or not plan.items):
        found.append(
            f"{words.size(plan.young)} that nothing else keeps was used within the last "
            f"{words.seconds(plan.wanted.grace_s)} (`--grace` sets another time)"
        )
    return found


def total(plan: Plan, done: Collected | None) -> str:
    """One line: what was freed, or would be."""
    if done is None:
        return f"would free {words.size(plan.freed)} of {words.size(plan.size)}"
    spared = f", spared {words.count(done.spared, 'thing')} that somebody used meanwhile" if done.spared else ""
    stopped = ", stopped before the end" if done.stopped else ""
    return f"freed {words.size(done.freed)} of {words.size(plan.size)}{spared}{stopped}"


def to_json(plan: Plan, done: Collected | None) -> dict[str, object]:
    record: dict[str, object] = {
        "size": plan.size,
        "freed": plan.freed,
        "left": plan.left,
        "lacking": plan.lacking,
        "holders": [{"name": name, "bytes": held} for name, held in plan.holders],
        "young": plan.young,
        "absent": list(plan.absent),
        "items": [_item(item) for item in plan.items],
    }
    if done is not None:
        record["collected"] = {
            "freed": done.freed,
            "blobs": done.blobs,
            "spared": done.spared,
            "stopped": done.stopped,
        }
    return record


def cost(holding: Holding) -> str:
    """`2 h 07 min x 8 H100`, and what was downloaded."""
    spent = holding.cost
    download = f", {words.size(spent.bytes_downloaded)} download" if spent.bytes_downloaded else ""
    return f"{words.seconds(spent.wall_s)} x {resources(spent)}{download}"


def _item(item: Item) -> dict[str, object]:
    record: dict[str, object] = {"why": item.why, "bytes": item.bytes, "blobs": len(item.blobs)}
    if item.holding is not None:
        spent = item.holding.cost
        return record | {
            "kind": "result" if item.holding.kind == SERVED else item.holding.kind,
            "label": item.holding.label,
            "artifact": item.holding.artifact,
            "key": item.holding.key,
            "wall_s": spent.wall_s,
            "cpu_s": spent.cpu_s,
            "resources": dict(spent.resources),
            "bytes_downloaded": spent.bytes_downloaded,
            "again_cpu_s": round(item.again, 3),
            "last_used": item.holding.used,
        }
    if item.leftover is not None:
        left = item.leftover
        return record | {"kind": left.room, "path": left.path, "held_s": left.held_s, "last_used": left.changed}
    return record | {"kind": "blobs"}


def _what(item: Item) -> str:
    if item.holding is not None:
        kinds = {SERVED: "", ATTEMPT: ", another run"}
        holding = item.holding
        return f"{holding.name}  {holding.key[:12]}{kinds.get(holding.kind, ', not served')}"
    if item.leftover is not None:
        return f"{_ROOMS[item.leftover.room]} of {item.leftover.name}"
    return words.count(len(item.blobs), "blob") + " that nothing names"


def _again(item: Item) -> str:
    if item.holding is not None and item.holding.kind != ATTEMPT:
        more = " and what it is made from" if item.again > 1.001 * price(item.holding.cost) else ""
        return cost(item.holding) + more
    if item.leftover is not None and item.leftover.held_s:
        return f"{words.seconds(item.leftover.held_s)} of a run without a result"
    return "-"


def _used(item: Item, now: float) -> str:
    if item.holding is not None:
        return words.ago(item.holding.used, now)
    return words.ago(item.leftover.changed, now) if item.leftover is not None else "-"
