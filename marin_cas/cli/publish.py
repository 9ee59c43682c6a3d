"""`marin publish`: `name@version` means from now on what its target is built as."""

from __future__ import annotations

import time

import click

from marin_cas.action import Action
from marin_cas.cache.holder import Holder
from marin_cas.cache.refs import Ref
from marin_cas.cli.options import output_option
from marin_cas.cli.patterns import PatternCommand
from marin_cas.cli.refs import ref_json
from marin_cas.cli.session import Session
from marin_cas.cli.standing import Standings
from marin_cas.errors import BuildError, RequestError
from marin_cas.graph.target import Target
from marin_cas.label import Label
from marin_cas.result import Result
from marin_cas.scheduler import snapshot
from marin_cas.scheduler.lookup import wanted_outputs
from marin_cas.ui import out, values, words
from marin_cas.versions import is_dev, version_of


@click.command("publish", cls=PatternCommand)
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@output_option("text", "json")
def command(patterns: tuple[str, ...], output: str) -> None:
    """Publish what targets are built as under their `name@version`, for good.

    From then on a build refuses to make anything else by that name, and `marin cache gc` keeps its bytes. Only fixed
    versions can be published; of what a wildcard names, targets with a dev version are passed over. Publishing the same
    once more changes nothing. Either all that is named is published, or nothing is.

    \b
    marin publish //exp:tiny
    marin publish //data/...
    """
    session = Session()
    labels = session.expand(patterns)
    standings = Standings.of(session, labels)
    chosen = _chosen(standings, labels, session.named(patterns))
    made = [(action, _result(session, standings, action)) for action in chosen]
    for action, _ in made:
        published = standings.lookup.published(action)
        if published is not None and published.error is not None:
            raise published.error
    holder = Holder.here()
    rows = [_publish(session, action, result, holder) for action, result in made]
    # What was built is not all there is to know any more.
    snapshot.forget(session.workspace.cache / "snapshot")
    session.cache.sync()
    if output == "json":
        out.data(values.dumps(rows))
        return
    shown = [[str(row[name]) for name in ("status", "name", "fingerprint", "label")] for row in rows]
    for line in words.table([[status, name, hexed[:12], label] for status, name, hexed, label in shown]):
        out.data(line)


def _chosen(standings: Standings, labels: tuple[Label, ...], named: frozenset[Label]) -> list[Action]:
    """The actions that the versions name. Raises RequestError where one that was asked for by name has none."""
    found: dict[str, Action] = {}
    for label in labels:
        analysed = standings.target(label)
        actions = (standings.analysis.actions[id] for id in analysed.actions)
        own = next((action for action in actions if action.artifact), None)
        if own is not None and not is_dev(version_of(own.artifact)):
            found[own.id] = own
        elif label in named:
            raise _not_publishable(analysed.target, own)
    if not found:
        raise RequestError(
            "nothing of what is named has a fixed version", hint='write `version = "YYYY.MM.DD"` where it is declared'
        )
    return list(found.values())


def _not_publishable(target: Target, action: Action | None) -> RequestError:
    if action is None:
        return RequestError(
            f"`{target.label}` runs nothing of its own, so there is nothing to publish", where=target.location
        )
    return RequestError(
        f"`{action.artifact}` is a dev version, which moves: it cannot be published",
        where=target.location,
        hint='write `version = "YYYY.MM.DD"` at its declaration, and build it',
    )


def _result(session: Session, standings: Standings, action: Action) -> Result:
    result = standings.results.get(action.id)
    if result is None:
        raise BuildError(
            f"`{action.id}` is not built as it is declared now, so there is nothing to publish",
            where=action.location,
            hint=f"`marin build {action.label}`",
        )
    if standings.lookup.missing(result, wanted_outputs(action)) is not None:
        raise BuildError(
            f"the bytes of `{action.id}` are gone, so there is nothing to publish",
            where=action.location,
            hint=f"`marin build {action.label}` makes them again",
        )
    return result


def _publish(session: Session, action: Action, result: Result, holder: Holder) -> dict[str, object]:
    ref = Ref(
        action.artifact,
        action.fingerprint,
        str(action.label),
        True,
        result.key,
        holder.user,
        holder.host,
        time.time(),
    )
    before = session.cache.refs.published(ref.name)
    standing = before or session.cache.refs.publish(ref)
    if before is None and (standing.fingerprint, standing.key) != (ref.fingerprint, ref.key):
        raise RequestError(
            f"`{ref.name}` was just published by {standing.user}@{standing.host}, as another thing",
            where=action.location,
            hint="give it a new `version`; `marin build -n` says what differs",
        )
    return {"status": "published" if before is None else "stands", **ref_json(standing)}
