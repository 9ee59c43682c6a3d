"""`marin lock`: writes marin.lock from what is installed."""

from __future__ import annotations

import click

from marin_cas.analysis.lock import LOCK_FILE, installed_lock, write_lock
from marin_cas.cli.session import Session
from marin_cas.ui import out


@click.command("lock")
def command() -> None:
    """Write marin.lock: the versions, as installed here, of the libraries that bear identity.

    Every library that a rule or a target of this workspace lists is in it. A changed line changes the keys of
    what lists that library: `marin build -n` shows what it would cost, before anything runs.
    """
    session = Session()
    before = session.lock
    graph = session.graph(session.expand(["//..."]))
    distributions = {
        name
        for target in graph.targets.values()
        for name in (*target.rule.toolchain, *(target.attrs.get("toolchain") or ()))
    }
    after = installed_lock(distributions, before)
    write_lock(session.root, after)
    for name in sorted({*before.toolchain, *after.toolchain}):
        old, new = before.toolchain.get(name), after.toolchain.get(name)
        if old != new:
            out.data(f"{name}: {old or '(not locked)'} -> {new or '(not locked)'}")
    changed = before.present and before.toolchain == after.toolchain
    out.note(f"{LOCK_FILE} is up to date" if changed else f"wrote {LOCK_FILE}")
