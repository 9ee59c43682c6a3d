"""What a published `name@version` means for a build: the same thing is built or served as ever, another is refused.

Where only the tool's revision or library versions differ, here or in anything it is made from, what was published is
served: an upgrade is no new identity, and nobody who named a version asked for a new run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from marin_cas.action import Action, Built
from marin_cas.cache.cache import Cache
from marin_cas.cache.refs import Ref, is_among
from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError
from marin_cas.errors import IntegrityError, RequestError
from marin_cas.reasons import Change
from marin_cas.recipe import Input, Pending, Recipe
from marin_cas.recipe_diff import ABSENT, diff, text_of
from marin_cas.result import Result
from marin_cas.scheduler.lookup import Publication

_SHOWN = 8
_UNKNOWN = bytes(32)


@dataclass(frozen=True, slots=True)
class Difference:
    """`change` is of the action `id`, as it was when the ref was published and as it is now."""

    id: str
    change: Change

    @property
    def drift(self) -> bool:
        return self.change.path == "revision" or self.change.path.partition(".")[0] == "toolchain"


class Publications:
    """One command's view. All of it costs one look at a folder while nothing was ever published."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._known: dict[str, Action] = {}

    @cached_property
    def _names(self) -> frozenset[str]:
        return self.cache.refs.published_names()

    def of(self, action: Action) -> Publication | None:
        """As `Lookup.published`. Actions are asked for producers first, each once."""
        if not self._names:
            return None
        self._known[action.id] = action
        if not action.artifact or action.provisional or not is_among(action.artifact, self._names):
            return None
        ref = self.cache.refs.published(action.artifact)
        if ref is None or ref.fingerprint == action.fingerprint or ref.key is None or self._leads_to(action, ref.key):
            return None
        found = list(self._differences(action, ref.key))
        if not found:
            return None  # what it is made from was made otherwise, and is the same: so is its key
        changes = tuple(
            d.change if d.id == action.id else replace(d.change, path=f"{d.id}: {d.change.path}") for d in found
        )
        if not all(difference.drift for difference in found):
            return Publication(ref.name, changes, error=_refusal(action, ref, changes))
        result = self.cache.actions.result(ref.key)
        if result is None:
            return Publication(ref.name, changes, error=_tainted(action, ref))
        return Publication(ref.name, changes, result)

    def _leads_to(self, action: Action, key: Digest) -> bool:
        """Whether these declarations came to the very same key, or to one that somebody has equated with it."""
        own = self.cache.fingerprints.key(action.fingerprint)
        if own is None or own == key:
            return own is not None
        equated = self.cache.actions.standing(own).equated
        return equated is not None and equated.source == key

    def _differences(self, action: Action, key: Digest) -> Iterator[Difference]:
        """What differs in the action, and below it where an input was made otherwise."""
        made = self._made_below(key)
        todo, seen = [(action, key)], {action.id}
        while todo:
            now, key = todo.pop()
            before = self._recipe(key)
            if before is None:
                yield Difference(now.id, Change("recipe", f"key {key.short} (its record is gone)", "as declared"))
                continue
            built = {name: source for name, source in now.inputs.items() if isinstance(source, Built)}
            pending = {name: Pending(source.kind, _UNKNOWN, source.output) for name, source in built.items()}
            yield from (Difference(now.id, change) for change in diff(before, now.recipe(pending)))
            for name, source in built.items():
                old, producer = before.inputs.get(name), self._known.get(source.action)
                if not isinstance(old, Input) or producer is None:
                    was = ABSENT if old is None else text_of(old)
                    yield Difference(now.id, Change(f"inputs.{name}", was, f"`{source.action}`"))
                elif not self._gives(producer, source.output, old.digest) and producer.id not in seen:
                    seen.add(producer.id)
                    makers = made.get(old.digest, {})
                    if makers:
                        todo.append((producer, makers.get(producer.id) or next(iter(makers.values()))))
                    else:
                        yield Difference(now.id, Change(f"inputs.{name}", text_of(old), f"`{source.action}`"))

    def _gives(self, producer: Action, output: str, digest: Digest) -> bool:
        """Whether the producer as it is declared now has a result with that output."""
        key = self.cache.fingerprints.key(producer.fingerprint)
        result = None if key is None else self.cache.actions.result(key)
        made = None if result is None else result.outputs.get(output)
        return made is not None and made.digest == digest

    def _made_below(self, key: Digest) -> Mapping[Digest, Mapping[str, Digest]]:
        """Each output of what the result of `key` was made from: its digest to the keys that gave it, by label."""
        found: dict[Digest, dict[str, Digest]] = {}
        for result in self._below(key):
            for output in result.outputs.values():
                found.setdefault(output.digest, {})[result.label] = result.key
        return found

    def _below(self, key: Digest) -> Iterator[Result]:
        top = self.cache.actions.standing(key).choice
        for below in () if top is None else top.result.producer_keys:
            choice = self.cache.actions.standing_of(below.hex()).choice
            if choice is not None:
                yield choice.result

    def _recipe(self, key: Digest) -> Recipe | None:
        try:
            data = self.cache.store.read(key)
            return None if data is None else Recipe.parse(data)
        except (EncodingError, IntegrityError):
            return None  # `marin cache verify` names damaged blobs


def _refusal(action: Action, ref: Ref, changes: tuple[Change, ...]) -> RequestError:
    more = len(changes) - _SHOWN
    return RequestError(
        f"`{action.id}` is not what was published as `{ref.name}`",
        where=action.location,
        notes=[*(str(change) for change in changes[:_SHOWN]), *([f"and {more} more"] if more > 0 else ())],
        hint=f"give it a new `version`, or undo the change; `marin refs {ref.name}` says who published it",
    )


def _tainted(action: Action, ref: Ref) -> RequestError:
    return RequestError(
        f"`{action.id}` was published as `{ref.name}` by another tool or with other libraries, and that is tainted",
        where=action.location,
        hint="give it a new `version`",
    )
