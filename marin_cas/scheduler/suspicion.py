"""What taints mean for a build: what is not served because of one, and what is refused.

All of it costs one look at a folder that is not there, and one at a file, while nothing was ever tainted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from marin_cas.action import Action, Source
from marin_cas.cache.cache import Cache
from marin_cas.cache.entry import Entry
from marin_cas.cache.provenance import Blame, Provenance
from marin_cas.cache.taints import Holding
from marin_cas.digest import Digest
from marin_cas.errors import BuildError
from marin_cas.recipe import Input, Recipe
from marin_cas.result import Output, Result
from marin_cas.scheduler.watched import sources_of
from marin_cas.tree.sources import hash_file_source


class Suspicion:
    """One command's view: a digest that is tainted while it runs is noticed when something is published."""

    def __init__(self, cache: Cache, root: Path | None = None) -> None:
        self.cache, self.root = cache, root
        self.digests = cache.taints.current()
        self.holding = Holding(cache.store, self.digests)
        self._provenance = Provenance(cache.actions, cache.store)
        self._bad: dict[str, Blame] = {}

    def of(self, result: Result) -> str | None:
        """Why the chosen result of a key is not to be served: it holds a tainted digest, or was equated with what is
        tainted or made from something that is."""
        if self.digests and (why := self._held(result)) is not None:
            return why
        # An equated one says so in its note, and was not made from what its own key reads.
        if result.note and self._changed_below(result.key, result.producer_keys):
            provenance = Provenance(self.cache.actions, self.cache.store)
            provenance.look([result.key.hex, *(key.hex() for key in result.producer_keys)])
            if provenance.standings[result.key.hex].equated is not None:
                blame = provenance.tainted().get(result.key.hex)
                return None if blame is None else f"equated with what comes from {named(blame)}: {blame.taint.said()}"
        return None

    def _held(self, result: Result) -> str | None:
        for name, output in result.outputs.items():
            if (found := self.holding.find(output.kind, output.digest)) is not None:
                hash, path = found
                where = f"{name}/{path}" if path else name
                return f"its output `{where}` is tainted: {self.digests[hash].said()}"
        return None

    def _changed_below(self, key: Digest, producers: Collection[bytes]) -> bool:
        changed = self.cache.actions.changed_keys()
        return bool(changed) and (key.hash in changed or not changed.isdisjoint(producers))

    def blame(self, action: Action) -> Blame | None:
        """The tainted result that what the action gave as it is declared now was made from, if so."""
        changed = self.cache.actions.changed_keys()
        if not changed:
            return None
        key = self.cache.fingerprints.key(action.fingerprint)
        choice = None if key is None else self.cache.actions.standing(key).choice
        if key is None or choice is None:
            return None
        below = {*choice.result.producer_keys, *self.cache.fingerprints.also(action.fingerprint)}
        if not self._changed_below(key, below):
            return None
        if self._provenance.look([key.hex, *(each.hex() for each in below)]):
            self._bad = dict(self._provenance.tainted())
        return self._bad.get(key.hex)

    def refusal(self, action: Action) -> BuildError | None:
        """The error for an action whose workspace files are tainted, or hold what is."""
        if not self.digests:
            return None
        for source in sources_of(action):
            if (found := self._in_source(source)) is not None:
                hash, path = found
                return refused(action, "reads", path, hash, self.digests[hash].said())
        return None

    def _in_source(self, source: Source) -> tuple[bytes, str] | None:
        if (root := self.root) is not None:
            for path in source.paths:
                if (hash := hash_file_source(root, path, self.cache.stats).hash) in self.digests:
                    return hash, path
        found = self.holding.find(source.kind, source.digest)
        return None if found is None else (found[0], found[1] or ", ".join(source.paths[:3]))


@dataclass(frozen=True, slots=True)
class Found:
    """A tainted hash that a run meets, its taint, and the error to end the run with."""

    hash: bytes
    taint: Entry
    error: BuildError


class Guard:
    """Whether a run may be made and published, by the taints of the moment."""

    def __init__(self, cache: Cache, action: Action, recipe: Recipe) -> None:
        self.cache, self.action, self.recipe = cache, action, recipe

    def check(self, result: Result | None = None) -> Found | None:
        """What the run reads, or with this `result` made, that is tainted."""
        taints = self.cache.taints.current()
        if not taints:
            return None
        holding = Holding(self.cache.store, taints)
        files: list[tuple[str, str, Input | Output]] = [
            ("reads", name, source) for name, source in self.recipe.inputs.items() if isinstance(source, Input)
        ]
        if (code := self.action.code) is not None:
            files.append(("reads", "its code", Input(code.kind, code.digest)))
        if result is not None:
            files += [("made", name, output) for name, output in result.outputs.items()]
        for verb, name, each in files:
            if (found := holding.find(each.kind, each.digest)) is not None:
                hash, path = found
                where = f"{name}/{path}" if path else name
                return Found(hash, taints[hash], refused(self.action, verb, where, hash, taints[hash].said()))
        return None


def refused(action: Action, verb: str, path: str, hash: bytes, why: str) -> BuildError:
    """`verb` is `reads` or `made`."""
    then = ", so it does not run" if verb == "reads" else ", so nothing of the run was published"
    hint = "put other bytes there" if verb == "reads" else "change what makes it"
    return BuildError(
        f"`{action.id}` {verb} `{path}`, which is tainted{then}: {why}",
        where=action.location,
        hint=f'{hint}, or take the taint back: `marin cache untaint {hash.hex()[:12]} --because "..."`',
    )


def named(blame: Blame) -> str:
    """What was tainted, as people call it."""
    return f"`{blame.result.label or blame.key[:12]}`"
