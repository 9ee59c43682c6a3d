"""The nodes of the graph: targets with their attributes typed and selects resolved, and source files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_cas.errors import Location
from marin_cas.label import Label
from marin_cas.lang.values import RuleDef


@dataclass(frozen=True, slots=True)
class Edge:
    """One use of `label` by the attribute `attr`; `location` is the declaration of the target that has it."""

    attr: str
    label: Label
    location: Location


@dataclass(frozen=True, slots=True)
class Target:
    """A declared target.

    `attrs` has every attribute of the rule, in the rule's order, defaults filled in; labels are Label values:
    `label` Label or None, `label_list` a list, `label_dict` {name: Label}, `label_keyed_float_dict` {Label: float} in
    declaration order. They are shared with the rule's defaults: not to be changed. `given` are the attributes that
    the BUILD file wrote. `deps` has one edge a use, in the order of the attributes. `home` is that of its package.
    """

    label: Label
    kind: str
    rule: RuleDef
    attrs: Mapping[str, Any]
    location: Location
    chain: tuple[str, ...] = ()
    visibility: tuple[str, ...] = ()
    deps: tuple[Edge, ...] = ()
    given: tuple[str, ...] = ()
    home: str | None = None

    @property
    def folder(self) -> str:
        """The package whose files are its own, and whose visibility it has."""
        return self.label.package if self.home is None else self.home

    @property
    def ref(self) -> str | None:
        """`name@version`, for a target that makes an artifact."""
        if self.rule.native:
            return None
        artifact, version = self.attrs.get("artifact"), self.attrs.get("version")
        return f"{artifact}@{version}" if artifact and version else None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file (kind `file`) or a folder (kind `tree`) of the workspace that a target names."""

    label: Label
    kind: str = "file"

    @property
    def path(self) -> str:
        """Relative to the workspace."""
        return self.label.path


type Node = Target | SourceFile
