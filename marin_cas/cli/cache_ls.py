"""`marin cache ls`: the results of the action cache."""

from __future__ import annotations

import time

import click

from marin_cas.cache.inventory import ATTEMPT, SERVED, Holding, Inventory
from marin_cas.cli.collected import cost
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.ui import out, values, words


@click.command("ls")
@click.option("--hollow", is_flag=True, help="Only those whose bytes are gone.")
@output_option("text", "json", "jsonl")
def command(hollow: bool, output: str) -> None:
    """List results, the newest last: key, last use, what it cost, bytes, version, target, and notes.

    Notes: `hollow` (its bytes are gone; a build that needs them makes them again), `tainted` (not served), `root` or
    `pinned` (never given up), `sampled`.
    """
    from marin_cas.cache.inventory import take

    inventory = take(Session().cache)
    shown = [each for each in inventory.holdings if each.kind == SERVED or (each.kind != ATTEMPT and each.tainted)]
    found = sorted((each for each in shown if each.hollow or not hollow), key=lambda each: each.finished)
    sizes = [inventory.nodes.bytes_at((*each.outputs, *each.extras)) for each in found]
    if output == "text":
        now = time.time()
        table = words.table([_row(inventory, each, size, now) for each, size in zip(found, sizes, strict=True)])
        out.text("".join(f"{line}\n" for line in table))
        return
    records = [_record(inventory, each, size) for each, size in zip(found, sizes, strict=True)]
    if output == "json":
        out.data(values.dumps(records))
    for record in records if output == "jsonl" else ():
        out.data(values.dumps(record, indent=None))


def _notes(inventory: Inventory, each: Holding) -> list[str]:
    kept = inventory.kept.get(each.key, [])
    notes = ["hollow"] if each.hollow else []
    notes += ["tainted"] if each.tainted else []
    notes += ["pinned"] if any(why.startswith("pin ") for why in kept) else []
    notes += ["published"] if any(why.startswith("published ") for why in kept) else []
    notes += ["root"] if any(" of " in why and not why.startswith(("pin ", "published ")) for why in kept) else []
    return [*notes, *([each.outcome] if each.outcome != "exact" else [])]


def _row(inventory: Inventory, each: Holding, size: int, now: float) -> list[str]:
    notes = _notes(inventory, each)
    return [
        each.key[:12],
        words.ago(each.used, now),
        cost(each),
        words.size(size),
        each.artifact,
        each.label + (f"  ({', '.join(notes)})" if notes else ""),
    ]


def _record(inventory: Inventory, each: Holding, size: int) -> dict[str, object]:
    return {
        "key": each.key,
        "label": each.label,
        "artifact": each.artifact,
        "finished": each.finished,
        "last_used": each.used,
        "wall_s": each.cost.wall_s,
        "cpu_s": each.cost.cpu_s,
        "bytes": each.cost.bytes_out,
        "bytes_here": size,
        "outcome": each.outcome,
        "hollow": each.hollow,
        "tainted": each.tainted or None,
        "kept_by": inventory.kept.get(each.key, []),
        "user": each.user,
        "host": each.host,
        "outputs": {name: {"kind": kind, "digest": digest} for name, (kind, digest) in each.digests.items()},
    }
