"""Literal configs checked and expanded to all their fields, by the schema of the locked Levanter; no import of it.

Equal configs expand equally: a number of a float field is a float, a name stands for what it names, a default is
spelled out, and each object carries its registered `type` and its qualified `class`. So a default that changes with
the library shows in the key, and two spellings of one thing do not make two keys.
"""

from __future__ import annotations

import copy
import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_cas.analysis import constraints, tasks
from marin_cas.analysis.lock import Lock
from marin_cas.errors import Location, RequestError, did_you_mean

SCHEMAS = Path(__file__).parent / "schemas"
# What rules ask of the tasks of lm-eval, by the same function.
TASKS = "lm_eval.tasks"
_LIBRARIES = {"levanter": "marin-levanter"}
_FORMAT = 1
_EXPECTED = {"bool": "True or False", "int": "an integer", "float": "a number", "str": "text", "null": "None"}


def expand(name: str, value: Any, *, lock: Lock, where: Location | None, what: str) -> dict[str, Any]:
    """`value` as config `name` (such as `levanter.LmConfig`), every field present.

    `what` names it in messages: ``//exp:tiny, attribute `model` ``. Raises RequestError, located, for whatever the
    library would refuse later, or misread.
    """
    if name == TASKS:
        return tasks.describe(value, lock=lock, where=where, what=what)
    return _Expander(_schema_with(name, lock, where), where, what).root(name, value)


def members(root: str, *, lock: Lock) -> dict[str, str]:
    """The classes registered for a config such as `levanter.LmConfig`, by qualified name, each with its `type`."""
    choices = _schema_with(root, lock)["roots"][root]["choices"]
    return {cls: kind for kind, cls in reversed(choices.items())}


def fields_of(cls: str, *, lock: Lock) -> dict[str, Any]:
    """The fields of a class that `members` names, each with its default, or without one `None`."""
    fields = _schema_with(cls, lock)["classes"][cls]["fields"]
    return {name: spec.get("default") for name, spec in fields.items()}


def roots(*, lock: Lock) -> tuple[str, ...]:
    """The configs of Levanter that are chosen by a `type`."""
    return tuple(name for name, root in _schema_with("levanter", lock)["roots"].items() if "choices" in root)


def newest(library: str) -> str:
    """The newest version of a library that there is a schema of."""
    return _versions(library)[-1]


def _versions(library: str) -> list[str]:
    """Those that there is a schema of, in order."""
    return sorted(path.stem.removeprefix(f"{library}-") for path in SCHEMAS.glob(f"{library}-*.json"))


def _schema_with(name: str, lock: Lock, where: Location | None = None) -> dict[str, Any]:
    """The schema of the locked version of the library that `name` begins with."""
    library = name.partition(".")[0]
    distribution = _LIBRARIES[library]
    return _load(library, distribution, lock.version(distribution, where=where), where)


@functools.lru_cache(maxsize=4)
def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes())


def _load(library: str, distribution: str, version: str, where: Location | None) -> dict[str, Any]:
    path = SCHEMAS / f"{library}-{version}.json"
    if path.exists():
        schema = _read(path)
        if schema["format"] == _FORMAT:
            return schema
    known = _versions(library)
    raise RequestError(
        f"no schema of `{distribution}` {version}, which marin.lock pins: this marin-cas knows {', '.join(known)}",
        where=where,
        hint="lock one of these, or run `python -m marin_cas.tools.schema` where that version is installed",
    )


