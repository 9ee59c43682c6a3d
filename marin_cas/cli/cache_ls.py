"""`marin cache ls`: the results of the action cache."""

from __future__ import annotations

import click

from marin_cas.cache.listing import results
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.result import Result
from marin_cas.tree.walk import first_missing
from marin_cas.ui import out, values, words


@click.command("ls")
@output_option("text", "json", "jsonl")
def command(output: str) -> None:
    """List the results that are served, the newest last: key, when, cost, bytes, target."""
    session = Session()
    found = sorted(results(session.cache), key=lambda result: result.finished)
    hollow = {result.key for result in found if _is_hollow(session, result)}
    if output == "text":
        out.text("".join(line + "\n" for line in words.table([_row(result, result.key in hollow) for result in found])))
        return
    records = [_record(result, result.key in hollow) for result in found]
    if output == "json":
        out.data(values.dumps(records))
    for record in records if output == "jsonl" else ():
        out.data(values.dumps(record, indent=None))


def _is_hollow(session: Session, result: Result) -> bool:
    return any(
        not made.reporting and first_missing(session.cache.store, made.kind, made.digest) is not None
        for made in result.outputs.values()
    )


def _row(result: Result, hollow: bool) -> list[str]:
    notes = [note for note in ("hollow" if hollow else "", result.outcome if result.outcome != "exact" else "") if note]
    return [
        result.key.short,
        words.when(result.finished),
        words.seconds(result.cost.wall_s),
        words.size(result.cost.bytes_out),
        result.artifact,
        result.label + (f"  ({', '.join(notes)})" if notes else ""),
    ]


def _record(result: Result, hollow: bool) -> dict[str, object]:
    return {
        "key": result.key.hex,
        "label": result.label,
        "artifact": result.artifact,
        "finished": result.finished,
        "wall_s": result.cost.wall_s,
        "cpu_s": result.cost.cpu_s,
        "bytes": result.cost.bytes_out,
        "outcome": result.outcome,
        "hollow": hollow,
        "user": result.producer.user,
        "host": result.producer.host,
        "outputs": {name: {"kind": made.kind, "digest": made.digest} for name, made in result.outputs.items()},
    }
