"""The end of a build: where the outputs are and their numbers as data, what it took as one line for people."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from marin_cas.analysis.analysis import Analysis
from marin_cas.errors import EXIT_OK
from marin_cas.label import Label
from marin_cas.result import Result
from marin_cas.scheduler import events
from marin_cas.scheduler.lookup import Lookup
from marin_cas.scheduler.report import BuildReport
from marin_cas.store.base import Store
from marin_cas.ui import words
from marin_cas.ui.scores import Numbers, numbers


@dataclass(frozen=True, slots=True)
class Summary:
    """`places` are the requested targets' outputs; `found` the numbers of these and of what they are made from."""

    roots: tuple[Label, ...]
    places: Mapping[Label, Mapping[str, Path]]
    found: Mapping[Label, Numbers]

    @classmethod
    def of(
        cls, analysis: Analysis, roots: Iterable[Label], report: BuildReport, lookup: Lookup, store: Store
    ) -> Summary:
        def result(id: str) -> Result | None:
            outcome = report.outcomes.get(id)
            # What nobody had to look at, because something above it was served, has its numbers all the same.
            return outcome.result if outcome else lookup.by_fingerprint(analysis.actions[id].fingerprint)

        found = {}
        for label, target in analysis.targets.items():
            if target.kind != "alias" and (shown := numbers(target, result, store)) is not None:
                found[label] = shown
        return cls(tuple(roots), report.links, found)

    def lines(self, cwd: Path) -> Iterator[str]:
        """Data for stdout: a target and its outputs, each with its numbers."""
        for label in [label for label in self.found if label not in self.places]:
            yield str(label)
            yield from (f"  {line}" for line in self.found[label].lines())
        single: list[list[str]] = []
        for label, outputs in self.places.items():
            if len(outputs) == 1 and label not in self.found:
                single.append([str(label), _shown(next(iter(outputs.values())), cwd)])
        yield from words.table(single)
        for label, outputs in self.places.items():
            if len(outputs) == 1 and label not in self.found:
                continue
            yield str(label)
            yield from (
                f"  {line}" for line in words.table([[name, _shown(path, cwd)] for name, path in outputs.items()])
            )
            if label in self.found:
                yield from (f"  {line}" for line in self.found[label].lines())

    def to_json(self) -> dict[str, object]:
        return {
            str(label): {
                "outputs": {name: str(path) for name, path in self.places.get(label, {}).items()},
                **(self.found[label].to_json() if label in self.found else {}),
            }
            for label in dict.fromkeys([*self.roots, *self.found])
        }


def _shown(path: Path, cwd: Path) -> str:
    relative = os.path.relpath(path, cwd)
    return str(path) if relative.startswith("..") else relative


def outcome_line(counts: Mapping[str, int], exit_code: int, seconds: float) -> str:
    """`done: 3 executed, 5 served (12 s)`, `up to date: 8 served (0.1 s)`."""
    served = sum(counts[name] for name in ("local_hits", "remote_hits", "up_to_date"))
    parts = [
        f"{number:,} {word}"
        for number, word in (
            (counts["executed"], "executed"),
            (served, "served"),
            (counts["failed"], "failed"),
            (counts["skipped"], "skipped"),
        )
        if number
    ]
    idle = not counts["executed"] and exit_code == EXIT_OK
    head = "up to date" if idle else "done" if exit_code == EXIT_OK else f"not done (exit {exit_code})"
    return f"{head}: {', '.join(parts) or 'nothing to run'} ({words.seconds(seconds)})"


def up_to_date(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of a build that found nothing changed, from those of the build before it."""
    total = sum(counts[name] for name in ("executed", "local_hits", "remote_hits", "up_to_date"))
    return {**dict.fromkeys(events.COUNTS, 0), "up_to_date": total}


def report_json(report: BuildReport, summary: Summary) -> dict[str, object]:
    """The whole report as data, for `--output json`."""
    return {
        "exit_code": report.exit_code,
        "seconds": round(report.seconds, 3),
        "counts": dict(report.counts),
        "targets": summary.to_json(),
        "actions": [
            {
                "action": outcome.action.id,
                "label": str(outcome.action.label),
                "rule": outcome.action.rule,
                "source": outcome.source,
                "key": outcome.key.hex if outcome.key else None,
                "reason": outcome.reason.to_json(),
                "seconds": round(outcome.seconds, 3),
                "error": outcome.error.render() if outcome.error else None,
            }
            for outcome in report.outcomes.values()
        ],
        "errors": [error.render() for error in report.errors],
        "warnings": list(report.warnings),
        "checked": {id: list(paths) for id, paths in report.checked.items()},
    }
