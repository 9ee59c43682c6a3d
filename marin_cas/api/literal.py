"""Python values of a declaration as Starlark text; a step in them becomes a placeholder for its label.

Only plain data gets through, so that a declaration in Python says no more than one in a BUILD file could.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

from marin_cas.errors import RequestError

STEP, FILE = "//step__:", "//file__:"
_DEEPEST = 100


@runtime_checkable
class Plain(Protocol):
    """An object of this library that stands for plain data."""

    def plain(self) -> Any: ...


@runtime_checkable
class Placeheld(Protocol):
    """A step: `placeholder` stands for the label that it will have."""

    @property
    def placeholder(self) -> str: ...


def plain(value: Any, met: dict[str, Any], path: str, depth: int = 0) -> Any:
    """`value` as plain data; the steps in it are added to `met` by their placeholders.

    Raises RequestError, that names `path`, for anything that is no plain data.
    """
    if depth > _DEEPEST:
        raise RequestError(f"`{path}` is nested deeper than {_DEEPEST}")
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise RequestError(f"`{path}` is {value}: NaN and infinities are refused")
        return value
    if isinstance(value, Placeheld):
        met[value.placeholder] = value
        return value.placeholder
    if isinstance(value, Plain):
        return plain(value.plain(), met, path, depth + 1)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item, met, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        made: dict[str, Any] = {}
        for key, item in value.items():
            name = plain(key, met, path, depth + 1)
            if type(name) is not str:
                raise RequestError(f"`{path}` has the key `{key!r}`: keys are text or steps")
            made[name] = plain(item, met, f"{path}.{key}" if isinstance(key, str) else path, depth + 1)
        return made
    raise RequestError(f"`{path}` is a `{_named(value)}`, not a plain value", hint=_instead(value))


def _named(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _instead(value: Any) -> str:
    if callable(value):
        return "a key cannot hold a live function: `apply` takes one that stands at the top level of a file"
    if isinstance(value, PurePath):
        return "write the path as text"
    if hasattr(value, "item"):
        return "write `.item()` behind it, for the number that it holds"
    return "use text, numbers, lists, dicts and steps"


def literal(value: Any) -> str:
    """Plain data as Starlark writes it."""
    if isinstance(value, str):
        return f'"{"".join(_escaped(char) for char in value)}"'
    if isinstance(value, list):
        return f"[{', '.join(literal(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    return repr(value)


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char < " " or char == "\x7f":
        return f"\\x{ord(char):02x}"
    if "\ud800" <= char <= "\udfff":
        raise RequestError("a text has half of a surrogate pair in it, which no UTF-8 can hold")
    return char


def replaced(value: Any, texts: Mapping[str, Any]) -> Any:
    """Plain data with every text that is in `texts`, keys too, replaced by what it stands for there."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, list):
        return [replaced(item, texts) for item in value]
    if isinstance(value, dict):
        return {replaced(key, texts): replaced(item, texts) for key, item in value.items()}
    return value


def texts_in(value: Any) -> dict[str, None]:
    """Every text in plain data, keys too, in the order written."""
    found: dict[str, None] = {}
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            found[item] = None
        elif isinstance(item, list):
            waiting += reversed(item)
        elif isinstance(item, dict):
            waiting += reversed([part for pair in item.items() for part in pair])
    return found
