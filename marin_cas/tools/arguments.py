"""The arguments of a function that a Python script named: plain data in which marks stand for places and classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_ARGUMENTS, _POSITIONAL = "<marin:arguments>", "<marin:positional>"
_CLASS, _OUTPUT = "<marin:class>", "<marin:output>"

type Load = Callable[[str], Any]


def call(function: Callable[..., Any], params: Mapping[str, Any], places: Mapping[str, Path], load: Load) -> Any:
    """Calls `function` with what `params` says. `places` are the inputs by name, and the output's folder as `""`;
    `load` gives the class that `path.py:name` means."""
    keywords = _filled(params.get(_ARGUMENTS, {}), places, load)
    positional = _filled(params.get(_POSITIONAL, []), places, load)
    return function(*positional, **keywords)


def wanted(params: Mapping[str, Any]) -> bool:
    """Whether the function takes arguments of its own, rather than a context."""
    return _ARGUMENTS in params or _POSITIONAL in params


def _filled(value: Any, places: Mapping[str, Path], load: Load) -> Any:
    if isinstance(value, str):
        if "<marin:" not in value:
            return value
        value = value.replace(_OUTPUT, str(places[""]))
        for name, place in places.items():
            value = value.replace(f"<marin:input:{name}>", str(place))
        return value
    if isinstance(value, list):
        return [_filled(item, places, load) for item in value]
    if isinstance(value, dict):
        filled = {key: _filled(item, places, load) for key, item in value.items()}
        return load(filled[_CLASS])(**filled["fields"]) if _CLASS in filled else filled
    return value
