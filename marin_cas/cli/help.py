"""`marin help`: a command, or one of the few topics that belong to no single command."""

from __future__ import annotations

from collections.abc import Sequence

import click

from marin_cas.cli.root import marin
from marin_cas.config import SETTINGS
from marin_cas.errors import RequestError, did_you_mean
from marin_cas.ui import out, words

_PATTERNS = """\
//exp:tiny       the target `tiny` of the package in the folder `exp`; `//exp` is `//exp:exp`
:tiny            a target of the package in the current folder
//exp:all        every target of a package; `exp/`, as a shell completes it, is the same
//exp/...        every target at and below a folder; `//...` of the workspace
-//exp:tiny      takes away from what stands before it

Targets tagged `manual` are left out of `:all` and `...`."""

_EXIT_CODES = """\
0   done
1   a build failed, or needs a decision
2   the command line, the configuration, a BUILD file or a rule file is wrong
3   the machine or the infrastructure is in the way
4   integrity: bytes of the store are not what their digest says
8   interrupted
70  a bug of marin-cas"""


def _configuration() -> str:
    rows = [[f"  {name}", meaning] for name, meaning in SETTINGS.items()]
    return "\n".join(
        [
            "In `marin.toml`, or in `[tool.marin]` of `pyproject.toml`; above it the user's own",
            "`~/.config/marin-cas/config.toml`; above it the section of `--profile NAME`, then variables such as",
            "MARIN_JOBS, then flags. `marin info` shows every value and where it came from.",
            "",
            *words.table(rows),
        ]
    )


TOPICS = {"configuration": _configuration, "patterns": lambda: _PATTERNS, "exit-codes": lambda: _EXIT_CODES}


@click.command("help")
@click.argument("topic", nargs=-1)
@click.pass_context
def command(ctx: click.Context, topic: tuple[str, ...]) -> None:
    """Explain a command, or a topic: configuration, patterns, exit-codes."""
    root = click.Context(marin, info_name="marin", **marin.context_settings)
    if not topic:
        out.data(f"{marin.get_help(root)}\n\nTopics of `marin help`: {', '.join(TOPICS)}")
    elif len(topic) == 1 and topic[0] in TOPICS:
        out.data(TOPICS[topic[0]]())
    else:
        out.data(_help(root, topic))


def _help(context: click.Context, names: Sequence[str]) -> str:
    """The help of the command that the names lead to, such as `cache ls`."""
    for name in names:
        group = context.command
        known = [*group.list_commands(context)] if isinstance(group, click.Group) else []
        found = group.get_command(context, name) if isinstance(group, click.Group) else None
        if found is None:
            known += TOPICS if group is marin else []
            hint = did_you_mean(name, known) or ", ".join(known) or f"`{context.command_path} --help`"
            raise RequestError(f"there is no help on `{' '.join(names)}`", hint=hint)
        context = click.Context(found, info_name=name, parent=context)
    return context.command.get_help(context)
