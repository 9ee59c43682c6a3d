"""What a build writes down about finished actions besides their results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from marin_cas.action import Action
from marin_cas.digest import Digest
from marin_cas.label import Label
from marin_cas.result import Output, Result


class Ledger(Protocol):
    """Every method may be called twice with the same facts; raises MarinError when the disk is in the way."""

    def record(
        self, action: Action, result: Result, also: frozenset[bytes] = frozenset(), *, filed: bool = True
    ) -> None:
        """The label's history, the weak ref `name@version` and, if it is to be `filed`, the fingerprint index know
        `result`; `also` are keys below it here that it was not made from itself."""
        ...

    def link(self, label: Label, outputs: Mapping[str, Output]) -> Mapping[str, Path]:
        """The outputs under out/, by name."""
        ...

    def consumers(self, key: Digest) -> tuple[str, ...]:
        """The labels whose latest result was made, however indirectly, from the result of `key`."""
        ...
