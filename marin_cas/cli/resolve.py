"""The resolve phase: what rules ask of the outside world is found out and written into marin.lock. Network only here.

The asking is done by a program of its own, so that no library of the network is imported by a build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from marin_cas.action import Need
from marin_cas.analysis.analysis import Analysis
from marin_cas.analysis.lock import Lock, write_lock
from marin_cas.analysis.needs import needs_of, refuse_unresolved
from marin_cas.cli.session import Session
from marin_cas.errors import EnvironmentProblem, Interrupted, RequestError
from marin_cas.graph.graph import Graph
from marin_cas.ui import out

_TOOL = "marin_cas.tools.resolve"


@dataclass(slots=True)
class Resolution:
    """`answers` by section and name; `problems` are what could not be found out."""

    answers: dict[tuple[str, str], str] = field(default_factory=dict)
    problems: list[RequestError] = field(default_factory=list)

    def complain(self) -> None:
        """Raises the first problem, with the others below it."""
        if self.problems:
            first, rest = self.problems[0], self.problems[1:]
            first.notes = (*first.notes, *(str(problem) for problem in rest))
            raise first


def ask(needs: Iterable[Need]) -> Resolution:
    """Asks the outside world. Raises EnvironmentProblem when that cannot even be tried."""
    wanted = {(need.kind, need.name): need for need in needs}
    found = Resolution()
    if not wanted:
        return found
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", _TOOL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        )
        said, _ = process.communicate(json.dumps(list(wanted)))
    except KeyboardInterrupt:
        raise Interrupted("stopped; marin.lock is as it was") from None
    except OSError as error:
        raise EnvironmentProblem(f"cannot start the program that resolves: {error.strerror or error}") from None
    for line in said.splitlines():
        told = json.loads(line)
        place = told["kind"], told["name"]
        if "answer" in told:
            found.answers[place] = told["answer"]
        else:
            found.problems.append(
                RequestError(f"`{told['name']}`: {told['error']}", where=wanted[place].where, hint=told["hint"])
            )
    if len(found.answers) + len(found.problems) != len(wanted):
        raise EnvironmentProblem(
            f"the program that resolves ended with {process.returncode}",
            hint="it said why above; what it has found out so far is lost: run it again",
        )
    return found


def resolve(session: Session, lock: Lock, needs: Iterable[Need]) -> Lock:
    """Asks, writes what was learned into marin.lock, and says so; then raises what could not be found out."""
    found = ask(needs)
    after = lock.resolved(found.answers)
    if found.answers:
        write_lock(session.root, after)
    for line in differences(lock, found.answers):
        out.note(f"locked {line}")
    found.complain()
    return after


def analysed(session: Session, graph: Graph, lock: Lock) -> Analysis:
    """The analysis of `graph` with that lock instead of the workspace's."""
    from marin_cas.analysis.analysis import analyse
    from marin_cas.analysis.sources import Sources

    return analyse(graph, session.loader, lock, Sources(session.root, session.cache.stats))


def settled(session: Session, graph: Graph, analysis: Analysis) -> Analysis:
    """The analysis, once the lock says all that it asks. On a terminal what is missing is found out first; with
    --locked, in CI and where nobody sits in front of it, that is refused (RequestError)."""
    needs = needs_of(analysis.actions.values())
    if not needs:
        return analysis
    if reason := _may_not_ask(session):
        refuse_unresolved(analysis.actions.values(), reason)
    return analysed(session, graph, resolve(session, session.lock, needs))


def _may_not_ask(session: Session) -> str:
    if session.config.locked:
        return "`--locked`"
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        return "`CI` is set"
    return "" if sys.stderr.isatty() else "not on a terminal"


def differences(before: Lock, answers: Mapping[tuple[str, str], str]) -> list[str]:
    """A line for each answer that is new or another one: `dataset a/b@main: 65cd6fc -> 1234567`."""
    lines = []
    for (kind, name), answer in sorted(answers.items()):
        old = before.section(kind).get(name)
        if old != answer:
            lines.append(f"{name}: {old or '(not locked)'} -> {answer}")
    return lines
