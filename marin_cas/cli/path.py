"""`marin path`: where a target's outputs are. Builds nothing."""

from __future__ import annotations

import click

from marin_cas.action import Built, Source
from marin_cas.cli.options import defines, select_options
from marin_cas.cli.session import Session
from marin_cas.cli.standing import Standings
from marin_cas.errors import BuildError, RequestError, did_you_mean
from marin_cas.label import Label
from marin_cas.result import Output
from marin_cas.ui import out


@click.command("path")
@click.argument("labels", nargs=-1, required=True, metavar="LABEL[%OUTPUT]...")
@select_options
def command(labels: tuple[str, ...], define: tuple[str, ...], profile: str | None) -> None:
    """Print where the outputs of targets are, a path a line; exit 1 for one that is not built as declared now."""
    session = Session({"define": defines(define), "profile": profile})
    split = [text.partition("%") for text in labels]
    if nameless := next((output for written, _, output in split if not written), None):
        raise RequestError(f"`%{nameless}` is an output of no target", hint=f"write `LABEL%{nameless}`")
    asked = [(session.target(written), output) for written, _, output in split]
    standings = Standings.of(session, [label for label, _ in asked])
    for label, output in asked:
        for path in _paths(standings, session, label, output):
            out.data(path)


def _paths(standings: Standings, session: Session, label: Label, output: str) -> list[str]:
    target = standings.target(label)
    where = target.target.location
    if output and output not in target.outputs:
        hint = did_you_mean(output, target.outputs) or f"its outputs: {', '.join(target.outputs) or 'none'}"
        raise RequestError(f"`{label}` has no output `{output}`", where=where, hint=hint)
    wanted = [output] if output else list(target.outputs)
    made: dict[str, Output] = {}
    for name, artifact in target.outputs.items():
        result = standings.results.get(artifact.action) if isinstance(artifact, Built) else None
        if isinstance(artifact, Built) and result is not None and artifact.output in result.outputs:
            made[name] = result.outputs[artifact.output]
        elif isinstance(artifact, Built) and name in wanted:
            raise BuildError(
                f"`{label}` is not built as it is declared now", where=where, hint=f"`marin build {label}`"
            )
    # All at once: whether a target's place is a link or a folder depends on how many outputs it has.
    links = session.cache.links.publish(label, made) if made else {}
    found: list[str] = []
    if not wanted:
        out.note(f"`{label}` has no outputs of its own")
    for name in wanted:
        artifact = target.outputs[name]
        if isinstance(artifact, Source):
            found += [str(session.root / path) for path in artifact.paths]
        elif name in links:
            found.append(str(links[name]))
        else:
            raise BuildError(
                f"`{label}` was built, but the bytes of its output `{name}` are gone",
                where=where,
                hint=f"`marin build {label}` makes them again",
            )
    return found
