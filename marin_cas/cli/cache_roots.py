"""`marin cache roots`: what is kept for whom, and letting it go."""

from __future__ import annotations

import os

import click

from marin_cas.cache.roots import Root
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.errors import RequestError, did_you_mean
from marin_cas.label import parse_label
from marin_cas.scheduler import snapshot
from marin_cas.ui import out, values, words


@click.command("roots")
@click.option("--forget", metavar="WHAT", help="Let go of a workspace (its folder) or of a target of this workspace.")
@output_option("text", "json")
def command(forget: str | None, output: str) -> None:
    """List what is never given up: the targets that each workspace built last, pins, and published versions.

    A build registers the targets that it was asked for; of those that a wildcard found, the ones that nothing else
    there is made from. A workspace whose folder is gone keeps its roots, since its disk may only be unmounted:
    `--forget FOLDER` lets them go.

    \b
    marin cache roots
    marin cache roots --forget /home/ann/old-experiment
    """
    session = Session()
    if forget is not None:
        _forget(session, forget)
        return
    from marin_cas.cache.inventory import take

    inventory = take(session.cache)
    rows: list[dict[str, object]] = []
    held = inventory.held_by
    for root in inventory.roots:
        there = os.path.isdir(root.workspace)
        size = held([key.hex for key in root.keys])
        rows.append(
            {"kind": "target", "workspace": root.workspace, "there": there, "name": root.label,
             "keys": [key.hex for key in root.keys], "bytes": size, "since": root.since}
        )  # fmt: skip
    for pin in inventory.pins:
        size = held([key.hex for key in pin.keys], [inventory.nodes.number(digest) for digest in pin.digests])
        rows.append(
            {"kind": "pin", "name": pin.what, "keys": [key.hex for key in pin.keys], "digests": list(pin.digests),
             "deps": pin.deps, "because": pin.because, "who": pin.who, "bytes": size, "since": pin.time}
        )  # fmt: skip
    for name, key in inventory.published:
        rows.append({"kind": "published", "name": name, "keys": [key], "bytes": held([key]), "since": 0.0})
    if output == "json":
        out.data(values.dumps(rows))
        return
    for line in words.table([_row(row) for row in rows]):
        out.data(line)
    if not rows:
        out.note("nothing is kept: no workspace has built anything here")


def _row(row: dict[str, object]) -> list[str]:
    size, keys = words.size(int(row["bytes"])), row["keys"]  # type: ignore[call-overload]
    key = ", ".join(each[:12] for each in keys[:3]) + (" ..." if len(keys) > 3 else "")  # type: ignore[index]
    if row["kind"] == "target":
        return [size, key, str(row["name"]), str(row["workspace"]) + ("" if row["there"] else "  (not there now)")]
    if row["kind"] == "pin":
        deps = " and what it was made from" if row["deps"] else ""
        because = f": {row['because']}" if row["because"] else ""
        return [size, key, str(row["name"]), f"pinned by {row['who']}{deps}{because}"]
    return [size, key, str(row["name"]), "published"]


def _forget(session: Session, what: str) -> None:
    roots = list(session.cache.roots.all())
    found = [root for root in roots if root.workspace in (what, os.path.abspath(what))] if "/" in what else []
    if not found:
        found = _by_label(session, roots, what)
    if not found:
        known = [*(root.workspace for root in roots), *(root.label for root in roots)]
        hint = did_you_mean(what, known) or "`marin cache roots` lists workspaces and their targets"
        raise RequestError(f"nothing is kept for `{what}`", hint=hint)
    for root in found:
        session.cache.roots.forget(root)
        out.note(f"not kept any more: {root.label} of {root.workspace}")
    # A build that finds nothing changed would not register its targets again.
    snapshot.forget(session.workspace.cache / "snapshot")
    session.cache.sync()


def _by_label(session: Session, roots: list[Root], what: str) -> list[Root]:
    """A target of the workspace at hand or, if it has none of that name, of the only other that has."""
    try:
        label = str(parse_label(what, session.package))
    except ValueError:
        return []
    found = [root for root in roots if root.label == label]
    return [root for root in found if root.workspace == str(session.root)] or (found if len(found) == 1 else [])
