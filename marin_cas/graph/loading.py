"""The part of the language's loader that graphs and queries use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from marin_cas.label import Label
from marin_cas.lang.values import Package, RuleDef


class PackageLoader(Protocol):
    """Loads packages on demand, each once; a broken BUILD file raises a located RequestError, each time it is asked."""

    @property
    def root(self) -> Path:
        """The workspace's root."""
        ...

    def has_package(self, name: str) -> bool: ...

    def package(self, name: str) -> Package: ...

    def packages(self, below: str = "") -> list[str]:
        """The packages at and below a folder, sorted; walks the disk."""
        ...

    def script(self, label: Label) -> tuple[Label, ...] | None:
        """The targets that a function of a Python script (the label's package) returns; None for no such script."""
        ...

    def rules(self) -> Mapping[str, RuleDef]:
        """The rules known so far, by name."""
        ...
