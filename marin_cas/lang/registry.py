"""The rules and providers that rule files define, by the numbers under which Starlark knows them.

A rule's name is the global that its file assigns it to; the engine does not tell, so the lines of the top-level
assignments do. While a file runs its rules are pending; `finish` names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marin_cas.errors import Location, RequestError, did_you_mean
from marin_cas.label import Label
from marin_cas.lang.failure import parse_stack
from marin_cas.lang.values import ATTR_KINDS, BEARS, BUILTIN, EXECUTION, REPORTING, AttrSpec, ProviderDef, RuleDef

_LISTS = frozenset({"list", "string_list", "label_list"})
_DICTS = frozenset({"dict", "string_dict", "label_dict", "label_keyed_float_dict"})
_ATTR_FIELDS = ("mandatory", "default", "bears", "values", "providers", "schema", "doc", "hub")

IMPLICIT: Mapping[str, AttrSpec] = {
    "tags": AttrSpec("string_list", default=[], bears=REPORTING, doc="Words to find targets by."),
    "artifact": AttrSpec(
        "string", bears=REPORTING, doc="The name that people say; the package and the target's name if not given."
    ),
    "version": AttrSpec(
        "string", default="dev", doc="Bumping it asks for a new run of a sampled action; else only a name."
    ),
    "expected_fingerprint": AttrSpec(
        "string",
        default="",
        bears=REPORTING,
        doc="The first 12 digits of its fingerprint, or more: analysis refuses any other.",
    ),
    "resources": AttrSpec("dict", default={}, bears=EXECUTION, doc="What the action needs to run: cpu, ram, disk."),
    "secrets": AttrSpec(
        "string_list", default=[], bears=EXECUTION, doc="Environment variables handed to the tool, by name."
    ),
}
# `name` and `visibility` are fields of a declaration, not attributes, but no rule may define them.
_RESERVED = ("name", "visibility")

_PLAIN = {name: IMPLICIT[name] for name in ("tags",)}
ALIAS = RuleDef(
    "alias",
    BUILTIN,
    Location("builtin"),
    {"actual": AttrSpec("label", mandatory=True, doc="The target that this is another name of."), **_PLAIN},
    doc="Another name for a target.",
)
FILEGROUP = RuleDef(
    "filegroup",
    BUILTIN,
    Location("builtin"),
    {"srcs": AttrSpec("label_list", default=[], doc="Files and targets, taken together."), **_PLAIN},
    doc="Files under one name.",
)
DEFAULT_INFO = ProviderDef(
    "DefaultInfo", BUILTIN, Location("builtin"), {"outputs": "Name to artifact."}, "What a build of the target yields."
)


@dataclass(slots=True)
class _Pending:
    """A rule or a provider whose file has not finished; `line` is that of the top-level statement."""

    location: Location
    line: int
    fields: dict[str, Any] = field(default_factory=dict)


class Registry:
    """Grows as files are loaded; `rules` and `providers` list only what is named."""

    def __init__(self) -> None:
        self._rules: list[RuleDef | _Pending] = [ALIAS, FILEGROUP]
        self._providers: list[ProviderDef | _Pending] = [DEFAULT_INFO]
        self._unfinished = (2, 1)
        self.rules: dict[str, RuleDef] = {rule.name: rule for rule in (ALIAS, FILEGROUP)}
        self.providers: dict[str, ProviderDef] = {DEFAULT_INFO.name: DEFAULT_INFO}

    def attr(self, kind: str, given: dict[str, Any]) -> dict[str, Any]:
        """Checks a call of `attr.<kind>` and returns it as plain data, as rule() will hand it back."""
        for name in given:
            if not name:
                raise RequestError(f"`attr.{kind}` takes its arguments by name")
            if name not in _ATTR_FIELDS:
                raise RequestError(
                    f"`attr.{kind}` has no argument `{name}`",
                    hint=did_you_mean(name, _ATTR_FIELDS) or f"its arguments are {', '.join(_ATTR_FIELDS)}",
                )
        bears = given.get("bears", "identity")
        if bears not in BEARS:
            raise RequestError(f"`bears = {bears!r}` is not one of {', '.join(f'`{b}`' for b in BEARS)}")
        if given.get("hub") and kind != "label":
            raise RequestError("only an `attr.label` takes the id of a Hub repo (`hub`)")
        if given.get("mandatory") and given.get("default") is not None:
            raise RequestError("a mandatory attribute has no default")
        return {"attr": kind, **given}

    def attr_kinds(self) -> list[str]:
        return list(ATTR_KINDS)

    def add_rule(self, attrs: Any, toolchain: Any, test: bool, doc: str, stack: str) -> int:
        if not isinstance(attrs, dict):
            raise RequestError("`attrs` is a dict from names to `attr.*`")
        if not isinstance(toolchain, list) or not all(isinstance(name, str) for name in toolchain):
            raise RequestError("`toolchain` is a list of distribution names")
        for name, spec in attrs.items():
            if not isinstance(spec, dict) or "attr" not in spec:
                raise RequestError(f"the attribute `{name}` is not made by `attr.*`")
            if name in _RESERVED or not name.isidentifier():
                raise RequestError(f"a rule cannot define an attribute `{name}`")
        self._rules.append(_pending(stack, attrs=attrs, toolchain=tuple(toolchain), test=test, doc=doc))
        return len(self._rules) - 1

    def add_provider(self, doc: str, fields: Any, stack: str) -> int:
        if isinstance(fields, list):
            fields = dict.fromkeys(fields, "")
        if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
            raise RequestError("`fields` is a list of names, or a dict from names to documentation")
        self._providers.append(_pending(stack, fields=fields, doc=doc))
        return len(self._providers) - 1

    def rule(self, number: int) -> RuleDef:
        rule = self._rules[number]
        if isinstance(rule, _Pending):
            raise RequestError("a rule is called from a BUILD file, not while its own file is loaded")
        return rule

    def provider(self, number: int) -> ProviderDef:
        provider = self._providers[number]
        if isinstance(provider, _Pending):
            raise RequestError("a provider is made by a rule's implementation, not while its own file is loaded")
        return provider

    def finish(self, bzl: Label, names: Sequence[tuple[str, int, int]]) -> None:
        """Names what the file `bzl` made: `names` are its top-level assignments with first and last line."""
        rules, providers = self._unfinished
        taken: set[str] = set()
        for number in range(providers, len(self._providers)):
            made = self._providers[number]
            if isinstance(made, _Pending):
                name = _name(made, names, taken, "provider")
                defined = ProviderDef(name, bzl, made.location, made.fields["fields"], made.fields["doc"])
                self._providers[number] = defined
                self.providers[_free(self.providers, name, bzl)] = defined
        for number in range(rules, len(self._rules)):
            made = self._rules[number]
            if isinstance(made, _Pending):
                name = _name(made, names, taken, "rule")
                attrs = {attr: self._spec(spec) for attr, spec in made.fields["attrs"].items()}
                implicit = {attr: spec for attr, spec in IMPLICIT.items() if attr not in attrs}
                toolchain, test, doc = made.fields["toolchain"], made.fields["test"], made.fields["doc"]
                defined = RuleDef(name, bzl, made.location, {**attrs, **implicit}, toolchain, test, doc)
                self._rules[number] = defined
                self.rules[_free(self.rules, name, bzl)] = defined
        self._unfinished = len(self._rules), len(self._providers)

    def abandon(self) -> None:
        """Forgets what a file that failed has made, so that it cannot be named by the next one."""
        self._unfinished = len(self._rules), len(self._providers)

    def _spec(self, given: dict[str, Any]) -> AttrSpec:
        kind, default = given["attr"], given.get("default")
        if default is None and not given.get("mandatory"):
            default = [] if kind in _LISTS else {} if kind in _DICTS else None
        providers = tuple(p if isinstance(p, str) else self.provider(p).name for p in given.get("providers") or ())
        return AttrSpec(
            kind=kind,
            mandatory=bool(given.get("mandatory")),
            default=default,
            bears=given.get("bears", "identity"),
            values=tuple(given.get("values") or ()),
            providers=providers,
            schema=given.get("schema"),
            doc=given.get("doc", ""),
            hub=bool(given.get("hub")),
        )


def _pending(stack: str, **fields: Any) -> _Pending:
    frames = parse_stack(stack)
    return _Pending(frames[-1].location, frames[0].line, fields)


def _name(made: _Pending, names: Sequence[tuple[str, int, int]], taken: set[str], what: str) -> str:
    for name, first, last in names:
        if first <= made.line <= last and name not in taken:
            taken.add(name)
            return name
    raise RequestError(
        f"this {what} has no name", where=made.location, hint=f"assign it to a global: `my_{what} = {what}(...)`"
    )


def _free(known: Mapping[str, object], name: str, bzl: Label) -> str:
    return name if name not in known else f"{name} ({bzl})"
