"""Choosing one key's result for another key: somebody says that what differs between them does not matter.

The copy names its source and all that the source was made from, so a taint of any of these reaches it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from marin_cas.cache.cache import Cache
from marin_cas.cache.entry import Standing
from marin_cas.cache.holder import Holder
from marin_cas.digest import Digest
from marin_cas.errors import BuildError, Interrupted, RequestError
from marin_cas.recipe import Recipe
from marin_cas.result import Output, Result


@dataclass(frozen=True, slots=True)
class Place:
    """Where a result is to be chosen: a key without one, and what is declared of it. `reporting` are the names of
    outputs for people. `producer_keys` are those below it, as far as they are known."""

    recipe: Recipe
    label: str = ""
    artifact: str = ""
    fingerprint: bytes = b""
    outcome: str = ""
    reporting: frozenset[str] = frozenset()
    producer_keys: frozenset[bytes] = frozenset()


def equate(cache: Cache, old: Result, place: Place, because: str, who: str) -> Result:
    """Chooses `old` for the key of `place`, and returns it as it stands there.

    Raises RequestError when the two cannot be equated, BuildError while another makes the key or when it has a result.
    """
    key = place.recipe.key()
    _check(old, key, place)
    _check_free(cache.actions.standing(key), key, place)
    holders: list[Holder] = []
    try:
        lease = cache.actions.acquire(
            key,
            Holder.here("equate"),
            on_wait=lambda holder, _: holders.append(holder),
            cancelled=lambda: bool(holders),
        )
    except Interrupted:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holders[0].since))
        raise BuildError(
            f"{_name(key, place)} is being built by {holders[0]}, since {since}",
            hint="stop that build, or use its result",
        ) from None
    if isinstance(lease, Result):
        raise _has_result(key, place)
    with lease:
        cache.store.put(place.recipe.record())
        result = replace(
            old,
            key=key,
            fingerprint=place.fingerprint,
            outcome=place.outcome or old.outcome,
            outputs={name: replace(output, reporting=name in place.reporting) for name, output in old.outputs.items()},
            producer_keys=tuple(sorted({old.key.hash, *old.producer_keys, *place.producer_keys})),
            label=place.label,
            artifact=place.artifact,
            fence=lease.fence,
            note=_note(old, because, who),
        )
        if not lease.equate(result, old.key, because, who):
            raise _has_result(key, place)
    return result


def _check(old: Result, key: Digest, place: Place) -> None:
    if key == old.key:
        raise RequestError(f"both have the key `{key.short}`: there is nothing to equate")
    if key.hash in old.producer_keys:
        raise RequestError(f"`{old.key.short}` was made from {_name(key, place)}, which would be its own producer")
    before, after = _kinds(old.outputs), place.recipe.outputs
    if before != after:
        raise RequestError(
            f"`{old.key.short}` has {_words(before)}, and {_name(key, place)} declares {_words(after)}",
            hint="only results with the same outputs can stand for each other",
        )


def _check_free(standing: Standing, key: Digest, place: Place) -> None:
    if standing.chosen is None:
        return
    if standing.equated is not None and standing.equated.source is not None:
        raise RequestError(
            f"{_name(key, place)} is equated with `{standing.equated.source.short}` already: {standing.equated.said()}",
            hint=f'take that back first: `marin cache equate --revoke {place.label or key.short} --because "..."`',
        )
    raise _has_result(key, place)


def _has_result(key: Digest, place: Place) -> RequestError:
    return RequestError(
        f"{_name(key, place)} has a result of its own",
        hint=f'if that is wrong: `marin cache taint {place.label or key.short} --because "..."`',
    )


def _name(key: Digest, place: Place) -> str:
    return f"`{place.label}`" if place.label else f"the key `{key.short}`"


def _note(old: Result, because: str, who: str) -> str:
    of = f" ({old.label})" if old.label else ""
    return f"equated with {old.key.short}{of}: {because} ({who}, {time.strftime('%Y-%m-%d %H:%M')})"


def _kinds(outputs: Mapping[str, Output]) -> dict[str, str]:
    return {name: output.kind for name, output in outputs.items()}


def _words(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` ({kind})" for name, kind in sorted(kinds.items())) or "no outputs"
