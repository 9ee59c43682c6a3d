"""Written attribute values to typed ones: what a rule's schema says, or a located error.

A value is taken only as its declared kind: an int where a float is due is that number, and nothing else is converted.
Whether an attribute was written or left to its default makes no difference to the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marin_cas.errors import RequestError, did_you_mean
from marin_cas.graph.conditions import DEFAULT, Conditions
from marin_cas.graph.kinds import CONVERTERS, LIST_KINDS, Context, is_hub_id, shown
from marin_cas.graph.naming import artifact_problem, version_problem
from marin_cas.graph.unfit import Unfit
from marin_cas.label import Label
from marin_cas.lang.values import IDENTITY, AttrSpec, Declaration, RuleDef, Select

_NUMBERS = frozenset({"int", "float"})


@dataclass(frozen=True, slots=True)
class Coerced:
    """Every attribute of the rule, in the rule's order, and each use of a label as (attribute, label)."""

    attrs: dict[str, Any]
    labels: tuple[tuple[str, Label], ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a rule's attributes come to when none is written; computed once a rule."""

    rule: RuleDef  # held so that its id stays its own
    defaults: dict[str, Any]
    labels: dict[str, tuple[Label, ...]]
    mandatory: tuple[str, ...]


def coerce(declaration: Declaration, defines: Mapping[str, str], profile: str | None = None) -> dict[str, Any]:
    """The typed attributes of one declaration."""
    return Coercer(defines, profile).coerce(declaration).attrs


class Coercer:
    """Coerces the declarations of one request; remembers rules and labels that it has seen."""

    def __init__(self, defines: Mapping[str, str], profile: str | None) -> None:
        self._conditions = Conditions(defines, profile)
        self._plans: dict[int, _Plan] = {}
        self._contexts: dict[tuple[str, str], Context] = {}

    def coerce(self, declaration: Declaration) -> Coerced:
        """Raises RequestError at the declaration for the first attribute that is wrong."""
        rule, raw = declaration.rule, declaration.attrs
        plan = self._plan(rule)
        specs = rule.attrs
        if not raw.keys() <= specs.keys():
            for name in sorted(raw.keys() - specs.keys() - {"name", "visibility"}):
                raise _error(declaration, f"`{rule}` has no attribute `{name}`", did_you_mean(name, specs))
        attrs = dict(plan.defaults)
        written: dict[str, tuple[Label, ...]] = {}
        context = self._context(declaration.label.package, declaration.label.repo)
        for name, value in raw.items():
            spec = specs.get(name)
            if spec is None:
                continue
            try:
                result = self._attribute(spec, value, context)
            except Unfit as error:
                message = f"attribute `{name}{error.path}` of `{rule}` {error.text}"
                raise _error(declaration, message, error.hint) from None
            if result is not None:
                attrs[name] = result
                if spec.is_label:
                    written[name] = tuple(context.take())
        for name in plan.mandatory:
            if attrs[name] is None:
                raise _error(declaration, f"`{rule}` needs the attribute `{name}`", "write it; it has no default")
        self._name(declaration, attrs)
        labels = {**plan.labels, **written}
        if len(labels) > 1:
            return Coerced(attrs, tuple((name, label) for name in specs for label in labels.get(name, ())))
        return Coerced(attrs, tuple((name, label) for name, found in labels.items() for label in found))

    def _context(self, package: str, repo: str) -> Context:
        context = self._contexts.get((package, repo))
        if context is None:
            context = self._contexts[package, repo] = Context(package, repo)
        return context

    def _plan(self, rule: RuleDef) -> _Plan:
        plan = self._plans.get(id(rule))
        if plan is None:
            plan = self._plans[id(rule)] = self._new_plan(rule)
        return plan

    def _new_plan(self, rule: RuleDef) -> _Plan:
        context = self._context(rule.bzl.package, rule.bzl.repo)
        defaults: dict[str, Any] = {}
        labels: dict[str, tuple[Label, ...]] = {}
        for name, spec in rule.attrs.items():
            value = spec.default
            if value is not None and not spec.mandatory:
                try:
                    value = self._attribute(spec, value, context)
                except Unfit as error:
                    message = f"the default of attribute `{name}{error.path}` of `{rule}` {error.text}"
                    raise RequestError(message, where=rule.location, hint=error.hint) from None
                if spec.is_label:
                    labels[name] = tuple(context.take())
            defaults[name] = None if spec.mandatory else value
        mandatory = tuple(name for name, spec in rule.attrs.items() if spec.mandatory)
        return _Plan(rule, defaults, labels, mandatory)

    def _attribute(self, spec: AttrSpec, value: Any, context: Context) -> Any:
        """The typed value, or None for "as if it were left out". Labels that it uses collect in `context`."""
        if type(value) is Select:
            self._check_select(spec, value, lambda branch: self._plain(spec, branch, context))
            value = self._conditions.choose(value)
        elif type(value) is list and spec.kind in LIST_KINDS and any(type(item) is Select for item in value):
            value = self._concatenated(spec, value, context)
        context.take()
        return self._plain(spec, value, context)

    def _concatenated(self, spec: AttrSpec, value: list[Any], context: Context) -> list[Any]:
        flat: list[Any] = []

        def check(branch: Any) -> None:
            if type(branch) not in (list, tuple):
                raise Unfit(f"is {shown(branch)}, not a list as what it is added to")
            self._plain(spec, branch, context)

        for item in value:
            if type(item) is Select:
                self._check_select(spec, item, check)
                flat.extend(self._conditions.choose(item))
            else:
                flat.append(item)
        return flat

    def _check_select(self, spec: AttrSpec, select: Select, check: Callable[[Any], object]) -> None:
        """Every branch has the right type and every condition is one, so that no flag brings out an old mistake."""
        if spec.bears == IDENTITY:
            raise Unfit(
                "bears identity, so it cannot be a select(): what a target is must not depend on a flag. "
                "Only attributes that bear execution or reporting may be one",
                hint="declare one target for each value",
            )
        for condition, branch in select.branches.items():
            if condition != DEFAULT:
                self._conditions.holds(condition)
            try:
                check(branch)
            except Unfit as error:
                message = f"has a select() whose branch `{condition}`{error.path} {error.text}"
                raise Unfit(message, hint=error.hint) from None

    def _plain(self, spec: AttrSpec, value: Any, context: Context) -> Any:
        if value is None:
            if spec.kind in _NUMBERS:
                raise Unfit("is NaN or infinite (or None); it must be a finite number", hint="leave it out if unset")
            return None
        if spec.hub and is_hub_id(value):
            return value
        result = CONVERTERS[spec.kind](value, context)
        if spec.values:
            for item in result if type(result) is list else (result,):
                _check_allowed(spec, item)
        return result

    def _name(self, declaration: Declaration, attrs: dict[str, Any]) -> None:
        if "artifact" not in attrs or "version" not in attrs:
            return
        label = declaration.label
        artifact, version = attrs["artifact"], attrs["version"]
        if artifact is None or (artifact == "" and "artifact" not in declaration.attrs):
            attrs["artifact"] = label.path
        elif problem := artifact_problem(artifact):
            raise _error(declaration, f"the artifact name {shown(artifact)} {problem}", None)
        if version is not None and (problem := version_problem(version)):
            raise _error(declaration, f"the version {shown(version)} {problem}", 'write for example `"2026.01.31"`')


def _check_allowed(spec: AttrSpec, item: Any) -> None:
    if any(item == allowed and type(item) is type(allowed) for allowed in spec.values):
        return
    close = did_you_mean(item, [v for v in spec.values if isinstance(v, str)]) if isinstance(item, str) else None
    raise Unfit(f"is {shown(item)}, not one of {', '.join(shown(v) for v in spec.values)}", hint=close)


def _error(declaration: Declaration, message: str, hint: str | None) -> RequestError:
    return RequestError(
        f"`{declaration.label}`: {message}", where=declaration.location, notes=declaration.chain, hint=hint
    )
