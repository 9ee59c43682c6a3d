"""`marin cache get`: a private copy of what is in the store."""

from __future__ import annotations

import os

import click

from marin_cas.cli.session import Session
from marin_cas.cli.stored import stored
from marin_cas.store.base import MissingBlob
from marin_cas.tree.export import export
from marin_cas.ui import out


@click.command("get")
@click.argument("what", metavar="WHAT")
@click.argument("dest", metavar="DEST", type=click.Path())
@click.option("--force", is_flag=True, help="Replace what is at DEST.")
def command(what: str, dest: str, force: bool) -> None:
    """Copy a file or tree out of the store, to the name DEST: bytes of your own, to change as you like.

    WHAT is a target, a `name@version`, a key or a digest; `%OUTPUT` names one of several outputs, and a path behind it
    a file or folder inside. Every byte is checked while it is copied, and DEST appears only when all are there.

    \b
    marin cache get //exp:tiny%hf model
    marin cache get //exp:tiny%hf/config.json config.json
    marin cache get exp/tiny@2026.01.31%hf/config.json config.json
    """
    session = Session()
    found = stored(session, what)
    store = session.cache.store
    # What a wrong --force must never take along.
    keep = (os.getcwd(), session.root, session.cache.root)
    try:
        export(store, found.kind, found.digest, dest, executable=found.executable, replace=force, keep=keep)
    except MissingBlob as missing:
        raise found.gone(missing) from None
    if found.taint:
        out.note(f"warning: it is tainted: {found.taint}")
    out.note(f"copied `{found.text}` to `{dest}`")
