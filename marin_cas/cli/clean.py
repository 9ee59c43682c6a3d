"""`marin clean`: removes what can be linked again, and work that nobody does any more. Blobs and results stay."""

from __future__ import annotations

import click

from marin_cas.cache.clean import clean, plan_clean
from marin_cas.cli.session import Session
from marin_cas.ui import out, words


@click.command("clean")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
def command(dry_run: bool) -> None:
    """Remove the output links and what failed or killed runs left behind.

    Blobs and results stay: a build after a clean executes nothing, and links its outputs again. What a running
    build uses stays as well.
    """
    session = Session()
    plan = plan_clean(session.cache)
    for folder in plan.folders:
        out.data(str(folder))
    for folder, holder in plan.kept:
        out.note(f"kept `{folder}`: {holder} works there")
    if not dry_run:
        clean(session.cache, plan)
    done = "would remove" if dry_run else "removed"
    out.note(f"{done} {words.count(len(plan.folders), 'folder')}, {words.size(plan.bytes)} (shared with the store)")
