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
    _reads: dict[str, frozenset[bytes]] = field(default_factory=dict)

    def look(self, keys: Iterable[str]) -> bool:
        """Take these keys, in hex, into account too. False when all of them were known."""
        new = [key for key in keys if key not in self.standings]
        for key in new:
            standing = self.actions.standing_of(key)
            self.standings[key] = standing
            if standing.choice is not None:
                self._reads[key] = self._read_by(standing, standing.choice)
        return bool(new)

    def _read_by(self, standing: Standing, choice: Run) -> frozenset[bytes]:
        """The digests that it was made from; all keys below it where the recipe is gone."""
        if standing.equated is not None and standing.equated.source is not None:
            # It was made under another key: what its own key reads has nothing to do with it.
            return frozenset({_run_token(standing.equated.source.hex, choice.result)})
        try:
            record = self.store.read(choice.result.key)
            inputs = None if record is None else Recipe.parse(record).inputs.values()
        except (EncodingError, IntegrityError):
            inputs = None
        if inputs is None:
            return frozenset(choice.result.producer_keys)
        return frozenset(source.digest.hash for source in inputs if isinstance(source, Input))

    def tainted(self) -> Mapping[str, Blame]:
        """Those of the keys whose choice is tainted, or made from something that is, each with why."""
        return _Search(self.standings, self._reads).run()


class _Search:
    """From the ground up: bytes are sound when nobody here made them, or when some run did that is not tainted and read
    only what is sound. A key that reads the very bytes that it makes vouches for nothing."""

    def __init__(self, standings: Mapping[str, Standing], reads: Mapping[str, frozenset[bytes]]) -> None:
        self.standings = standings
        self.reads = reads
        self.readers: dict[bytes, list[str]] = {}
        for key, tokens in reads.items():
            for token in tokens:
                self.readers.setdefault(token, []).append(key)

    def run(self) -> Mapping[str, Blame]:
        if not any(standing.taints for standing in self.standings.values()):
            return {}
        sound = self._sound()
        bad: dict[str, Blame] = {}
        pending: deque[tuple[bytes, Blame]] = deque()
        for key, standing in sorted(self.standings.items()):
            for taint in reversed(standing.taints):  # the latest is what people remember
                blame = Blame(key, taint.run.result, taint.entry)
                if standing.taint is taint.entry:
                    bad[key] = blame
                pending += [(token, blame) for token in _tokens(key, standing, taint.run)]
        while pending:
            token, blame = pending.popleft()
            for key in self.readers.get(token, ()):
                if key not in sound and key not in bad:
                    bad[key] = blame
                    standing = self.standings[key]
                    pending += [(made, blame) for run in _runs(standing) for made in _tokens(key, standing, run)]
        return bad

    def _sound(self) -> set[str]:
        """The keys that read only sound bytes."""
        made = {
            t
            for key, standing in self.standings.items()
            for run in _runs(standing)
            for t in _tokens(key, standing, run)
        }
        waits = {key: len(tokens & made) for key, tokens in self.reads.items()}
        sound = {key for key, count in waits.items() if not count}
        ready = deque(sorted(sound))
        known: set[bytes] = set()
        while ready:
            key = ready.popleft()
            standing = self.standings[key]
            tainted = {taint.run.n for taint in standing.taints}
            tokens = {t for run in _runs(standing) if run.n not in tainted for t in _tokens(key, standing, run)}
            for token in tokens - known:
                known.add(token)
                for reader in self.readers.get(token, ()):
                    waits[reader] -= 1
                    if not waits[reader]:
                        sound.add(reader)
                        ready.append(reader)
        return sound


def _runs(standing: Standing) -> tuple[Run, ...]:
    return standing.others if standing.choice is None else (standing.choice, *standing.others)


def _tokens(key: str, standing: Standing, run: Run) -> list[bytes]:
    """What others may depend on of a run: its outputs; the key, where it is not known what they read; all of it, where
    they were equated with it."""
    own = [bytes.fromhex(key), _run_token(key, run.result)]
    # An equated result vouches for no bytes: the run that it was taken from does.
    return own if standing.equated is not None and run == standing.choice else [*own, *_outputs(run.result)]


def _run_token(key: str, result: Result) -> bytes:
    return b"".join([bytes.fromhex(key), *sorted(output.digest.hash for output in result.outputs.values())])


def _outputs(result: Result) -> list[bytes]:
    return [output.digest.hash for output in result.outputs.values() if not output.reporting]
