"""Whose fault: turns what the engine says into one error with a place in a user's file, the macros and a hint.

An error of fail() or of a builtin is shown at the call in the BUILD file; one of the language where it happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NoReturn

from marin_cas.errors import Interrupted, Location, MarinError, RequestError, did_you_mean
from marin_cas.label import Label
from marin_cas.lang import messages
from marin_cas.lang.engine import EngineFailure
from marin_cas.lang.failure import Failure, callers, macro_chain, parse_failure, placed
from marin_cas.lang.invocation import Invocation
from marin_cas.lang.prelude import BUILD_NAMES, BZL_NAMES
from marin_cas.lang.registry import Registry
from marin_cas.lang.sources import Places, Source
from marin_cas.lang.values import Declaration

# The language's own words that a typing error comes close to; short ones like `int` would be taken for anything.
_WORDS = ("enumerate", "getattr", "hasattr", "range", "reversed", "sorted", "struct", "tuple", "True", "False", "None")

_MANY_CALLS = 20


class Blame:
    """Returns exceptions, never raises them; a bug of ours or an interrupt comes back as it was."""

    def __init__(self, registry: Registry, places: Places) -> None:
        self._registry = registry
        self._places = places

    def in_file(self, failure: EngineFailure, source: Source, *, build: bool) -> BaseException:
        """An error while a file ran: raised by a builtin, by fail(), or by the engine itself."""
        told = parse_failure(failure.text)
        outer = told.frames[0].location if told.frames else told.at
        cause = failure.cause
        if isinstance(cause, Interrupted) or (cause is not None and not isinstance(cause, MarinError)):
            return cause
        if cause is not None:
            return placed(cause, outer if build else told.at, macro_chain(told.frames) if build else callers(told))
        message, hint = messages.explain(told.message, build=build)
        if messages.overflow(told.message) and len(told.frames) < _MANY_CALLS:
            message, hint = (
                "a value is nested too deeply",
                None,
            )  # the builtins walked down it, not the user's functions
        if name := messages.unknown_name(told.message):
            return self._unknown(name, source, told, build=build)
        if name := messages.missing_symbol(told.message):
            load = next((load for load in source.loads if name in load.names.values()), None)
            message = f"`{load.label if load else 'the loaded file'}` does not define `{name}`"
            return RequestError(message, where=told.at, hint=hint)
        if told.message.startswith("fail: ") and build:
            return RequestError(message, where=outer, notes=macro_chain(told.frames))
        return RequestError(message, where=told.at or Location(source.file), notes=callers(told), hint=hint)

    def _unknown(self, name: str, source: Source, told: Failure, *, build: bool) -> RequestError:
        known = {*(BUILD_NAMES if build else BZL_NAMES), *(local for load in source.loads for local in load.names)}
        rule = self._registry.rules.get(name)
        label = rule.bzl if rule and not rule.native else self._places.defining(name)
        if build and name in BZL_NAMES:
            hint = "it is for .bzl files"
        elif label is not None:
            hint = f'load it first: load("{label}", "{name}")'
        else:
            hint = did_you_mean(name, {*known, *self._registry.rules}) or did_you_mean(name, _WORDS)
        return RequestError(f"`{name}` is not defined", where=told.at, notes=callers(told), hint=hint)

    def in_rule(self, failure: EngineFailure, invocation: Invocation, attrs: Mapping[str, Any]) -> BaseException:
        """An error while a rule's implementation ran."""
        declaration = invocation.declaration
        told = parse_failure(failure.text)
        cause = failure.cause
        if isinstance(cause, Interrupted) or (cause is not None and not isinstance(cause, MarinError)):
            return cause
        if cause is not None and cause.where is not None:
            return cause
        inside = f"in rule `{declaration.rule.name}` ({told.at or declaration.rule.location})"
        if cause is not None:
            return placed(cause, declaration.location, (*declaration.chain, inside))
        message, hint = messages.explain(told.message, build=False)
        if told.message.startswith("fail: "):
            return RequestError(message, where=declaration.location, notes=(*declaration.chain, inside))
        field = messages.missing_field(told.message)
        if field in self._registry.providers and (lacking := invocation.lacking(attrs, told.expression, field)):
            return RequestError(
                "; ".join(
                    f"`{dep.label}` ({dep.kind}) has no `{field}`: it has {', '.join(dep.providers) or 'no providers'}"
                    for dep in lacking[:3]
                ),
                where=declaration.location,
                notes=(*declaration.chain, inside),
            )
        if field and told.expression == f"ctx.attr.{field}":
            message = f"the rule `{declaration.rule.name}` has no attribute `{field}`"
        return RequestError(message, where=told.at, notes=(*callers(told), *target(declaration)), hint=hint)


def target(declaration: Declaration) -> tuple[str, ...]:
    return (f"for `{declaration.label}` ({declaration.location})", *declaration.chain)


def cycle(stack: list[tuple[Label, Location]]) -> RequestError:
    start = next(index for index, (label, _) in enumerate(stack) if label == stack[-1][0])
    path = stack[start:]
    return RequestError(
        f"`{path[0][0]}` loads itself",
        where=path[1][1],
        notes=tuple(f"`{label}` loads `{loaded}` ({where})" for (label, _), (loaded, where) in pairwise(path)),
        hint="move what both need into a third file",
    )


def bad_value(what: str, problem: str, detail: str) -> NoReturn:
    subject = f"`{what}`" if what else "it"
    match problem:
        case "number":
            raise RequestError(f"{subject} is not a finite number", hint="NaN and infinities are refused")
        case "key":
            raise RequestError(f"{subject} has the key `{detail}`: keys are strings", hint=f'write `"{detail}"`')
        case "positional":
            raise RequestError(f"{subject} takes its arguments by name")
        case "struct":
            raise RequestError(f"the field {subject} of a provider holds a struct", hint="use a dict")
        case "select":
            raise RequestError("`select` takes a dict from conditions to values")
        case "implementation":
            raise RequestError(f"{subject} of a rule is a function, not a {detail}")
        case "initializer":
            raise RequestError(f"a rule's initializer returns a dict of attributes, not a {detail}")
        case "return":
            raise RequestError(f"a rule's implementation returns a list of providers, not a {detail}")
    raise RequestError(f"{subject} is a {detail}, not a plain value", hint="use text, numbers, lists and dicts")
