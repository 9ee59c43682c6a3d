"""Recorded values shown: as JSON data with bytes in hex, or as indented lines with one value each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from marin_cas.digest import Digest


def to_json(value: object) -> Any:
    """`value` as JSON can hold it: bytes as hex text, a digest as `<hex>-<size>`, tuples as lists."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Digest):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(item) for item in value]
    return value


def dumps(value: object, *, indent: int | None = 2) -> str:
    return json.dumps(to_json(value), indent=indent, ensure_ascii=False)


def lines(value: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """One line a leaf, nested maps indented below their name; short lists stay on their line."""
    width = max((len(name) for name, item in value.items() if not _nested(item)), default=0)
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            yield f"{indent}{name}:"
            yield from lines(item, indent + "  ")
        elif _nested(item):
            yield f"{indent}{name}:"
            for element in item:  # type: ignore[union-attr]
                if isinstance(element, Mapping) and element:
                    first, *rest = lines(element)
                    yield f"{indent}  - {first}"
                    yield from (f"{indent}    {line}" for line in rest)
                else:
                    yield f"{indent}  - {leaf(element)}"
        else:
            yield f"{indent}{name:<{width}}  {leaf(item)}"


def _nested(item: object) -> bool:
    if isinstance(item, Mapping):
        return bool(item)
    if isinstance(item, Sequence) and not isinstance(item, str | bytes):
        return any(isinstance(part, Mapping) for part in item) or len(leaf(item)) > 100
    return False


def leaf(item: object) -> str:
    """A value on one line; text stays quoted so that `"1"` and `1` differ."""
    return json.dumps(to_json(item), ensure_ascii=False)
