"""One step in the life of a key, its record, and what a whole sequence of them adds up to.

A record is the line `marin-cas entry 1` and the CBOR list [body, BLAKE3 of body]; the body is the CBOR map of the
step. The check is there because, unlike a blob, an entry's name does not say what its bytes must be.
"""

from __future__ import annotations

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
TAINTED = "tainted"  # what was chosen so far is not to be served: `reason`, `who`
UNREADABLE = "unreadable"  # damaged on disk: counts for nothing but its number
_STATES = (LEASED, FREE, DONE, ATTEMPT, TAINTED)


@dataclass(frozen=True, slots=True)
class Entry:
    """`n` counts from 1 and is not in the record: it is the name. `time` is in Unix seconds, for people."""

    n: int
    state: str
    time: float = 0.0
    fence: str = ""
    holder: Holder | None = None
    result: Result | None = None
    reason: str = ""
    who: str = ""

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
        holder, result = fields.get("holder"), fields.get("result")
        return cls(
            n,
            state,
            float(fields["time"]),
            str(fields.get("fence", "")),
            None if holder is None else Holder.from_record(holder),
            None if result is None else Result.parse(result),
            str(fields.get("reason", "")),
            str(fields.get("who", "")),
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """What a sequence of entries adds up to.

    `n` is the number of the last one, 0 for none. `chosen` is the realisation that is served. `attempts` are all
    other runs, oldest first. `lease` is the open one. `tainted` says why the last choice is not served, if so.
    `fences` are those of all leases ever, oldest first.
    """

    n: int = 0
    last: Entry | None = None
    chosen: Result | None = None
    attempts: tuple[Result, ...] = ()
    lease: Entry | None = None
    tainted: str | None = None
    fences: tuple[str, ...] = ()


def fold(entries: Iterable[Entry]) -> Standing:
    """What the entries, in order, add up to. Pure."""
    standing = Standing()
    for entry in entries:
        standing = replace(_step(standing, entry), n=entry.n, last=entry)
    return standing


def _step(at: Standing, entry: Entry) -> Standing:
    match entry.state:
        case "leased":
            return replace(at, lease=entry, fences=(*at.fences, entry.fence))
        case "free":
            return replace(at, lease=_closed(at.lease, entry))
        case "done" if entry.result is not None:
            attempts = at.attempts if at.chosen is None else (*at.attempts, at.chosen)
            return replace(at, chosen=entry.result, attempts=attempts, tainted=None, lease=_closed(at.lease, entry))
        case "attempt" if entry.result is not None:
            return replace(at, attempts=(*at.attempts, entry.result))
        case "tainted":
            attempts = at.attempts if at.chosen is None else (*at.attempts, at.chosen)
            return replace(at, chosen=None, attempts=attempts, tainted=entry.reason)
    return at


def _closed(lease: Entry | None, entry: Entry) -> Entry | None:
    return None if lease is None or lease.fence == entry.fence else lease
