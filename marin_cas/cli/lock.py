"""`marin lock`: writes marin.lock from what is installed, and from what the outside world says of names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import click

from marin_cas.action import Need
from marin_cas.analysis.lock import LOCK_FILE, RESOLVED, Lock, installed_lock, write_lock
from marin_cas.analysis.needs import needs_of
from marin_cas.cli.patterns import PatternCommand
from marin_cas.cli.resolve import analysed, ask, differences
from marin_cas.cli.session import Session
from marin_cas.errors import RequestError, did_you_mean
from marin_cas.graph.pattern import expand
from marin_cas.ui import out

_ALL = "*"


@click.command("lock", cls=PatternCommand)
@click.argument("patterns", nargs=-1, metavar="[PATTERN...]")
@click.option(
    "--upgrade",
    is_flag=False,
    flag_value=_ALL,
    metavar="[=NAME]",
    help="Ask again for what is locked already: a repo, an entry, or everything.",
)
def command(patterns: tuple[str, ...], upgrade: str | None) -> None:
    """Write marin.lock: library versions as installed here, Hub revisions, and the content of URLs.

    Every library that a rule or a target of this workspace lists is in it, and every branch, tag, URL or prefix that
    a target names. Only what is missing is asked for: the network is used here and nowhere else before an action runs.
    With PATTERN only what those targets need; without, entries that no target needs any more are dropped, and those
    that only targets tagged `manual` need are kept: name such a target to ask for them.

    \b
    marin lock                                everything that is missing
    marin lock //exp:tiny                     what //exp:tiny needs
    marin lock --upgrade=allenai/paloma       ask again where its branch is now
    marin lock --upgrade                      ask again for everything

    A changed line changes the keys of what it is for: `marin build -n` shows what it would cost, before anything runs.
    """
    session = Session()
    before = session.lock
    every = not patterns
    # With those tagged `manual`: an entry that only they need is not dropped.
    graph = session.graph(expand(session.loader, patterns or ["//..."], session.package, manual=every))
    distributions = {
        name
        for target in graph.targets.values()
        for name in (*target.rule.toolchain, *(target.attrs.get("toolchain") or ()))
    }
    after = installed_lock(distributions, before)
    write_lock(session.root, after)  # what cannot be analysed yet may be so for want of these very versions
    # With empty sections an analysis tells of everything that it would read there.
    open_lock = replace(after, **{kind: {} for kind in RESOLVED})
    needs = needs_of(analysed(session, graph, open_lock).actions.values())
    due = set(needs)
    if every:
        unasked = session.graph(expand(session.loader, ["//..."], session.package))
        due = set(needs_of(analysed(session, unasked, open_lock).actions.values()))
    known = {need for need in needs if need.name in before.section(need.kind)}
    again = due | known if upgrade == _ALL else _upgraded(needs, upgrade)
    found = ask(need for need in needs if need in again or need in due - known)
    after = after.resolved(found.answers)
    if every:
        after = _without_unneeded(after, needs)
    write_lock(session.root, after)
    for line in (*_versions(before, after), *differences(before, found.answers), *_dropped(before, after)):
        out.data(line)
    found.complain()
    out.note(f"{LOCK_FILE} is up to date" if before.present and before == after else f"wrote {LOCK_FILE}")


def _upgraded(needs: Iterable[Need], name: str | None) -> set[Need]:
    if name is None:
        return set()
    again = {need for need in needs if name in (need.name, need.name.partition(" ")[2], _repo(need))}
    if not again:
        known = [known for need in needs for known in (need.name, _repo(need))]
        raise RequestError(
            f"`--upgrade={name}`: no target asks for that", hint=did_you_mean(name, known) or f"see {LOCK_FILE}"
        )
    return again


def _repo(need: Need) -> str:
    return need.name.partition(" ")[2].partition("@")[0] or need.name


def _without_unneeded(lock: Lock, needs: Iterable[Need]) -> Lock:
    named = {(need.kind, need.name) for need in needs}
    return replace(
        lock,
        **{kind: {n: a for n, a in lock.section(kind).items() if (kind, n) in named} for kind in RESOLVED},
    )


def _versions(before: Lock, after: Lock) -> Iterable[str]:
    for name in sorted({*before.toolchain, *after.toolchain}):
        old, new = before.toolchain.get(name), after.toolchain.get(name)
        if old != new:
            yield f"{name}: {old or '(not locked)'} -> {new or '(not locked)'}"


def _dropped(before: Lock, after: Lock) -> Iterable[str]:
    for kind in RESOLVED:
        for name in sorted(before.section(kind).keys() - after.section(kind).keys()):
            yield f"{name}: {before.section(kind)[name]} -> (no target needs it)"
