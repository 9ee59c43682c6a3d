"""A local cache as a build sees it: what planning asks (Lookup) and what a build writes down (Ledger)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from marin_cas.action import Action
from marin_cas.cache.cache import Cache
from marin_cas.cache.holder import Holder
from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError
from marin_cas.errors import IntegrityError
from marin_cas.label import Label
from marin_cas.recipe import Recipe
from marin_cas.result import Output, Result
from marin_cas.tree.walk import first_missing


class LocalCache:
    """Both protocols over one cache folder. Reads come from the deciding thread only."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    # Lookup

    def by_fingerprint(self, fingerprint: bytes) -> Result | None:
        return self.cache.fingerprints.get(fingerprint)

    def by_key(self, key: Digest) -> Result | None:
        return self.cache.actions.result(key)

    def missing(self, result: Result, outputs: Iterable[str]) -> Digest | None:
        for name in outputs:
            output = result.outputs.get(name)
            if output is None:
                return result.key  # a record that lacks an output has nothing to give
            if (blob := first_missing(self.cache.store, output.kind, output.digest)) is not None:
                return blob
        return None

    def taint(self, key: Digest) -> str | None:
        if key.hash not in self.cache.actions.changed_keys():
            return None
        return self.cache.actions.standing(key).tainted

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

    def record(self, action: Action, result: Result) -> None:
        cache, key, fingerprint = self.cache, result.key, action.fingerprint
        # A hit repeats what was written before; reading is cheaper than writing, and histories stay short.
        if cache.fingerprints.key(fingerprint) != key:
            cache.fingerprints.put(fingerprint, key)
        before = cache.labels.latest(action.id)
        if before is None or before.key != key or before.artifact != action.artifact:
            who = self._who
            cache.labels.append(action.id, action.artifact, key, fingerprint, who.user, who.host, time.time())
        if action.artifact:
            ref = cache.refs.ref(action.artifact)
            if ref is None or ref.fingerprint != fingerprint or ref.label != str(action.label):
                cache.refs.put(action.artifact, fingerprint, str(action.label))

    def link(self, label: Label, outputs: Mapping[str, Output]) -> Mapping[str, Path]:
        return self.cache.links.publish(label, outputs)

    def consumers(self, key: Digest) -> tuple[str, ...]:
        found: list[str] = []
        for label in dict.fromkeys(self.cache.labels.labels()):
            latest = self.cache.labels.latest(label)
            made = None if latest is None else self.cache.actions.result(latest.key)
            if made is not None and key.hash in made.producer_keys:
                found.append(label)
        return tuple(found)

    @cached_property
    def _who(self) -> Holder:
        return Holder.here()
