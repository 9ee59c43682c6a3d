"""`marin cache taint`: what is wrong is not served any more, nor what was made from it."""

from __future__ import annotations

import click

from marin_cas.cache.tainting import BELOW, MADE, NAMED, READ, Reach, Reached, taint_digest, taint_keys
from marin_cas.cli.decision import because_option, who
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.cli.what import What, find
from marin_cas.errors import RequestError
from marin_cas.ui import out, values, words

_HOWS = {NAMED: "tainted", MADE: "made it", READ: "reads it", BELOW: "made from it"}


@click.command("taint")
@click.argument("what", metavar="WHAT")
@because_option
@output_option("text", "json")
def command(what: str, because: str, output: str) -> None:
    """Say that something is wrong: it is not served any more, nor what was made from it.

    WHAT is a target (`//exp:raw`), a `name@version`, a key, or a digest: of an output, of a file or folder inside
    one, or of a workspace file. Hex may be cut short.

    A tainted result is made again by the next build that wants it. A tainted digest stays so: what reads it does not
    run, and what makes it again is not published. `marin query "tainted()"` lists what is affected;
    `marin cache untaint` takes it back.

    \b
    marin cache taint //exp:raw --because "the crawl was cut short"
    marin cache taint 3f29c1d0 --because "holds personal data"
    """
    session = Session()
    found = find(session, what)
    reach = _taint(session, found, because)
    session.cache.sync()
    if output == "json":
        record = {"what": found.text, "because": because, "who": who(), "unknown": reach.unknown}
        if found.hash is not None:
            record["digest"] = found.hash.hex()
        out.data(values.dumps({**record, "reached": [each.to_json() for each in reach.reached]}))
        return
    out.note(f"tainted: {found}")
    for line in lines(reach.reached):
        out.data(line)
    if reach.unknown:
        out.note(
            f"warning: the records of {words.count(reach.unknown, 'folder')} are gone, so nobody can tell whether "
            "they held it; it is looked for again when they are made again"
        )
    if not reach.reached:
        out.note("no result here has anything to do with it so far")


def _taint(session: Session, found: What, because: str) -> Reach:
    if found.hash is not None:
        return taint_digest(session.cache, found.hash, because, who())
    standings = [session.cache.actions.standing(key) for key in found.keys]
    taints = [taint for standing in standings if (taint := standing.taint) is not None and not taint.cause]
    if len(taints) == len(standings):
        raise RequestError(f"{found} is tainted already: {taints[0].said()}")
    return taint_keys(session.cache, found.keys, because, who())


def lines(reached: list[Reached]) -> list[str]:
    """A line a result: key, how the taint reached it, name, and the targets that stand for it."""
    rows = [
        [
            each.result.key.short,
            _HOWS[each.how],
            each.result.artifact,
            ", ".join(each.labels) or f"{each.result.label} (not as declared now)",
        ]
        for each in reached
    ]
    return words.table(rows)
