"""The resources of an action, read from the plain dict that `rules/resources.bzl` makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from marin_cas.action import Resources
from marin_cas.analysis.devices import TPUS, unknown
from marin_cas.errors import Location, RequestError, did_you_mean

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_FIELDS = tuple(f.name for f in fields(Resources))
_DEVICES = ("cpu", "tpu", "gpu")
_HINT = "write it with cpu(), tpu() or gpu() of @marin//rules:resources.bzl"


def parse_size(value: Any) -> int:
    """Bytes from an int or a text such as `4g` (powers of 1024). ValueError for anything else."""
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        return int(float(match[1]) * _UNITS[match[2].lower()])
    raise ValueError(f'`{value}` is not a size such as "4g"')


def parse_resources(value: Mapping[str, Any] | None, where: Location) -> Resources:
    """The resources that a dict states. What a TPU leaves open (`cpu`, `ram`) is half of what one of its hosts has.

    Raises RequestError, located.
    """
    stated = dict(value or {})
    _check_device(stated, where)
    if (tpu := TPUS.get(stated.get("variant") or "")) is not None:
        host = {"cpu": float(tpu.host.cpu // 2), "ram": (tpu.host.ram_gib // 2) << 30}
        stated |= {name: half for name, half in host.items() if stated.get(name) is None}
    known: dict[str, Any] = {}
    for name, item in stated.items():
        if name not in _FIELDS:
            raise RequestError(f"`resources` has no field `{name}`", where=where, hint=did_you_mean(name, _FIELDS))
        try:
            known[name] = _field(name, item)
        except ValueError as error:
            raise RequestError(f"`resources`, field `{name}`: {error}", where=where, hint=_HINT) from None
    return Resources(**known)


def hosts(resources: Resources) -> int:
    """Machines that run at once: those of all slices of a TPU, else one."""
    return resources.slice_count * TPUS[resources.variant].hosts if resources.device == "tpu" else 1


def chips(resources: Resources) -> int:
    """Accelerators in all; 0 for a CPU."""
    if resources.device == "tpu":
        return resources.slice_count * TPUS[resources.variant].chips
    return max(resources.count, 1) if resources.device == "gpu" else 0


def described(resources: Resources) -> dict[str, Any]:
    """The fields as plain data, with `hosts` and `chips` in all; `cpu` and `ram` are those of one host."""
    return asdict(resources) | {"hosts": hosts(resources), "chips": chips(resources)}


def _check_device(stated: Mapping[str, Any], where: Location) -> None:
    """The device's name, before the fields that depend on it."""
    device, variant = stated.get("device", "cpu"), stated.get("variant")
    if device not in ("tpu", "gpu"):
        return
    names = [variant, *(stated.get("alternatives") or ())]
    for name in names:
        if not isinstance(name, str):
            raise RequestError(f"`resources`: the {device.upper()} `{name}` is not text", where=where, hint=_HINT)
        if problem := unknown(device, name):
            raise RequestError(f"`resources`: {problem[0]}", where=where, hint=problem[1])
    if device == "tpu":
        first = TPUS[names[0]]
        for name in names[1:]:
            other = TPUS[name]
            if (first.hosts, first.chips) != (other.hosts, other.chips):
                raise RequestError(
                    f"`resources`: `{names[0]}` has {first.hosts} hosts with {first.chips} chips in all, "
                    f"`{name}` {other.hosts} with {other.chips}: one cannot stand for the other",
                    where=where,
                    hint="name types that have equally many of both",
                )


def _field(name: str, item: Any) -> Any:
    if name in ("ram", "disk"):
        return parse_size(item)
    if name == "cpu":
        if type(item) in (int, float) and item > 0:
            return float(item)
        raise ValueError(f"`{item}` is not a number of cores above 0")
    if name in ("count", "slice_count"):
        if type(item) is int and item >= (name == "slice_count"):
            return item
        raise ValueError(f"`{item}` is not a count")
    if name == "preemptible":
        if type(item) is bool:
            return item
        raise ValueError(f"`{item}` is not True or False")
    if name in ("regions", "alternatives"):
        if isinstance(item, list) and all(isinstance(text, str) for text in item):
            return tuple(item)
        what = "region names" if name == "regions" else "TPU types"
        raise ValueError(f"`{item}` is not a list of {what}")
    if not isinstance(item, str):
        raise ValueError(f"`{item}` is not text")
    if name == "device" and item not in _DEVICES:
        raise ValueError(f"`{item}` is none of {', '.join(_DEVICES)}")
    return item
