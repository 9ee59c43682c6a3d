"""One call of a rule's implementation: what goes into Starlark, what it may ask for, and what comes back.

Artifacts are objects that Starlark can hold and hand on, and nothing else; here they are told from plain values by
being none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marin_cas.errors import RequestError, did_you_mean
from marin_cas.lang.values import Declaration, Dep

RUN_ARGUMENTS = {
    "tool": "string",
    "revision": "int",
    "params": "dict",
    "inputs": "dict",
    "outputs": "dict",
    "reporting": "list",
    "settings": "dict",
    "resources": "dict",
    "outcome": "string",
    "secrets": "list",
    "env": "dict",
    "heavy": "bool",
    "code": "string",
    "code_revision": "int",
    "name": "string",
}
_TYPES = {"string": str, "int": int, "dict": dict, "list": list, "bool": bool}
_OPTIONAL = ("code", "code_revision", "name", "resources")
_PLAIN = (str, int, float, bool, type(None))


@dataclass(slots=True)
class Invocation:
    """`run` makes an action and returns its outputs; `identity` names an artifact; `expand` validates a config."""

    declaration: Declaration
    run: Callable[[str, dict[str, Any]], Mapping[str, Any]]
    identity: Callable[[Any], str] | None
    expand: Callable[[str, Any], Any] | None
    opaque: Callable[[object], Any]

    def call(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """What the prelude builds `ctx` from."""
        label = self.declaration.label
        return {
            "label": {"package": label.package, "name": label.name, "text": str(label)},
            "attrs": [[name, *self._attribute(value)] for name, value in attrs.items()],
        }

    def on_run(self, given: dict[str, Any]) -> dict[str, Any]:
        for name, value in given.items():
            if not name:
                raise RequestError("`ctx.actions.run` takes its arguments by name")
            kind = RUN_ARGUMENTS.get(name)
            if kind is None:
                raise RequestError(
                    f"`ctx.actions.run` has no argument `{name}`",
                    hint=did_you_mean(name, RUN_ARGUMENTS) or f"its arguments are {', '.join(RUN_ARGUMENTS)}",
                )
            wanted = _TYPES.get(kind)
            optional = value is None and name in _OPTIONAL
            if wanted and not optional and (type(value) is not wanted):
                raise RequestError(f"`{name}` of `ctx.actions.run` is a {kind}, not {value!r}")
        for name in ("tool", "revision", "outputs"):
            if not given.get(name):
                raise RequestError(f"`ctx.actions.run` needs `{name}`")
        outputs = given["outputs"]
        for name, kind in outputs.items():
            if kind not in ("file", "tree"):
                raise RequestError(f"the output `{name}` is neither `file` nor `tree` but `{kind}`")
        for name in given.get("reporting", ()):
            if name not in outputs:
                raise RequestError(
                    f"the reporting output `{name}` is not among the outputs", hint=did_you_mean(name, outputs)
                )
        if given.get("outcome", "exact") not in ("exact", "sampled"):
            raise RequestError(f"`outcome` is `exact` or `sampled`, not `{given['outcome']}`")
        for name, value in given.get("inputs", {}).items():
            # A list joins files of the workspace into one tree.
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, (*_PLAIN, list, dict)):
                    raise RequestError(f"the input `{name}` is not an artifact but {item!r}")
        arguments = dict(given)
        made = self.run(arguments.pop("name", None) or "", arguments)
        return {name: self.opaque(artifact) for name, artifact in made.items()}

    def on_identity(self, artifact: Any) -> str:
        if isinstance(artifact, (*_PLAIN, list, dict)):
            raise RequestError(f"`identity` takes an artifact, not {artifact!r}")
        if self.identity is None:
            raise RequestError("`identity` is not known here")
        return self.identity(artifact)

    def on_expand(self, schema: str, value: Any) -> Any:
        if self.expand is None:
            raise RequestError("`ctx.expand` is not known here")
        return self.expand(schema, value)

    def lacking(self, attrs: Mapping[str, Any], expression: str, provider: str) -> list[Dep]:
        """The dependencies that may have been meant by `expression.provider` and have no such provider."""
        for name, value in attrs.items():
            if expression.startswith(f"ctx.attr.{name}."):
                attrs = {name: value}
                break
        deps = [dep for value in attrs.values() for dep in _deps(value)]
        return [dep for dep in _unique(deps) if provider not in dep.providers]

    def _attribute(self, value: Any) -> tuple[str, Any]:
        match value:
            case Dep():
                return "dep", self._dep(value)
            case [Dep(), *_]:
                return "list", [self._dep(dep) for dep in value]
            case [[Dep(), _], *_] | [(Dep(), _), *_]:
                return "pairs", [[self._dep(dep), weight] for dep, weight in value]
            case dict() if value and all(isinstance(dep, Dep) for dep in value.values()):
                return "dict", {name: self._dep(dep) for name, dep in value.items()}
        return "plain", self._wrapped(value)

    def _dep(self, dep: Dep) -> dict[str, Any]:
        providers = {
            name: {field: self._wrapped(value) for field, value in fields.items()}
            for name, fields in dep.providers.items()
        }
        return {"label": str(dep.label), "kind": dep.kind, "providers": providers}

    def _wrapped(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return [self._wrapped(item) for item in value]
        if isinstance(value, Mapping):
            return {name: self._wrapped(item) for name, item in value.items()}
        return self.opaque(value)


def _deps(value: Any) -> list[Dep]:
    if isinstance(value, Dep):
        return [value]
    if isinstance(value, Mapping):
        return [dep for dep in value.values() if isinstance(dep, Dep)]
    if isinstance(value, (list, tuple)):
        return [dep for item in value for dep in _deps(item)]
    return []


def _unique(deps: list[Dep]) -> list[Dep]:
    return list({dep.label: dep for dep in deps}.values())
