"""What was made from something tainted: a result that is tainted itself, or that read bytes which only such results
made.

A key whose tainted result was made again with the same bytes vouches for them: what was made from these is sound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from marin_cas.cache.actions import ActionCache
from marin_cas.cache.entry import Entry, Run, Standing
from marin_cas.encoding import EncodingError
from marin_cas.errors import IntegrityError
from marin_cas.recipe import Input, Recipe
from marin_cas.result import Result
from marin_cas.store.base import Store


@dataclass(frozen=True, slots=True)
class Blame:
    """The key, in hex, whose result was tainted, that result, and the taint."""

    key: str
    result: Result
    taint: Entry


@dataclass(slots=True)
class Provenance:
    """What is known of some keys: how they stand, and the digests that their results depend on."""

    actions: ActionCache
    store: Store
    standings: dict[str, Standing] = field(default_factory=dict)
    _reads: dict[str, frozenset[bytes] | None] = field(default_factory=dict)

    def look(self, keys: Iterable[str]) -> bool:
        """Take these keys, in hex, into account too. False when all of them were known."""
        new = [key for key in keys if key not in self.standings]
        for key in new:
            standing = self.actions.standing_of(key)
            self.standings[key] = standing
            if standing.choice is not None:
                self._reads[key] = self._read_by(standing, standing.choice)
        return bool(new)

    def _read_by(self, standing: Standing, choice: Run) -> frozenset[bytes] | None:
        """None where the recipe is gone."""
        if standing.equated is not None:
            # It was made under another key, and whatever that one read: its own bytes are all there is to vouch for.
            return frozenset(_outputs(choice.result))
        try:
            record = self.store.read(choice.result.key)
            inputs = () if record is None else Recipe.parse(record).inputs.values()
        except (EncodingError, IntegrityError):
            return None
        return None if record is None else frozenset(i.digest.hash for i in inputs if isinstance(i, Input))

    def tainted(self) -> Mapping[str, Blame]:
        """Those of the keys whose choice is tainted, or made from something that is, each with why."""
        return _Search(self.standings, self._reads).run()


class _Search:
    """From tainted results up. A digest is bad when a bad result made it and no sound one did."""

    def __init__(self, standings: Mapping[str, Standing], reads: Mapping[str, frozenset[bytes] | None]) -> None:
        self.standings = standings
        self.bad: dict[str, Blame] = {}
        self.suspect: dict[bytes, Blame] = {}
        self.vouched: dict[bytes, int] = {}
        self.readers: dict[bytes, list[str]] = {}
        self.blind = [key for key, digests in reads.items() if digests is None]
        for key, digests in reads.items():
            for digest in digests or ():
                self.readers.setdefault(digest, []).append(key)

    def run(self) -> Mapping[str, Blame]:
        tainted = {key: standing for key, standing in self.standings.items() if standing.taints}
        if not tainted:
            return {}
        for standing in self.standings.values():
            if standing.served is not None and standing.equated is None:
                for digest in _outputs(standing.served.result):
                    self.vouched[digest] = self.vouched.get(digest, 0) + 1
        pending: deque[bytes] = deque()
        for key, standing in sorted(tainted.items()):
            for taint in standing.taints:
                blame = Blame(key, taint.run.result, taint.entry)
                if standing.taint is taint.entry:
                    self.bad[key] = blame
                for digest in _outputs(taint.run.result):
                    self.suspect.setdefault(digest, blame)
                    pending.append(digest)
        while pending:
            self._spread(pending)
            for key in self.blind:
                choice = self.standings[key].choice
                below = () if choice is None else (k.hex() for k in choice.result.producer_keys)
                if key not in self.bad and (cause := next((k for k in below if k in self.bad), None)):
                    self._condemn(key, self.bad[cause], pending)
        return self.bad

    def _spread(self, pending: deque[bytes]) -> None:
        while pending:
            digest = pending.popleft()
            if self.vouched.get(digest):
                continue
            for key in self.readers.get(digest, ()):
                if key not in self.bad:
                    self._condemn(key, self.suspect[digest], pending)

    def _condemn(self, key: str, blame: Blame, pending: deque[bytes]) -> None:
        self.bad[key] = blame
        standing = self.standings[key]
        if standing.served is not None and standing.equated is None:
            for digest in _outputs(standing.served.result):
                self.vouched[digest] -= 1
        for result in (*(() if standing.choice is None else (standing.choice.result,)), *standing.attempts):
            for digest in _outputs(result):
                self.suspect.setdefault(digest, blame)
                pending.append(digest)


def _outputs(result: Result) -> list[bytes]:
    return [output.digest.hash for output in result.outputs.values() if not output.reporting]
