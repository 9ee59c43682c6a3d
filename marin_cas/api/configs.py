"""Light twins of Levanter's config classes, made from the schema of the locked Levanter, which is not imported.

A twin has the fields of its class and no others, and each value is checked when it is made, by what checks the same
dict in a BUILD file.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, ClassVar

from marin_cas.analysis import schema
from marin_cas.analysis.lock import Lock, read_lock
from marin_cas.api import workshop
from marin_cas.errors import RequestError, did_you_mean


class Config:
    """A config with `fields` as written; the others have the class's defaults. Compared by value."""

    root: ClassVar[str]
    kind: ClassVar[str]
    qualified: ClassVar[str]

    def __init__(self, **fields: Any) -> None:
        from marin_cas.api.literal import plain

        where, name = workshop.caller(), type(self).__name__
        known = schema.fields_of(self.qualified, lock=_lock())
        for field in fields:
            if field not in known:
                hint = did_you_mean(field, known) or f"its fields: {', '.join(known)}"
                raise RequestError(f"`{name}` has no field `{field}`", where=where, hint=hint)
        self._fields = {field: plain(value, {}, f"{name}.{field}") for field, value in fields.items()}
        self._whole = schema.expand(self.root, self.plain(), lock=_lock(), where=where, what=f"`{name}`")

    def plain(self) -> dict[str, Any]:
        return {"type": self.kind} | self._fields

    def __getattr__(self, name: str) -> Any:
        whole = self.__dict__.get("_whole", {})
        if name in whole:
            return whole[name]
        raise AttributeError(f"`{type(self).__name__}` has no field `{name}`")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._whole == other._whole

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._fields.items())})"


def config_class(name: str) -> type[Config] | None:
    """The twin of the class of that name, such as `LlamaConfig`; None where Levanter registers none."""
    found = _classes().get(name)
    return None if found is None else _made(name, *found)


def names() -> list[str]:
    """The classes that have a twin."""
    return sorted(_classes())


@functools.cache
def _made(name: str, root: str, kind: str, qualified: str) -> type[Config]:
    fields = schema.fields_of(qualified, lock=_lock())
    parameters = [inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=fields[field]) for field in fields]
    about = f"Levanter's `{qualified}`."
    body = {"root": root, "kind": kind, "qualified": qualified, "__doc__": about, "__module__": "marin_cas.api"}
    return type(name, (Config,), body | {"__signature__": inspect.Signature(parameters)})


@functools.cache
def _classes() -> dict[str, tuple[str, str, str]]:
    lock = _lock()
    return {
        qualified.rpartition(".")[2]: (root, kind, qualified)
        for root in reversed(schema.roots(lock=lock))
        for qualified, kind in schema.members(root, lock=lock).items()
    }


@functools.cache
def _lock() -> Lock:
    """The workspace's lock; where it pins no Levanter, the newest that is known."""
    root = workshop.current().root
    found = Lock() if root is None else read_lock(root)
    if "marin-levanter" in found.toolchain:
        return found
    return Lock({**found.toolchain, "marin-levanter": schema.newest("levanter")})
