"""`marin cache`: the commands that look into the store, and those that decide what is kept and served."""

from __future__ import annotations

import click

from marin_cas.cli.root import CACHE_COMMANDS, LazyGroup


@click.group("cache", cls=LazyGroup, table=CACHE_COMMANDS)
def command() -> None:
    """Look into the store, and decide what is kept and served."""
