"""The values that differ between two recipes, each at its path: why two keys differ.

Pure; a value that is not known yet (the digest of an unbuilt input) is never called a difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from marin_cas.reasons import Change
from marin_cas.recipe import Input, Pending, Recipe

ABSENT = "(absent)"
_LONGEST = 200
# The tool that runs users' functions, whose own parameters are a parameter of it.
_FUNCTION, _OWN = "function", "params.params"
_SECTIONS = ("tool", "revision", "version", "params", "inputs", "outputs", "env", "toolchain")


def diff(before: Recipe | Mapping[str, object], after: Recipe | Mapping[str, object]) -> tuple[Change, ...]:
    """Every differing value, in the order of a recipe's sections and then by path.

    A parameter of a user's function has the path that its target says: `params.x`.
    """
    old, new = _fields(before), _fields(after)
    order = dict.fromkeys([*(s for s in _SECTIONS if s in old or s in new), *sorted(old.keys() | new.keys())])
    changes = [
        change
        for section in order
        for change in _changes(section, old.get(section, _Nothing), new.get(section, _Nothing))
    ]
    if old.get("tool") == new.get("tool") == _FUNCTION:
        return tuple(replace(change, path=_as_declared(change.path)) for change in changes)
    return tuple(changes)


def _as_declared(path: str) -> str:
    return path.removeprefix("params.") if path.startswith(_OWN) else path


class _Nothing:
    """Stands where one side has no value; None is a value of its own."""


def _fields(recipe: Recipe | Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(recipe, Recipe):
        return recipe
    fields = {name: getattr(recipe, name) for name in _SECTIONS}
    if recipe.version is None:
        del fields["version"]
    return fields


def _changes(path: str, old: object, new: object) -> Iterator[Change]:
    if isinstance(old, Pending) or isinstance(new, Pending):
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            yield from _changes(f"{path}.{name}", old.get(name, _Nothing), new.get(name, _Nothing))
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        for index in range(max(len(old), len(new))):
            was = old[index] if index < len(old) else _Nothing
            now = new[index] if index < len(new) else _Nothing
            yield from _changes(f"{path}[{index}]", was, now)
    elif not _same(old, new):
        yield Change(path, text_of(old), text_of(new))


def _same(old: object, new: object) -> bool:
    # Equal values of two types (1 and 1.0 and True) have two encodings, so two keys.
    return type(old) is type(new) and old == new


def text_of(value: object) -> str:
    """A value as people read it: numbers and texts as in JSON, digests by their first digits."""
    if value is _Nothing:
        return ABSENT
    if isinstance(value, Input):
        return f"{value.kind} {value.digest.short}"
    if isinstance(value, bytes):
        return f"bytes {value.hex()[:12]}"
    text = json.dumps(value, ensure_ascii=False, default=text_of, sort_keys=True)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
