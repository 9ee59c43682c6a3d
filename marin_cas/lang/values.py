"""What loading yields: rules, declarations and packages as plain data, so that nobody else sees the engine.

Attribute values are as written: `1` is an int and `1.0` a float, a NaN or an infinity is None (the engine loses it),
labels are still text, and a `select()` is a `Select`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_cas.errors import Location
from marin_cas.label import Label

IDENTITY, EXECUTION, REPORTING = "identity", "execution", "reporting"
BEARS = (IDENTITY, EXECUTION, REPORTING)

ATTR_KINDS = (
    "string",
    "int",
    "float",
    "bool",
    "dict",
    "list",
    "string_list",
    "string_dict",
    "value",
    "label",
    "label_list",
    "label_dict",
    "label_keyed_float_dict",
)
LABEL_KINDS = frozenset({"label", "label_list", "label_dict", "label_keyed_float_dict"})


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """One attribute of a rule.

    `default` is used when an optional attribute is left out (None: no value). `values` lists the allowed values,
    empty for any. `providers` are what each target in a label attribute must have. `schema` names a config schema
    (`levanter.LmConfig`) by which analysis validates and expands a dict. `hub`: a label attribute takes the id of a Hub
    repo too, which stays text.
    """

    kind: str
    mandatory: bool = False
    default: Any = None
    bears: str = IDENTITY
    values: tuple[Any, ...] = ()
    providers: tuple[str, ...] = ()
    schema: str | None = None
    doc: str = ""
    hub: bool = False

    @property
    def is_label(self) -> bool:
        return self.kind in LABEL_KINDS


@dataclass(frozen=True, slots=True)
class RuleDef:
    """A rule: `name` is the global it is assigned to in `bzl`. `attrs` hold the implicit attributes too.

    `toolchain` lists the distributions whose versions bear identity. Rules built in (`alias`, `filegroup`) have no
    implementation in Starlark: their `bzl` is `@marin//:builtin`.
    """

    name: str
    bzl: Label
    location: Location
    attrs: Mapping[str, AttrSpec]
    toolchain: tuple[str, ...] = ()
    test: bool = False
    doc: str = ""

    @property
    def native(self) -> bool:
        return self.bzl == BUILTIN

    def __str__(self) -> str:
        return self.name


BUILTIN = Label("", "builtin", "marin")


@dataclass(frozen=True, slots=True)
class Select:
    """A `select()`: condition to value, in the order written.

    Conditions are `define:NAME` (true when `--define NAME=...` is set to anything but 0 or false),
    `define:NAME=VALUE`, `profile:NAME` and `//conditions:default`. As a whole attribute value it stands for the
    branch's value; inside a list (from `["a"] + select(...)`) for the elements of the branch's list.
    """

    branches: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A target as declared. `attrs` has only what was written, without `name` and `visibility`.

    `location` is the line of the BUILD file; `chain` the macros between it and the call of the rule, innermost
    last, ready to show: ``exp/BUILD.marin:12 in macro `pair` (rules/pair.bzl:4)``. `visibility` is None where
    the package's default holds.
    """

    label: Label
    rule: RuleDef
    attrs: Mapping[str, Any]
    location: Location
    chain: tuple[str, ...] = ()
    visibility: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Package:
    """One BUILD file, evaluated. `exports` are the source files that other packages may name.

    `loads` are the .bzl files it loads, directly or through others. `home` is the package whose files and visibility
    it has, for one that a program makes; None: its own.
    """

    name: str
    build_file: str
    declarations: Mapping[str, Declaration]
    default_visibility: tuple[str, ...] = ("//visibility:private",)
    exports: frozenset[str] = frozenset()
    loads: tuple[Label, ...] = ()
    home: str | None = None


@dataclass(frozen=True, slots=True)
class Dep:
    """A target as a rule's implementation sees it: `providers` maps a provider's name to its fields."""

    label: Label
    kind: str
    providers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProviderDef:
    """A provider: `fields` maps each field to its documentation."""

    name: str
    bzl: Label
    location: Location
    fields: Mapping[str, str]
    doc: str = ""
