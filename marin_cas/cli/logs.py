"""`marin logs`: what the last run of a target wrote, whether it failed or not."""

from __future__ import annotations

from pathlib import Path

import click

from marin_cas.cli.options import defines, select_options
from marin_cas.cli.session import Session
from marin_cas.cli.standing import Standings, logs_of
from marin_cas.digest import Digest
from marin_cas.errors import BuildError
from marin_cas.label import Label
from marin_cas.ui import out


@click.command("logs")
@click.argument("label")
@select_options
def command(label: str, define: tuple[str, ...], profile: str | None) -> None:
    """Print the log of the last run of a target as it is declared now, a failed one too."""
    session = Session({"define": defines(define), "profile": profile})
    target = session.target(label)
    standings = Standings.of(session, [target])
    found = False
    actions = standings.target(target).actions
    if not actions:
        raise BuildError(
            f"`{target}` runs nothing, so it has no log: it only names files or other targets",
            where=standings.target(target).target.location,
        )
    for id in actions:
        log = _newest(session, standings, id, target)
        if log is None:
            continue
        found = True
        if len(actions) > 1:
            out.note(f"{id}:")
        out.raw(log)
    if not found and all(id in standings.results for id in actions):
        out.note(f"`{target}` ran and wrote nothing")
    elif not found:
        raise BuildError(
            f"there is no log of `{target}`: it has not run as it is declared now",
            hint=f"`marin why {target}` tells what became of it",
        )


def _newest(session: Session, standings: Standings, id: str, target: Label) -> bytes | None:
    """The log of the latest of: the run under way, the last failure, the run whose result is served."""
    key = standings.keys.get(id)
    logs: list[tuple[float, Path | Digest]] = []
    if key is not None:
        logs += [(path.stat().st_mtime, path) for path in logs_of(session.cache, key)]
    result = standings.results.get(id)
    if result is not None and result.log is not None:
        logs.append((result.finished, result.log))
    if not logs:
        return None
    _, newest = max(logs, key=lambda log: log[0])
    return newest.read_bytes() if isinstance(newest, Path) else session.cache.store.read(newest)
