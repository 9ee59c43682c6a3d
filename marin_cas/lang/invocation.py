"""One call of a rule's implementation: what goes into Starlark, what it may ask for, and what comes back.

Artifacts are objects that Starlark can hold and hand on, and nothing else. Values cross as one JSON text beside the
list of the artifacts in it: anything else would cost some microseconds for each number and string.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marin_cas.errors import RequestError, did_you_mean
from marin_cas.lang.values import Declaration, Dep

_KINDS = {"string": (str,), "int": (int,), "dict": (dict,), "list": (list,), "bool": (bool,), "revision": (int, str)}
RUN_ARGUMENTS = {
    "tool": "string",
    "revision": "int",
    "params": "dict",
    "inputs": "dict",
    "outputs": "dict",
    "reporting": "list",
    "opaque": "list",
    "settings": "dict",
    "resources": "dict",
    "outcome": "string",
    "secrets": "list",
    "env": "dict",
    "toolchain": "list",  # instead of the rule's
    "heavy": "bool",
    "code": "string",  # a user's function, "path.py:name"
    "code_revision": "revision",  # stands for the code's identity where it is declared
    "name": "string",
}
_NEEDED = ("tool", "revision", "outputs")
_PLAIN = (str, int, float, bool, type(None))
_WORD = 1 << 63


@dataclass(slots=True)
class Invocation:
    """`run` makes an action and returns its outputs; `identity` names an artifact; `expand` validates a config; `lock`
    gives what marin.lock says, or None."""

    declaration: Declaration
    run: Callable[[str, dict[str, Any]], Mapping[str, Any]]
    identity: Callable[[Any], str] | None
    expand: Callable[[str, Any], Any] | None
    lock: Callable[[str, list[Any]], str | None] | None
    opaque: Callable[[object], Any]

    def call(self, attrs: Mapping[str, Any]) -> list[Any]:
        """What the prelude builds `ctx` from: a JSON text and the artifacts that it counts."""
        label = self.declaration.label
        crossing = _Crossing()
        given = {
            "label": {"package": label.package, "name": label.name, "text": str(label)},
            "attrs": [[name, *crossing.attribute(value)] for name, value in attrs.items()],
        }
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
        return [text, [self.opaque(artifact) for artifact in crossing.artifacts]]

    def answer(self, answer: list[Any]) -> list[tuple[int, dict[str, Any]]]:
        """The providers that the implementation returned: number and fields."""
        text, artifacts = answer
        return _restored(json.loads(text), artifacts) if artifacts else json.loads(text)

    def on_run(self, text: str, artifacts: list[Any]) -> list[Any]:
        """Returns the outputs' artifacts in the order of `outputs`."""
        given: dict[str, Any] = _restored(json.loads(text), artifacts)
        for name, value in given.items():
            kind = RUN_ARGUMENTS.get(name)
            if kind is None:
                raise RequestError(
                    f"`ctx.actions.run` has no argument `{name}`",
                    hint=did_you_mean(name, RUN_ARGUMENTS) or f"its arguments are {', '.join(RUN_ARGUMENTS)}",
                )
            if value is not None and type(value) not in _KINDS[kind]:
                raise RequestError(f"`{name}` of `ctx.actions.run` is a {kind}, not {value!r}")
        for name in _NEEDED:
            if not given.get(name):
                raise RequestError(f"`ctx.actions.run` needs `{name}`")
        outputs = given["outputs"]
        for name, kind in outputs.items():
            if kind not in ("file", "tree"):
                raise RequestError(f"the output `{name}` is neither `file` nor `tree` but `{kind}`")
        for quality in ("reporting", "opaque"):
            for name in given.get(quality) or ():
                if name not in outputs:
                    raise RequestError(
                        f"the {quality} output `{name}` is not among the outputs", hint=did_you_mean(name, outputs)
                    )
        if (given.get("outcome") or "exact") not in ("exact", "sampled"):
            raise RequestError(f"`outcome` is `exact` or `sampled`, not `{given['outcome']}`")
        for name, value in given.get("inputs", {}).items():
            # A list joins files of the workspace into one tree.
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, (*_PLAIN, list, dict)):
                    raise RequestError(f"the input `{name}` is not an artifact but {item!r}")
        arguments = dict(given)
        made = self.run(arguments.pop("name", None) or "", arguments)
        return [self.opaque(made[name]) for name in outputs]

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

    def on_lock(self, kind: str, arguments: list[Any]) -> str | None:
        if self.lock is None:
            raise RequestError("`ctx.lock` is not known here")
        return self.lock(kind, arguments)

    def lacking(self, attrs: Mapping[str, Any], expression: str, provider: str) -> list[Dep]:
        """The dependencies that may have been meant by `expression.provider` and have no such provider."""
        for name, value in attrs.items():
            if expression.startswith(f"ctx.attr.{name}."):
                attrs = {name: value}
                break
        deps = [dep for value in attrs.values() for dep in _deps(value)]
        return [dep for dep in _unique(deps) if provider not in dep.providers]


class _Crossing:
    """Values on their way into Starlark; `artifacts` are those met so far."""

    def __init__(self) -> None:
        self.artifacts: list[Any] = []
        self._marked = False

    def attribute(self, value: Any) -> tuple[str, Any]:
        """How the prelude has to read an attribute's value, and the value."""
        match value:
            case Dep():
                return "dep", self._dep(value)
            case [Dep(), *_]:
                return "list", [self._dep(dep) for dep in value]
            case [[Dep(), _], *_] | [(Dep(), _), *_]:
                return "pairs", [[self._dep(dep), weight] for dep, weight in value]
            case dict() if value and all(isinstance(dep, Dep) for dep in value.values()):
                return "dict", [[name, self._dep(dep)] for name, dep in value.items()]
        self._marked = False
        crossed = self._value(value)
        return ("marked" if self._marked else "plain"), crossed

    def _dep(self, dep: Dep) -> dict[str, Any]:
        providers = {
            name: {field: self._value(value) for field, value in fields.items()}
            for name, fields in dep.providers.items()
        }
        return {"label": str(dep.label), "kind": dep.kind, "providers": providers}

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind is str or kind is float or kind is bool or value is None:
            return value
        if kind is int:
            if -_WORD <= value < _WORD:
                return value
            self._marked = True
            return {"int__": str(value)}
        if kind is list or kind is tuple:
            return [self._value(item) for item in value]
        if isinstance(value, Mapping):
            names = list(value)
            if len(names) < 2 or names == sorted(names):
                return {name: self._value(item) for name, item in value.items()}
            self._marked = True
            return {"items__": [[name, self._value(item)] for name, item in value.items()]}
        self._marked = True
        self.artifacts.append(value)
        return {"artifact__": len(self.artifacts) - 1}


def _restored(value: Any, artifacts: list[Any]) -> Any:
    if type(value) is dict:
        if len(value) == 1 and "artifact__" in value:
            return artifacts[value["artifact__"]]
        return {name: _restored(item, artifacts) for name, item in value.items()}
    if type(value) is list:
        return [_restored(item, artifacts) for item in value]
    return value


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
