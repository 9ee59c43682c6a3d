"""Arguments that begin with `-//` or `-:` take targets away; they are no options."""

from __future__ import annotations

from collections.abc import Iterable

import click

_MARK = "\0"


class PatternCommand(click.Command):
    """A command whose arguments may be negative patterns; the callback gives them to `restore`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Click takes every argument that begins with a dash for an option.
        return super().parse_args(
            ctx, [_MARK + arg if arg.startswith(("-//", "-:")) or arg == "-" else arg for arg in args]
        )


def restore(arguments: Iterable[str]) -> list[str]:
    return [argument.removeprefix(_MARK) for argument in arguments]
