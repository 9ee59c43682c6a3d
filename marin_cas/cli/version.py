"""`marin version`."""

from __future__ import annotations

import click

from marin_cas import __version__
from marin_cas.ui import out


@click.command("version")
def command() -> None:
    """Print the version."""
    out.data(f"marin {__version__}")
