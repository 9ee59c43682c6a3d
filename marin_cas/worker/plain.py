"""Recipe values as JSON and back, exactly: bytes are tagged, everything else is itself."""

from __future__ import annotations

from typing import Any

_BYTES = "$bytes"


def to_json(value: Any) -> Any:
    """`value` with bytes as `{"$bytes": hex}`; a map's own key that begins with `$` gets one more."""
    if isinstance(value, bytes):
        return {_BYTES: value.hex()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {f"${key}" if key.startswith("$") else key: to_json(item) for key, item in value.items()}
    return value


def from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_BYTES}:
            return bytes.fromhex(value[_BYTES])
        return {key.removeprefix("$"): from_json(item) for key, item in value.items()}
    return value
