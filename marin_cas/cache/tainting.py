"""Tainting and untainting, and what it reaches: results by name, results that hold or read a digest, and all above.

The order is such that a crash in the middle leaves more tainted than less, and the same call again completes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from marin_cas.cache.cache import Cache
from marin_cas.cache.entry import Standing
from marin_cas.cache.provenance import Blame, Provenance
from marin_cas.cache.taints import Holding
from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError
from marin_cas.errors import IntegrityError
from marin_cas.recipe import Input, Recipe
from marin_cas.result import Result

NAMED, MADE, READ, BELOW = "named", "made", "read", "below"


@dataclass(frozen=True, slots=True)
class Reached:
    """A result that a taint reached: itself `named`, it `made` or `read` the digest, or was made from one `below`.

    `labels` are those that stand for it now.
    """

    result: Result
    how: str
    labels: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        result = self.result
        return {"key": result.key.hex, "labels": list(self.labels), "artifact": result.artifact, "how": self.how}


@dataclass(slots=True)
class Reach:
    """`reached` are named first, then by label. `unknown` counts trees whose records are gone: what they held cannot
    be told any more."""

    reached: list[Reached] = field(default_factory=list)
    unknown: int = 0


def taint_keys(cache: Cache, keys: Iterable[Digest], because: str, who: str) -> Reach:
    """Taints the chosen result of each key, and says what is not served any more."""
    hows: dict[str, str] = {}
    for key in keys:
        cache.actions.taint(key, because, who)
        hows[key.hex] = NAMED
    return Reach(_reached(cache, hows))


def taint_digest(cache: Cache, hash: bytes, because: str, who: str) -> Reach:
    """Taints a digest, and every result that made or read it, and says what is not served any more."""
    cache.taints.add(hash, because, who)
    # Also where no key is touched: a build that said "nothing changed" must look again.
    cache.actions.mark_changed()
    holding = Holding(cache.store, {hash})
    hows: dict[str, str] = {}
    for hexed in cache.actions.all_keys():
        standing = cache.actions.standing_of(hexed)
        if standing.choice is None:
            continue
        result = standing.choice.result
        if any(holding.find(output.kind, output.digest) for output in result.outputs.values()):
            hows[hexed] = MADE
        elif any(holding.find(source.kind, source.digest) for source in _inputs(cache, result.key)):
            hows[hexed] = READ
        else:
            continue
        cache.actions.taint(result.key, because, who, hash.hex())
    return Reach(_reached(cache, hows), len(holding.unknown))


def untaint_keys(cache: Cache, keys: Iterable[Digest], because: str, who: str) -> bool:
    """Takes the taints of the keys themselves back; False when there are none."""
    return bool([key for key in keys if cache.actions.untaint(key, because, who)])


def untaint_digest(cache: Cache, hash: bytes, because: str, who: str) -> bool:
    """Takes the taint of a digest back, and with it those of all results that it came down on; False for none."""
    lifted = cache.taints.lift(hash, because, who)
    cause = hash.hex()
    for hexed in cache.actions.all_keys():
        standing = cache.actions.standing_of(hexed)
        # By any of its taints: the one to take back may be of a run before the choice.
        for taint in standing.taints:
            if taint.entry.cause == cause:
                lifted |= cache.actions.untaint(taint.run.result.key, because, who, cause)
                break
    if lifted:
        cache.actions.mark_changed()
    return lifted


def tainted_results(cache: Cache) -> dict[str, Blame]:
    """Every key whose result is tainted or was made from something that is, in hex, with what is to blame."""
    return dict(_provenance(cache).tainted())


def tainted_actions(cache: Cache) -> Iterator[tuple[str, Blame]]:
    """The actions (`//exp:x`, `//exp:x#second`) whose latest result is tainted or made from something that is."""
    bad = tainted_results(cache)
    for id in dict.fromkeys(cache.labels.labels()) if bad else ():
        latest = cache.labels.latest(id)
        if latest is not None and latest.key.hex in bad:
            yield id, bad[latest.key.hex]


def labels_of(cache: Cache) -> dict[str, tuple[str, ...]]:
    """The actions that stand for each key now, by the key's hex."""
    found: dict[str, list[str]] = {}
    for id in dict.fromkeys(cache.labels.labels()):
        latest = cache.labels.latest(id)
        if latest is not None:
            found.setdefault(latest.key.hex, []).append(id)
    return {key: tuple(sorted(ids)) for key, ids in found.items()}


def _provenance(cache: Cache) -> Provenance:
    provenance = Provenance(cache.actions, cache.store)
    provenance.look(cache.actions.all_keys())
    return provenance


def _reached(cache: Cache, hows: dict[str, str]) -> list[Reached]:
    provenance = _provenance(cache)
    for key, blame in provenance.tainted().items():
        if blame.key in hows:
            hows.setdefault(key, BELOW)
    labels = labels_of(cache)
    found = [
        Reached(choice.result, how, labels.get(key, ()))
        for key, how in hows.items()
        if (choice := _standing(provenance, key).choice) is not None
    ]
    return sorted(found, key=lambda each: (each.how == BELOW, each.labels, each.result.label, each.result.key.hex))


def _standing(provenance: Provenance, key: str) -> Standing:
    provenance.look([key])
    return provenance.standings[key]


def _inputs(cache: Cache, key: Digest) -> list[Input]:
    try:
        record = cache.store.read(key)
        inputs = () if record is None else Recipe.parse(record).inputs.values()
        return [source for source in inputs if isinstance(source, Input)]
    except (EncodingError, IntegrityError):
        return []
