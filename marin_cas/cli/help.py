"""`marin help`: a command, or one of the few topics that belong to no single command."""

from __future__ import annotations

import click

from marin_cas.cli.root import COMMANDS, marin
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
@click.argument("topic", required=False)
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> None:
    """Explain a command, or a topic: configuration, patterns, exit-codes."""
    root = click.Context(marin, info_name="marin", **marin.context_settings)
    if topic is None:
        out.data(f"{marin.get_help(root)}\n\nTopics of `marin help`: {', '.join(TOPICS)}")
    elif topic in TOPICS:
        out.data(TOPICS[topic]())
    elif (found := marin.get_command(root, topic)) is not None:
        out.data(found.get_help(click.Context(found, info_name=topic, parent=root)))
    else:
        known = [*COMMANDS, *TOPICS]
        raise RequestError(f"there is no help on `{topic}`", hint=did_you_mean(topic, known) or ", ".join(known))
