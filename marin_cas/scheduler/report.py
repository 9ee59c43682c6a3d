"""How a build ended: what was executed, served, skipped, and why it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from marin_cas.action import Action
from marin_cas.digest import Digest
from marin_cas.errors import (
    EXIT_BUILD_FAILED,
    EXIT_ENVIRONMENT,
    EXIT_INTEGRITY,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_REQUEST,
    MarinError,
)
from marin_cas.label import Label
from marin_cas.reasons import Reason
from marin_cas.result import Result
from marin_cas.scheduler import events

FAILED, SKIPPED = "failed", "skipped"
# The gravest decides: wrong bytes, then what no rebuild of ours can mend, then the rest.
_GRAVITY = (EXIT_INTEGRITY, EXIT_ENVIRONMENT, EXIT_REQUEST, EXIT_BUILD_FAILED)


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """`source` is executed, local, remote or up_to_date; or failed or skipped."""

    action: Action
    source: str
    reason: Reason
    key: Digest | None = None
    result: Result | None = None
    error: MarinError | None = None
    seconds: float = 0.0
    log_tail: str = ""
    work: Path | None = None  # the folder of its run, if it was kept

    def finished(self, status: str = "") -> dict[str, object]:
        """The fields of its `action_finished`; `status` where it is another than `source` tells."""
        data: dict[str, object] = {"rule": self.action.rule, "reason": self.reason.to_json()}
        if self.source in events.COUNTED:
            data |= {"status": status or "succeeded", "source": self.source}
        else:
            data["status"] = status or self.source
        data["seconds"] = round(self.seconds, 3)
        if self.result is not None and self.source in events.COUNTED:
            data["bytes"] = self.result.cost.bytes_out
            data["outputs"] = {name: str(output.digest) for name, output in self.result.outputs.items()}
        if self.error is not None:
            data |= {"error": self.error.render(), "log_tail": self.log_tail}
        if self.work is not None:
            data["work"] = str(self.work)
        return data


@dataclass(frozen=True, slots=True)
class BuildReport:
    """`links` are the places under out/ of each requested target's outputs. `warnings` were events too. `errors` are
    those of no action (an output that could not be linked). `checked` has, for each action that --check ran again,
    the paths that differ (none: it reproduced).
    """

    outcomes: Mapping[str, ActionOutcome]
    counts: Mapping[str, int]
    failures: tuple[ActionOutcome, ...]
    exit_code: int
    seconds: float
    links: Mapping[Label, Mapping[str, Path]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    checked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    errors: tuple[MarinError, ...] = ()

    @property
    def executed(self) -> tuple[ActionOutcome, ...]:
        return tuple(o for o in self.outcomes.values() if o.source == events.EXECUTED)


def count(outcomes: Mapping[str, ActionOutcome]) -> dict[str, int]:
    counts: dict[str, int] = dict.fromkeys(events.COUNTS, 0)
    for outcome in outcomes.values():
        counts[events.COUNTED.get(outcome.source, outcome.source)] += 1
    return counts


def exit_code(errors: list[MarinError], *, interrupted: bool) -> int:
    if interrupted:
        return EXIT_INTERRUPTED
    codes = {error.exit_code for error in errors}
    if not codes:
        return EXIT_OK
    return next((code for code in _GRAVITY if code in codes), max(codes))
