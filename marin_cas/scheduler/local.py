"""A local cache as a build sees it: what planning asks (Lookup) and what a build writes down (Ledger)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from marin_cas.action import Action
from marin_cas.cache.cache import Cache
from marin_cas.cache.holder import Holder
from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError
from marin_cas.errors import IntegrityError, MarinError
from marin_cas.label import Label
from marin_cas.recipe import Input, Recipe
from marin_cas.result import Output, Result
from marin_cas.scheduler.lookup import Publication
from marin_cas.scheduler.published import Publications
from marin_cas.scheduler.suspicion import Suspicion, named
from marin_cas.tree.walk import first_missing


class LocalCache:
    """Both protocols over one cache folder, for the workspace at `root`. Reads come from the deciding thread only."""

    def __init__(self, cache: Cache, root: Path | None = None) -> None:
        self.cache, self.root = cache, root

    # Lookup

    def by_fingerprint(self, fingerprint: bytes) -> Result | None:
        return self._trusted(self.cache.fingerprints.get(fingerprint))

    def by_key(self, key: Digest) -> Result | None:
        return self._trusted(self.cache.actions.result(key))

    def _trusted(self, result: Result | None) -> Result | None:
        return None if result is None or self._suspicion.of(result) is not None else result

    def missing(self, result: Result, outputs: Iterable[str]) -> Digest | None:
        # First marked, then looked at: whoever deletes meanwhile either sees the mark, or is seen.
        with self.cache.gate.shared():
            self.cache.actions.touch(result.key)
        for name in outputs:
            output = result.outputs.get(name)
            if output is None:
                return result.key  # a record that lacks an output has nothing to give
            if (blob := first_missing(self.cache.store, output.kind, output.digest)) is not None:
                return blob
        return None

    def taint(self, key: Digest) -> str | None:
        if key.hash in self.cache.actions.changed_keys():
            taint = self.cache.actions.standing(key).taint
            if taint is not None:
                return taint.said()
        result = self.cache.actions.result(key)
        return None if result is None else self._suspicion.of(result)

    def blame(self, action: Action) -> tuple[str, str] | None:
        blame = self._suspicion.blame(action)
        if blame is None:
            return None
        return "" if blame.result.label == str(action.label) else named(blame), blame.taint.said()

    def refusal(self, action: Action) -> MarinError | None:
        return self._suspicion.refusal(action)

    @cached_property
    def _suspicion(self) -> Suspicion:
        return Suspicion(self.cache, self.root)

    def published(self, action: Action) -> Publication | None:
        return self._publications.of(action)

    @cached_property
    def _publications(self) -> Publications:
        return Publications(self.cache)

    def latest(self, label: str) -> Recipe | None:
        record = self.cache.labels.latest(label)
        if record is None:
            return None
        try:
            data = self.cache.store.read(record.key)
            return None if data is None else Recipe.parse(data)
        except (EncodingError, IntegrityError):
            return None  # it only explains; `marin cache verify` names damaged blobs

    # Ledger

    def record(
        self, action: Action, result: Result, also: frozenset[bytes] = frozenset(), *, filed: bool = True
    ) -> None:
        cache, key, fingerprint = self.cache, result.key, action.fingerprint
        # A hit repeats what was written before; reading is cheaper than writing, and histories stay short.
        if filed:  # else its declarations say another thing than what it was made from
            if cache.fingerprints.key(fingerprint) != key:
                cache.fingerprints.put(fingerprint, key, also)
            elif also and not also <= (known := cache.fingerprints.also(fingerprint)):
                cache.fingerprints.put(fingerprint, key, also | known)
        before = cache.labels.latest(action.id)
        if before is None or before.key != key or before.artifact != action.artifact:
            who = self._who
            cache.labels.append(action.id, action.artifact, key, fingerprint, who.user, who.host, time.time())
        if action.artifact:
            ref = cache.refs.ref(action.artifact)
            stands = ref is not None and (
                ref.published or (ref.fingerprint, ref.key, ref.label) == (fingerprint, key, str(action.label))
            )
            if not stands:
                cache.refs.put(action.artifact, fingerprint, str(action.label), key)

    def link(self, label: Label, outputs: Mapping[str, Output]) -> Mapping[str, Path]:
        places = self.cache.links.publish(label, outputs)
        with self.cache.gate.shared():
            whole = all(os.path.exists(place) for place in places.values())
        # What no link led to yet may be swept away just before the link is made; once it is there, it is kept.
        return places if whole else self.cache.links.publish(label, outputs)

    def consumers(self, key: Digest) -> tuple[str, ...]:
        return tuple(label for label, _ in consumers(self.cache, key))

    @cached_property
    def _who(self) -> Holder:
        return Holder.here()


def consumers(cache: Cache, key: Digest) -> Iterator[tuple[str, Digest]]:
    """The actions, with their keys, whose latest result was made from that of `key`, however indirectly.

    Reads the history of every label: for the rare case that somebody must be told.
    """
    for label in dict.fromkeys(cache.labels.labels()):
        latest = cache.labels.latest(label)
        made = None if latest is None else cache.actions.result(latest.key)
        if latest is not None and made is not None and key.hash in made.producer_keys:
            yield label, latest.key


def reads(cache: Cache, key: Digest, digest: Digest) -> bool:
    """Whether the recipe of `key` has an input of that digest; True where the recipe is gone, to be safe."""
    data = cache.store.read(key)
    if data is None:
        return True
    return any(isinstance(i, Input) and i.digest == digest for i in Recipe.parse(data).inputs.values())
