"""Why something was built, served, skipped, retried or refused: decisions as data, rendered elsewhere.

The screen, `marin why`, events and tests all show the same `Reason`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Code(StrEnum):
    UP_TO_DATE = "up_to_date"  # nothing that the last build of this request saw has changed
    HIT_FINGERPRINT = "hit_fingerprint"  # a result is filed under this fingerprint
    HIT_KEY = "hit_key"  # inputs came out as before: a result is filed under this key
    HIT_PUBLISHED = "hit_published"  # published as `detail["name"]`; only the tool or libraries differ (`changes`)
    MISS_NEW = "miss_new"  # no result, and this label has no history
    MISS_CHANGED = "miss_changed"  # no result; `changes` against this label's latest key
    MISS_INPUTS = "miss_inputs"  # the key is not known until an input is built
    MISS_HOLLOW = "miss_hollow"  # a result is there, its bytes are gone and somebody needs them
    MISS_TAINTED = "miss_tainted"  # a result is there but tainted, or made from something tainted
    UNRESOLVED = "unresolved"  # marin.lock lacks `detail["need"]`, so there is no key and nothing can run
    FORCED = "forced"  # --again or --check
    NOT_NEEDED = "not_needed"  # everything that would read it is served
    SKIPPED = "skipped"  # an action that it needs failed
    NOT_STARTED = "not_started"  # the build stopped before its turn
    WAITED = "waited"  # another build made it meanwhile
    TAINTED_INPUT = "tainted_input"  # it may not run: it reads workspace files that are tainted
    NOT_AS_PUBLISHED = "not_as_published"  # it may not run: `detail["name"]` is published as another (`changes`)
    REFUSED = "refused"  # ran, but its result was not published: `detail["why"]`


@dataclass(frozen=True, slots=True)
class Change:
    """One differing value: `path` such as `params.optimizer.learning_rate`; the texts are canonical reprs."""

    path: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Reason:
    """A code, plain data about it, and for a changed key the first differing values. `detail["note"]` is what a person
    decided; it is said instead of the code's words."""

    code: Code
    detail: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()

    def text(self) -> str:
        """One line for people."""
        head = self.detail.get("note") or _TEXT[self.code].format_map(_Missing(self.detail))
        for first in self.changes[:1]:
            more = f" (and {len(self.changes) - 1} more)" if len(self.changes) > 1 else ""
            head += f": {first}{more}"
        return head

    def to_json(self) -> dict[str, object]:
        return {
            "code": str(self.code),
            "text": self.text(),
            "detail": dict(self.detail),
            "changes": [{"path": c.path, "before": c.before, "after": c.after} for c in self.changes],
        }


class _Missing(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


_TEXT = {
    Code.UP_TO_DATE: "nothing changed since the last build",
    Code.HIT_FINGERPRINT: "already built from these declarations",
    Code.HIT_KEY: "already built from these very inputs",
    Code.HIT_PUBLISHED: "published as `{name}`, by another tool or with other libraries",
    Code.MISS_NEW: "never built",
    Code.MISS_CHANGED: "changed",
    Code.MISS_INPUTS: "waits for `{input}`",
    Code.MISS_HOLLOW: "built before, but its bytes are gone",
    Code.MISS_TAINTED: "{what} tainted: {why}",
    Code.UNRESOLVED: "`{need}` is not in marin.lock: run `marin lock`",
    Code.FORCED: "asked for by {flag}",
    Code.NOT_NEEDED: "nothing that runs reads it",
    Code.SKIPPED: "needs `{failed}`, which failed",
    Code.NOT_STARTED: "the build stopped before its turn",
    Code.WAITED: "built meanwhile by {holder}",
    Code.TAINTED_INPUT: "{why}",
    Code.NOT_AS_PUBLISHED: "not what was published as `{name}`",
    Code.REFUSED: "not published: {why}",
}
