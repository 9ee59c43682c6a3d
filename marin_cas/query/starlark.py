"""A target written out as Starlark, as buildifier would format it: macros run and selects resolved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from marin_cas.graph.target import Target
from marin_cas.graph.visibility import PRIVATE
from marin_cas.label import Label


def written(target: Target) -> str:
    """The target's call with the attributes that its BUILD file gave, below a comment that says where that was."""
    places = target.chain or (str(target.location),)
    lines = [*(f"# {place}" for place in places), f"{target.kind}("]
    lines.append(f"    name = {value(target.label.name)},")
    for name, item in target.attrs.items():
        if name in target.given:
            lines.append(f"    {name} = {value(item, 1)},")
    if target.visibility != (PRIVATE,):
        lines.append(f"    visibility = {value(target.visibility, 1)},")
    return "\n".join([*lines, ")"]) + "\n"


def value(item: Any, depth: int = 0) -> str:
    """A value as source; a list or dict of more than one is put one a line."""
    inner, outer = "    " * (depth + 1), "    " * depth
    if isinstance(item, Label):
        return json.dumps(str(item), ensure_ascii=False)
    if isinstance(item, str):
        return json.dumps(item, ensure_ascii=False)
    if isinstance(item, Mapping):
        pairs = [f"{value(str(key))}: {value(member, depth + 1)}" for key, member in item.items()]
        return "{" + _members(pairs, inner, outer, len(pairs) > 1) + "}"
    if isinstance(item, list | tuple):
        members = [value(member, depth + 1) for member in item]
        return "[" + _members(members, inner, outer, len(members) > 1) + "]"
    return repr(item)


def _members(members: list[str], inner: str, outer: str, spread: bool) -> str:
    if not spread:
        return "".join(members)
    return "\n" + "".join(f"{inner}{member},\n" for member in members) + outer
