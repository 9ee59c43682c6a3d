"""What a person decides about results, and must answer for: why, and who."""

from __future__ import annotations

from typing import Any

import click

from marin_cas.cache.holder import Holder
from marin_cas.ui import out


def _because(context: click.Context, parameter: click.Parameter, value: str) -> str:
    text = out.visible(" ".join(value.split()))
    if not text:
        raise click.BadParameter("say why, in a few words")
    return text


def because_option(function: Any) -> Any:
    """`--because TEXT`: one line that is kept with the decision, and shown wherever it has an effect."""
    return click.option(
        "--because", required=True, metavar="TEXT", callback=_because, help="Why; shown to whoever meets it."
    )(function)


def who() -> str:
    """`user@host`."""
    holder = Holder.here()
    return f"{holder.user}@{holder.host}"
