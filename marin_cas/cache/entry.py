"""One step in the life of a key, its record, and what a whole sequence of them adds up to.

A record is the line `marin-cas entry 1` and the CBOR list [body, BLAKE3 of body]; the body is the CBOR map of the
step. The check is there because, unlike a blob, an entry's name does not say what its bytes must be.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from marin_cas.cache.holder import Holder
from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError, Value, decode, decode_record, encode, encode_record
from marin_cas.result import Result

ENTRY_HEADER = "marin-cas entry 1"

LEASED = "leased"  # `holder` may build it, under `fence`
FREE = "free"  # the lease `fence` ended without a chosen result
DONE = "done"  # `result` is chosen; ends the lease `fence`
ATTEMPT = "attempt"  # `result` of another run
TAINTED = "tainted"  # what is chosen is not to be served: `reason`, `who`; `cause` is what it was tainted with
UNTAINTED = "untainted"  # takes back every taint of that `cause`
EQUATED = "equated"  # `result`, made under the key `source`, is chosen: `reason`, `who`; ends the lease `fence`
REVOKED = "revoked"  # takes the equated result back
UNREADABLE = "unreadable"  # damaged on disk: counts for nothing but its number
_STATES = (LEASED, FREE, DONE, ATTEMPT, TAINTED, UNTAINTED, EQUATED, REVOKED)


@dataclass(frozen=True, slots=True)
class Entry:
    """`n` counts from 1 and is not in the record: it is the name. `time` is in Unix seconds, for people.

    `cause` is empty for a taint of the key itself, else the hex of the digest or key whose taint came down on it.
    """

    n: int
    state: str
    time: float = 0.0
    fence: str = ""
    holder: Holder | None = None
    result: Result | None = None
    reason: str = ""
    who: str = ""
    cause: str = ""
    source: Digest | None = None

    def said(self) -> str:
        """Why, by whom and when, for people: `wrong corpus (ann@box, 2026-01-31 14:05)`."""
        by = f"{self.reason} ({self.who}, {time.strftime('%Y-%m-%d %H:%M', time.localtime(self.time))})"
        return f"`{self.cause[:12]}` is tainted: {by}" if self.cause and self.state == TAINTED else by

    def record(self) -> bytes:
        fields: dict[str, Value] = {"state": self.state, "time": float(self.time)}
        if self.fence:
            fields["fence"] = self.fence
        if self.holder is not None:
            fields["holder"] = self.holder.to_record()
        if self.result is not None:
            fields["result"] = self.result.record()
        if self.reason or self.who:
            fields |= {"reason": self.reason, "who": self.who}
        if self.cause:
            fields["cause"] = self.cause
        if self.source is not None:
            fields["source"] = self.source.to_record()
        body = encode(fields)
        return encode_record(ENTRY_HEADER, [body, Digest.of(body).hash])

    @classmethod
    def parse(cls, n: int, record: bytes) -> Entry:
        """The entry in a record; one in the state `unreadable` when it is damaged, since a build must be able to go
        on behind it: at worst the key is built again."""
        try:
            match decode_record(ENTRY_HEADER, record):
                case [bytes() as body, check] if Digest.of(body).hash == check:
                    return cls._of(n, decode(body))
        except (EncodingError, TypeError, ValueError, KeyError) as error:
            return cls(n, UNREADABLE, reason=str(error))
        return cls(n, UNREADABLE, reason="its check does not match")

    @classmethod
    def _of(cls, n: int, value: Any) -> Entry:
        fields: dict[str, Any] = dict(value)
        state = fields["state"]
        if state not in _STATES:
            raise ValueError(f"`{state}` is not a state")
        holder, result, source = fields.get("holder"), fields.get("result"), fields.get("source")
        return cls(
            n,
            state,
            float(fields["time"]),
            str(fields.get("fence", "")),
            None if holder is None else Holder.from_record(holder),
            None if result is None else Result.parse(result),
            str(fields.get("reason", "")),
            str(fields.get("who", "")),
            str(fields.get("cause", "")),
            None if source is None else Digest.from_record(source),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """A result and the number of the entry that holds it."""

    n: int
    result: Result


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that stands: its entry, and the run that was chosen then and is not to be served since."""

    entry: Entry
    run: Run