@dataclass(frozen=True, slots=True)
class _Expander:
    schema: dict[str, Any]
    where: Location | None
    what: str

    def error(self, message: str, hint: str | None = None) -> RequestError:
        return RequestError(f"{self.what}: {message}", where=self.where, hint=hint)

    def root(self, name: str, value: Any) -> dict[str, Any]:
        root = self.schema["roots"].get(name)
        if root is None:
            raise self.error(f"there is no config schema `{name}`", did_you_mean(name, self.schema["roots"]))
        if not isinstance(value, Mapping):
            raise self.error(f"{_shown(value)} is not a dict of fields")
        if "class" in root:
            return self.object(root["class"], value, "")
        return self.choice(name, value, "")

    def choice(self, name: str, value: Mapping[str, Any] | str, path: str) -> dict[str, Any]:
        """A member of the registry `name`, by its `type`; a bare name stands for the member with its defaults."""
        root = self.schema["roots"][name]
        fields = {"type": value} if isinstance(value, str) else dict(value)
        kind = fields.pop("type", root["default"])
        at = f"field `{path}`: " if path else ""
        if kind is None:
            raise self.error(f"{at}it has no `type`", f"one of {_listed(root['choices'])}")
        if not isinstance(kind, str):
            raise self.error(f"{at}its `type` {_shown(kind)} is not text", f"one of {_listed(root['choices'])}")
        if reason := root.get("refused", {}).get(kind):
            raise self.error(f"{at}`{kind}` does not train here: {reason}", f"one of {_listed(root['choices'])}")
        cls = root["choices"].get(kind)
        if cls is None:
            hint = did_you_mean(kind, root["choices"]) or f"one of {_listed(root['choices'])}"
            raise self.error(f"{at}unknown type `{kind}`", hint)
        # The first name registered for a class is the one in keys.
        canonical = next(choice for choice, other in root["choices"].items() if other == cls)
        return {"type": canonical} | self.object(cls, fields, path)

    def object(self, name: str, value: Mapping[str, Any], path: str) -> dict[str, Any]:
        cls = self.schema["classes"][name]
        fields, short = cls["fields"], name.rpartition(".")[2]
        for field in value:
            if field in fields:
                continue
            shown = f"{path}.{field}" if path else field
            if field in cls["owned"]:
                raise self.error(f"field `{shown}` is set by `train_lm`", constraints.OWNED.get(field, "leave it out"))
            raise self.error(f"unknown field `{shown}` of {short}", did_you_mean(field, fields) or _fields_hint(fields))
        result: dict[str, Any] = {"class": name}
        for field, spec in fields.items():
            shown = f"{path}.{field}" if path else field
            if field in value:
                result[field] = self.value(spec["type"], value[field], shown)
            elif "default" in spec:
                result[field] = copy.deepcopy(spec["default"])
            else:
                raise self.error(f"field `{shown}` of {short} is required and has no default")
        if problem := constraints.problem(name, result, value):
            field, message, hint = problem
            raise self.error(f"field `{f'{path}.{field}' if path else field}`: {message}", hint)
        return result

    def value(self, kind: Any, value: Any, path: str) -> Any:
        if isinstance(kind, str):
            return self.scalar(kind, value, path)
        form = next(iter(kind))
        match form:
            case "union":
                return self.union(kind["union"], value, path)
            case "enum":
                if value not in kind["enum"] or not isinstance(value, str):
                    hint = did_you_mean(str(value), kind["enum"]) or f"one of {_listed(kind['enum'])}"
                    raise self.error(f"field `{path}`: {_shown(value)} is none of its values", hint)
                return value
            case "choice" if isinstance(value, Mapping) or (kind.get("named") and isinstance(value, str)):
                return self.choice(kind["choice"], value, path)
            case "class" if isinstance(value, Mapping):
                return self.object(kind["class"], value, path)
            case "class" if kind.get("named") and isinstance(value, str):
                names = self.schema["classes"][kind["class"]]["names"]
                if value not in names:
                    hint = did_you_mean(value, names) or f"True, False, or one of {_listed(names)}"
                    raise self.error(f"field `{path}`: unknown name `{value}`", hint)
                return names[value]
            case "list" if isinstance(value, list | tuple):
                return [self.value(kind["list"], item, f"{path}[{i}]") for i, item in enumerate(value)]
            case "tuple" if isinstance(value, list | tuple) and len(value) == len(kind["tuple"]):
                pairs = zip(kind["tuple"], value, strict=True)
                return [self.value(inner, item, f"{path}[{i}]") for i, (inner, item) in enumerate(pairs)]
            case "dict" if isinstance(value, Mapping):
                return {key: self.value(kind["dict"], item, f"{path}.{key}") for key, item in value.items()}
        raise self.error(f"field `{path}` must be {_expected(kind)}, not {_shown(value)}")

    def scalar(self, kind: str, value: Any, path: str) -> Any:
        if kind == "float":
            if type(value) in (int, float) and math.isfinite(value):
                return float(value) + 0.0  # 3 is 3.0, and -0.0 is 0.0
        elif type(value) is {"bool": bool, "int": int, "str": str, "null": type(None)}[kind]:
            return value
        hint = None
        if value is None and kind in ("int", "float"):
            hint = "a NaN or an infinity reads as None; leave the field out for its default"
        raise self.error(f"field `{path}` must be {_expected(kind)}, not {_shown(value)}", hint)

    def union(self, members: list[Any], value: Any, path: str) -> Any:
        if "bool" in members and any(_is_skip_step(m) for m in members):
            value = constraints.skip_steps(value)
        for member in members:
            if _takes(member, value):
                return self.value(member, value, path)
        expected = " or ".join(dict.fromkeys(_expected(member) for member in members))
        raise self.error(f"field `{path}` must be {expected}, not {_shown(value)}")


def _is_skip_step(member: Any) -> bool:
    return isinstance(member, dict) and member.get("class", "").endswith(".SkipStepConfig")


def _takes(member: Any, value: Any) -> bool:
    """Whether `value` has the form of this member of a union: exact types, for a bool is an int to isinstance."""
    if isinstance(member, str):
        exact = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,), "null": (type(None),)}
        return type(value) in exact[member]
    form = next(iter(member))
    if form in ("choice", "class"):
        return isinstance(value, Mapping) or (isinstance(value, str) and member.get("named", False))
    return isinstance(value, {"enum": str, "list": list | tuple, "tuple": list | tuple, "dict": Mapping}[form])


def _expected(kind: Any) -> str:
    if isinstance(kind, str):
        return _EXPECTED[kind]
    form = next(iter(kind))
    if form == "union":
        return " or ".join(dict.fromkeys(_expected(member) for member in kind["union"]))
    if form == "enum":
        return f"one of {_listed(kind['enum'])}"
    if form == "tuple":
        return f"a list of {len(kind['tuple'])} values"
    if form in ("choice", "class"):
        return "a dict of fields or a name" if kind.get("named") else "a dict of fields"
    return {"list": "a list", "dict": "a dict"}[form]


def _fields_hint(fields: Mapping[str, Any]) -> str:
    return f"its fields: {', '.join(fields)}" if len(fields) <= 8 else f"its fields: {', '.join([*fields][:8])}, ..."


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _shown(value: Any) -> str:
    return f"`{json.dumps(value)}`" if isinstance(value, str | dict | list) else f"`{value}`"
