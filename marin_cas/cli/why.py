"""`marin why`: why a target would run, ran, or was served; the same reasons as in the plan, at full length."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from marin_cas.cli.options import defines, output_option, select_options
from marin_cas.cli.session import Session
from marin_cas.cli.standing import logs_of
from marin_cas.digest import Digest
from marin_cas.errors import RequestError
from marin_cas.label import Label
from marin_cas.result import Result
from marin_cas.scheduler.local import LocalCache
from marin_cas.scheduler.plan import HIT, MISS, REFUSED, SKIP, Decision, Plan, plan
from marin_cas.tree.walk import first_missing
from marin_cas.ui import dryrun, out, values, words

_MOST = 30
_WOULD = {HIT: "is served", MISS: "would run", SKIP: "would be skipped", REFUSED: "is refused"}
_CODE = "params.code"


@click.command("why")
@click.argument("label")
@select_options
@output_option("text", "json")
def command(label: str, define: tuple[str, ...], profile: str | None, output: str) -> None:
    """Say why a target would run or is served: the reason, the first differing values, who made what is there.

    What it needs is explained too as far as it would run: a change far below shows at its own action.
    """
    session = Session({"define": defines(define), "profile": profile})
    target = session.target(label)
    analysis = session.analyse(session.graph([target]))
    own = analysis.targets[target].actions
    if not own:
        raise RequestError(
            f"`{target}` runs nothing: it only names files or other targets",
            where=analysis.targets[target].target.location,
            hint=f"`marin query deps {target}` shows what it stands for",
        )
    local = LocalCache(session.cache, session.root)
    made = plan(analysis, [target], local)
    if output == "json":
        out.data(values.dumps([_record(session, decision) for decision in made.decisions.values()]))
        return
    blocks = ["\n".join(_lines(session, made.decisions[id])) for id in own if id in made.decisions]
    below = list(_below(session, made, own))
    if below:
        blocks.append("\n".join(["it needs:", *(f"  {line}" for line in below)]))
    out.data("\n\n".join(blocks))


def _lines(session: Session, decision: Decision) -> Iterator[str]:
    action, reason = decision.action, decision.reason
    yield f"{action.id}  {_WOULD[decision.status]}: {reason.text()}"
    rows = [
        ["key", decision.key.hex if decision.key else _no_key(decision)],
        ["fingerprint", action.fingerprint.hex() + ("  (provisional)" if action.provisional else "")],
        ["declared", str(action.location)],
    ]
    if decision.result is not None:
        rows += [*_made(decision.result), *_hollow(session, decision)]
    elif (before := _before(session, action.id)) is not None:
        rows += [["before", f"key {before.key.short}"], *_made(before)]
    yield from (f"  {line}" for line in words.table(rows))
    if decision.key and decision.result is None:
        yield from (f"  {line}" for line in _last_run(session, action.label, decision.key))
    if decision.error is not None and decision.error.hint:
        yield f"  hint: {decision.error.hint}"
    if reason.changes:
        yield "  changed:"
        yield from (f"    {change}" for change in reason.changes)
        if action.code and any(change.path == _CODE for change in reason.changes):
            yield f"  `{_CODE}` is what it runs of {', '.join(f'`{path}`' for path in action.code.paths)}"


def _no_key(decision: Decision) -> str:
    what = "marin.lock says what it stands for" if decision.action.provisional else "its inputs are built"
    return f"not known until {what}"


def _hollow(session: Session, decision: Decision) -> list[list[str]]:
    """A row for each output of the result whose bytes are gone, with the first blob that is missing."""
    found: list[list[str]] = []
    for name, output in decision.result.outputs.items() if decision.result is not None else ():
        blob = None if output.reporting else first_missing(session.cache.store, output.kind, output.digest)
        if blob is not None:
            found.append(
                ["hollow", f"the bytes of `{name}` are gone (blob {blob.short}); its digest is used all the same"]
            )
    return found


def _last_run(session: Session, label: Label, key: Digest) -> Iterator[str]:
    """What became of the last run of a key that has no result."""
    if (holder := session.cache.actions.in_use(key.hex)) is not None:
        yield f"it runs now, for {holder}: `marin logs {label}`"
    elif logs := logs_of(session.cache, key):
        log, kept = logs[-1], logs[-1].name == "log"
        ended = "failed or was killed" if kept else "failed"
        yield f"its last run {ended}, {words.ago(log.stat().st_mtime, time.time())}: `marin logs {label}`"
        if kept:
            yield f"its work folder: {log.parent}"


def _made(result: Result) -> list[list[str]]:
    producer, cost = result.producer, result.cost
    commit = (
        f", commit {producer.commit[:12]}{' and local changes' if producer.dirty else ''}" if producer.commit else ""
    )
    made = (
        f"{words.when(result.finished)} ({words.ago(result.finished, time.time())}) by {producer.user}@{producer.host}"
    )
    spent = f"{words.seconds(cost.wall_s)}, {words.seconds(cost.cpu_s)} of CPU, {words.size(cost.max_rss)} of memory"
    rows = [["made", made + commit], ["took", spent], ["outputs", _outputs(result)]]
    if result.label:
        rows.append(["as", f"{result.label} ({result.artifact})" if result.artifact else result.label])
    if result.note:
        rows.append(["note", result.note])
    return rows


def _outputs(result: Result) -> str:
    return ", ".join(f"{name} {output.digest.short}" for name, output in result.outputs.items())


def _before(session: Session, id: str) -> Result | None:
    """The newest result that the action's label had."""
    for record in reversed(session.cache.labels.history(id)):
        if (result := session.cache.actions.result(record.key)) is not None:
            return result
    return None


def _below(session: Session, made: Plan, own: tuple[str, ...]) -> Iterator[str]:
    """A line for an action below that is in the plan, producers first."""
    decisions = [(id, decision) for id, decision in made.decisions.items() if id not in own]
    # Of very many, those that say something: what would run though it waits for nothing.
    if len(decisions) > _MOST:
        causes = [each for each in decisions if each[1].status != HIT and "input" not in each[1].reason.detail]
        decisions = causes or decisions
    rows: list[list[str]] = []
    for id, decision in decisions[:_MOST]:
        hollow = "; its bytes are gone" if decision.status == HIT and _hollow(session, decision) else ""
        rows.append([decision.status, id, dryrun.name(decision), decision.reason.text() + hollow])
    yield from words.table(rows)
    if len(decisions) > _MOST:
        yield f"and {len(decisions) - _MOST:,} more: `marin build -n` lists them"


def _record(session: Session, decision: Decision) -> dict[str, object]:
    result = decision.result or _before(session, decision.action.id)
    found: dict[str, object] = {**decision.to_json(), "location": str(decision.action.location), "made": None}
    found["hollow"] = bool(_hollow(session, decision))
    if result is not None:
        found["made"] = {
            "key": result.key.hex,
            "label": result.label,
            "artifact": result.artifact,
            "finished": result.finished,
            "user": result.producer.user,
            "host": result.producer.host,
            "commit": result.producer.commit,
            "dirty": result.producer.dirty,
            "versions": result.producer.versions,
            "wall_s": result.cost.wall_s,
            "cpu_s": result.cost.cpu_s,
            "max_rss": result.cost.max_rss,
            "outputs": {name: output.digest for name, output in result.outputs.items()},
            "note": result.note,
        }
    return found
