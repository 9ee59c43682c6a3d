"""The resources of an action, read from the plain dict that `rules/resources.bzl` makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from marin_cas.action import Resources
from marin_cas.errors import Location, RequestError, did_you_mean

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_FIELDS = tuple(f.name for f in fields(Resources))
_DEVICES = ("cpu", "tpu", "gpu")


def parse_size(value: Any) -> int:
    """Bytes from an int or a text such as `4g` (powers of 1024). ValueError for anything else."""
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        return int(float(match[1]) * _UNITS[match[2].lower()])
    raise ValueError(f'`{value}` is not a size such as "4g"')


def parse_resources(value: Mapping[str, Any] | None, where: Location) -> Resources:
    """The resources that a dict states. Raises RequestError, located."""
    known: dict[str, Any] = {}
    for name, item in (value or {}).items():
        if name not in _FIELDS:
            raise RequestError(f"`resources` has no field `{name}`", where=where, hint=did_you_mean(name, _FIELDS))
        try:
            known[name] = _field(name, item)
        except ValueError as error:
            raise RequestError(
                f"`resources`, field `{name}`: {error}",
                where=where,
                hint="write it with cpu(), tpu() or gpu() of @marin//rules:resources.bzl",
            ) from None
    return Resources(**known)


def _field(name: str, item: Any) -> Any:
    if name in ("ram", "disk"):
        return parse_size(item)
    if name == "cpu":
        if type(item) in (int, float) and item > 0:
            return float(item)
        raise ValueError(f"`{item}` is not a number of cores above 0")
    if name in ("count", "slice_count"):
        if type(item) is int and item >= 0:
            return item
        raise ValueError(f"`{item}` is not a count")
    if name == "preemptible":
        if type(item) is bool:
            return item
        raise ValueError(f"`{item}` is not True or False")
    if name == "regions":
        if isinstance(item, list) and all(isinstance(region, str) for region in item):
            return tuple(item)
        raise ValueError(f"`{item}` is not a list of region names")
    if not isinstance(item, str):
        raise ValueError(f"`{item}` is not text")
    if name == "device" and item not in _DEVICES:
        raise ValueError(f"`{item}` is none of {', '.join(_DEVICES)}")
    return item
