"""One BUILD file while it runs: collects what its calls declare, in order."""

from __future__ import annotations

import json
from typing import Any

from marin_cas.errors import Location, RequestError
from marin_cas.label import Label, parse_label
from marin_cas.lang.failure import macro_chain, parse_stack
from marin_cas.lang.values import Declaration, Package, RuleDef, Select

_SELECT = "select__"


class PackageBuilder:
    """Every method may raise RequestError without a place: the loader knows the line that is running."""

    def __init__(self, name: str, build_file: str) -> None:
        self.name = name
        self.build_file = build_file
        self._declarations: dict[str, Declaration] = {}
        self._visibility: tuple[str, ...] | None = None
        self._visibility_at: Location | None = None
        self._exports: dict[str, None] = {}

    def declare(self, rule: RuleDef, encoded: str, stack: str) -> None:
        frames = parse_stack(stack)
        location = frames[0].location
        attrs: dict[str, Any] = json.loads(encoded)
        if _SELECT in encoded:
            attrs = {key: _unwrapped(value) for key, value in attrs.items()}
        name = attrs.pop("name", None)
        if not isinstance(name, str):
            problem = "has no `name`" if name is None else "has a `name` that is not a string"
            raise RequestError(f"this `{rule.name}` {problem}")
        visibility = attrs.pop("visibility", None)
        label = self._label(rule, name)
        chain = macro_chain(frames)
        if first := self._declarations.get(name):
            raise RequestError(
                f"two targets are named `{label}`",
                where=location,
                notes=(
                    f"`{first.rule.name}` at {first.location}",
                    *first.chain,
                    f"`{rule.name}` at {location}",
                    *chain,
                ),
                hint="give one of them another name",
            )
        self._declarations[name] = Declaration(
            label, rule, attrs, location, chain, None if visibility is None else _strings("visibility", visibility)
        )

    def set_defaults(self, visibility: Any, stack: str) -> None:
        at = parse_stack(stack)[0].location
        if self._visibility_at is not None:
            raise RequestError("`package()` is called twice", where=at, notes=(f"first at {self._visibility_at}",))
        self._visibility = _strings("default_visibility", visibility)
        self._visibility_at = at

    def export(self, files: Any) -> None:
        self._exports.update(dict.fromkeys(_strings("exports_files", files)))

    def finish(self, loads: tuple[Label, ...]) -> Package:
        exports = frozenset(self._exports)
        if self._visibility is None:
            return Package(self.name, self.build_file, self._declarations, exports=exports, loads=loads)
        return Package(self.name, self.build_file, self._declarations, self._visibility, exports, loads)

    def _label(self, rule: RuleDef, name: str) -> Label:
        if name.isidentifier():
            return Label(self.name, name)
        problem = None
        try:
            label = parse_label(f":{name}", self.name)
            if label.name == name and label.package == self.name:
                return label
        except ValueError as error:
            problem = str(error).partition(": ")[2]
        raise RequestError(f"`{name}` is not a name for a `{rule.name}`" + (f": {problem}" if problem else ""))


def _strings(what: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise RequestError(f"`{what}` is a list of strings")
    return tuple(value)


def _unwrapped(value: Any) -> Any:
    """The value with each `[{"select__": branches}]` made a Select, and one inside a longer list an element of it."""
    if isinstance(value, dict):
        if len(value) == 1 and _SELECT in value:
            return Select({key: _unwrapped(branch) for key, branch in value[_SELECT].items()})
        return {key: _unwrapped(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_unwrapped(item) for item in value]
        return items[0] if len(items) == 1 and isinstance(items[0], Select) else items
    return value
