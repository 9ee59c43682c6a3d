"""Which branch of a `select()` holds, given `--define` and the profile; ambiguity and gaps are refused, not guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_cas.errors import did_you_mean
from marin_cas.graph.unfit import Unfit
from marin_cas.lang.values import Select

DEFAULT = "//conditions:default"
_OFF = frozenset({"0", "false", "False"})


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the conditions of selects are asked of."""

    defines: Mapping[str, str]
    profile: str | None

    def holds(self, condition: str) -> bool:
        """Whether one condition other than the default holds. Raises Unfit for what is not a condition."""
        kind, colon, rest = condition.partition(":")
        if not colon or not rest or kind not in ("define", "profile"):
            close = did_you_mean(condition, [DEFAULT, f"define:{rest or kind}", f"profile:{rest or kind}"])
            raise Unfit(
                f"has a select() with the condition `{condition}`, which is none of `define:NAME`, "
                f"`define:NAME=VALUE`, `profile:NAME` and `{DEFAULT}`",
                hint=close,
            )
        if kind == "profile":
            return self.profile == rest
        name, equals, value = rest.partition("=")
        if equals:
            return self.defines.get(name) == value
        return name in self.defines and self.defines[name] not in _OFF

    def choose(self, select: Select) -> Any:
        """The value of the branch that holds: `define:K=V` before `define:K`, any before the default."""
        matching = {c: v for c, v in select.branches.items() if c != DEFAULT and self.holds(c)}
        exact = {c.partition("=")[0] for c in matching if "=" in c and c.startswith("define:")}
        matching = {c: v for c, v in matching.items() if c not in exact}
        if not matching:
            if DEFAULT in select.branches:
                return select.branches[DEFAULT]
            conditions = ", ".join(f"`{c}`" for c in select.branches) or "none"
            raise Unfit(f"has a select() of which no condition holds ({conditions})", hint=f"add a branch `{DEFAULT}`")
        values = list(matching.values())
        if any(value != values[0] or type(value) is not type(values[0]) for value in values[1:]):
            raise Unfit(
                "has a select() of which more than one condition holds, with different values: "
                + ", ".join(f"`{c}`" for c in matching),
                hint="make them exclude each other, as `define:NAME=VALUE` does",
            )
        return values[0]