@dataclass(frozen=True, slots=True)
class Standing:
    """What a sequence of entries adds up to.

    `n` is the number of the last one, 0 for none. `choice` is the run that was chosen last; it is served unless one of
    `taints` is of it. `equated` is the entry that says so when the choice was made under another key, and `before` the
    choice until then. `others` are all other runs, oldest first. `lease` is the open one. `fences` are those of all
    leases ever, oldest first.
    """

    n: int = 0
    last: Entry | None = None
    choice: Run | None = None
    equated: Entry | None = None
    before: Run | None = None
    taints: tuple[Taint, ...] = ()
    others: tuple[Run, ...] = ()
    lease: Entry | None = None
    fences: tuple[str, ...] = ()

    @property
    def served(self) -> Run | None:
        """The choice, unless it is tainted."""
        return None if self.taint is not None else self.choice

    @property
    def chosen(self) -> Result | None:
        """The realisation that is served."""
        run = self.served
        return None if run is None else run.result

    @property
    def attempts(self) -> tuple[Result, ...]:
        """All other runs, oldest first."""
        return tuple(run.result for run in self.others)

    @property
    def notes(self) -> tuple[str, ...]:
        """What people have decided about the choice: `tainted: ...`, `equated with ...`."""
        taint, equated = self.taint, self.equated
        notes = [] if taint is None else [f"tainted: {taint.said()}"]
        if equated is not None and equated.result is not None:
            notes.append(equated.result.note)
        return tuple(notes)

    @property
    def taint(self) -> Entry | None:
        """The first taint of the choice: why it is not served."""
        choice = self.choice
        return next((t.entry for t in self.taints if choice is not None and t.run.n == choice.n), None)


def fold(entries: Iterable[Entry]) -> Standing:
    """What the entries, in order, add up to. Pure."""
    standing = Standing()
    for entry in entries:
        standing = replace(_moved(standing, _step(standing, entry)), n=entry.n, last=entry)
    return standing


def _step(at: Standing, entry: Entry) -> Standing:
    match entry.state:
        case "leased":
            return replace(at, lease=entry, fences=(*at.fences, entry.fence))
        case "free":
            return replace(at, lease=_closed(at.lease, entry))
        case "done" if entry.result is not None:
            choice = Run(entry.n, entry.result)
            return replace(at, choice=choice, equated=None, before=None, lease=_closed(at.lease, entry))
        case "equated" if entry.result is not None:
            choice, before = Run(entry.n, entry.result), at.before if at.equated else at.choice
            return replace(at, choice=choice, equated=entry, before=before, lease=_closed(at.lease, entry))
        case "revoked" if at.equated is not None:
            return replace(at, choice=at.before, equated=None, before=None)
        case "attempt" if entry.result is not None:
            return replace(at, others=(*at.others, Run(entry.n, entry.result)))
        case "tainted" if at.choice is not None:
            return replace(at, taints=(*at.taints, Taint(entry, at.choice)))
        case "untainted":
            return replace(at, taints=tuple(t for t in at.taints if t.entry.cause != entry.cause))
    return at


def _moved(before: Standing, after: Standing) -> Standing:
    """With the run that is no longer served among the others, and the one that is served not there."""
    was, now = before.served, after.served
    if was == now:
        return after
    others = tuple(run for run in after.others if run != now)
    # What was made under another key is no run of this one.
    return replace(after, others=others if was is None or before.equated is not None else (*others, was))


def _closed(lease: Entry | None, entry: Entry) -> Entry | None:
    return None if lease is None or lease.fence == entry.fence else lease
