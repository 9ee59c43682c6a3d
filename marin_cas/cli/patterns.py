"""Arguments that begin with `-//` or `-:` take targets away; they are no options."""

from __future__ import annotations

from typing import Any

import click

_MARK = "\0"


class PatternCommand(click.Command):
    """A command whose arguments may be negative patterns."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Click takes every argument that begins with a dash for an option.
        rest = super().parse_args(ctx, [_MARK + arg if arg.startswith(("-//", "-:")) else arg for arg in args])
        ctx.params = {name: _restore(value) for name, value in ctx.params.items()}
        return rest


def _restore(value: Any) -> Any:
    """Without the marks: such a text may also have been the value of an option."""
    if isinstance(value, tuple):
        return tuple(_restore(each) for each in value)
    return value.removeprefix(_MARK) if isinstance(value, str) else value
