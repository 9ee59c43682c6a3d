"""What planning asks of a cache. Everything here is a read, and absence is None."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from marin_cas.action import Action
from marin_cas.digest import Digest
from marin_cas.errors import MarinError
from marin_cas.reasons import Change
from marin_cas.recipe import Recipe
from marin_cas.result import Result


@dataclass(frozen=True, slots=True)
class Publication:
    """A published `name@version` beside what is declared under it now. Either `result` is to be served, though it
    has the differing `changes`; or `error` says why nothing is."""

    name: str
    changes: tuple[Change, ...]
    result: Result | None = None
    error: MarinError | None = None


class Lookup(Protocol):
    """The cache as a build sees it. May be asked twice; answers may grow better meanwhile (another build)."""

    def by_fingerprint(self, fingerprint: bytes) -> Result | None:
        """The chosen result filed under it; None also when something below it was tainted or replaced since."""
        ...

    def by_key(self, key: Digest) -> Result | None:
        """The chosen result of a key; None when there is none or it is tainted."""
        ...

    def missing(self, result: Result, outputs: Iterable[str]) -> Digest | None:
        """The first blob that these outputs of `result` want and the store lacks."""
        ...

    def taint(self, key: Digest) -> str | None:
        """Why the result of `key` may not be served, when it was tainted and not made again."""
        ...

    def blame(self, action: Action) -> tuple[str, str] | None:
        """What the result of `action`, as it is declared now, is or was made from that is tainted (the name, empty for
        itself), and why; None when nothing is."""
        ...

    def refusal(self, action: Action) -> MarinError | None:
        """Why `action` may not run at all: it reads workspace files that are tainted."""
        ...

    def published(self, action: Action) -> Publication | None:
        """What stands in the way of `action`, as it is declared now, under its published `name@version`: another
        identity, or its own result by another tool or with other libraries. None: nothing, or nothing is published."""
        ...

    def latest(self, label: str) -> Recipe | None:
        """The recipe of the newest key that this label had."""
        ...


def wanted_outputs(action: Action) -> tuple[str, ...]:
    """The outputs whose loss makes a result hollow."""
    return tuple(name for name, spec in action.outputs.items() if not spec.reporting)
