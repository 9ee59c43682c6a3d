"""`marin query`: questions about the graph of targets."""

from __future__ import annotations

import click

from marin_cas.cli.options import defines, output_option, select_options
from marin_cas.cli.patterns import PatternCommand
from marin_cas.cli.session import Session
from marin_cas.label import Label, parse_label
from marin_cas.query.output import FORMATS, render
from marin_cas.query.query import run, shorthand
from marin_cas.ui import out


@click.command("query", cls=PatternCommand)
@click.argument("expression", nargs=-1, required=True)
@output_option(*FORMATS)
@select_options
def command(expression: tuple[str, ...], output: str, define: tuple[str, ...], profile: str | None) -> None:
    """Ask questions about the graph of targets; nothing is analysed or built.

    \b
    marin query "deps(//exp:tiny, 2)"         what it needs, two steps down
    marin query deps //exp:tiny 2             the same, without quotes
    marin query "rdeps(//..., exp/f.py)"      what needs it
    marin query "somepath(//a, //b)"          why one needs the other (allpaths: every way)
    marin query "kind(tokenized, //...)"      by rule; attr(NAME, REGEX, X), filter(REGEX, X)
    marin query "deps(//a) - deps(//b)"       sets: + - ^ (union, except, intersect)
    marin query "tainted() ^ deps(//exp:x)"   what is tainted, or was made from something that is
    """
    session = Session({"define": defines(define), "profile": profile})
    config = session.config
    text = shorthand(expression)

    def tainted() -> list[Label]:
        from marin_cas.cache.tainting import tainted_actions

        return [parse_label(id.partition("#")[0]) for id, _ in tainted_actions(session.cache)]

    found = run(text, session.loader, session.package, config.define, config.profile, tainted=tainted)
    out.text(render(found, output))
