"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

type Decorator = Callable[[Any], Any]


def output_option(*choices: str) -> Decorator:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help="The form of the data.",
    )


def select_options(function: Any) -> Any:
    """What `select()` depends on: `--define` and `--profile`."""
    function = click.option("--profile", metavar="NAME", help="Take the section [profile.NAME] of the configuration.")(
        function
    )
    return click.option(
        "--define", metavar="NAME=VALUE", multiple=True, help="Set a name that select() asks for; repeatable."
    )(function)


def defines(pairs: Iterable[str]) -> dict[str, str] | None:
    """The pairs of `--define`, None when there is none, so that the configuration's own stand."""
    split = [pair.partition("=") for pair in pairs]
    for name, equals, _ in split:
        if not name or not equals:
            raise click.UsageError(f"`--define {name}` must be NAME=VALUE")
    return {name: value for name, _, value in split} or None
