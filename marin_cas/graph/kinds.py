"""One converter for each kind of attribute: a written value to the typed one, or Unfit with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from marin_cas.graph.unfit import Unfit
from marin_cas.label import Label, parse_label
from marin_cas.lang.values import Select

LIST_KINDS = frozenset({"list", "string_list", "label_list"})
_MAX_DEPTH = 200


class Context:
    """Where labels are relative to; collects those that a conversion met."""

    __slots__ = ("_known", "_met", "package", "repo")

    def __init__(self, package: str, repo: str) -> None:
        self.package, self.repo = package, repo
        self._known: dict[str, Label] = {}
        self._met: list[Label] = []

    def label(self, text: str) -> Label:
        label = self._known.get(text)
        if label is None:
            label = self._known[text] = parse_label(text, self.package, self.repo)
        self._met.append(label)
        return label

    def take(self) -> list[Label]:
        """The labels met since the last call."""
        met, self._met = self._met, []
        return met


def is_hub_id(value: Any) -> bool:
    """Whether a text is the id of a Hub repo, perhaps with `@revision`, and no label: one `/`, no `:` and no `//`."""
    if type(value) is not str:
        return False
    owner, slash, name = value.partition("@")[0].partition("/")
    return bool(slash and owner and name) and not any(mark in value for mark in (":", "//")) and "/" not in name


def shown(value: Any) -> str:
    """A value as a message shows it: as Starlark would write it, and short."""
    if isinstance(value, Select):
        return "a select()"
    text = repr(value)
    if isinstance(value, str):
        text = '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def _named(value: Any) -> str:
    kinds = {str: "string", bool: "bool", int: "int", float: "float", list: "list", dict: "dict", Label: "label"}
    return f"the {kinds[type(value)]} {shown(value)}" if type(value) in kinds else shown(value)


def _string(value: Any, context: Context) -> str:
    if type(value) is not str:
        raise Unfit(f"must be a string, not {_named(value)}")
    return value


def _int(value: Any, context: Context) -> int:
    if type(value) is not int:
        raise Unfit(f"must be an int, not {_named(value)}")
    return value


def _float(value: Any, context: Context) -> float:
    if type(value) is float:
        if not math.isfinite(value):
            raise Unfit("is NaN or infinite; it must be a finite number")
        return value
    if type(value) is not int:
        raise Unfit(f"must be a number, not {_named(value)}" if value is not None else "is NaN or infinite (or None)")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if number != value:
        raise Unfit(f"is {shown(value)}, which no float holds exactly", hint="write it with a decimal point")
    return number


def _bool(value: Any, context: Context) -> bool:
    if type(value) is not bool:
        hint = f"did you mean `{bool(value)}`?" if value in (0, 1) else None
        raise Unfit(f"must be True or False, not {_named(value)}", hint=hint)
    return value


def _label(value: Any, context: Context) -> Label:
    if type(value) is not str:
        raise Unfit(f"must be a label, not {_named(value)}", hint='a label is written as a string: `":name"`')
    try:
        return context.label(value)
    except ValueError as error:
        reason = str(error).partition(" is not a label: ")[2]
        raise Unfit(f"holds {shown(value)}, which is not a label: {reason}") from None


def _list_of(convert: Callable[[Any, Context], Any], what: str) -> Callable[[Any, Context], list[Any]]:
    def converted(value: Any, context: Context) -> list[Any]:
        if type(value) is not list and type(value) is not tuple:
            hint = f"did you mean `[{shown(value)[1:-1]}]`?" if type(value) is str else None
            raise Unfit(f"must be a list of {what}, not {_named(value)}", hint=hint)
        result = []
        for index, item in enumerate(value):
            try:
                result.append(convert(item, context))
            except Unfit as error:
                raise error.below(index) from None
        return result

    return converted


def _dict_of(convert: Callable[[Any, Context], Any], what: str) -> Callable[[Any, Context], dict[str, Any]]:
    def converted(value: Any, context: Context) -> dict[str, Any]:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise Unfit(f"must be a dict of {what}, not {_named(value)}")
        result = {}
        for key, item in value.items():
            try:
                result[_string(key, context)] = convert(item, context)
            except Unfit as error:
                raise error.below(key) from None
        return result

    return converted


def _weights(value: Any, context: Context) -> dict[Label, float]:
    if type(value) is str:
        return {_label(value, context): 1.0}
    weights: dict[Label, float] = {}
    written: dict[Label, str] = {}
    for text, number in _dict_of(_float, "label to number")(value, context).items():
        label = _label(text, context)
        if label in weights:
            raise Unfit(f"names `{label}` twice, as `{written[label]}` and `{text}`")
        weights[label], written[label] = number, text
    return weights


def _unique_labels(value: Any, context: Context) -> list[Label]:
    labels = _list_of(_label, "labels")(value, context)
    if len(set(labels)) != len(labels):
        twice = next(label for index, label in enumerate(labels) if label in labels[:index])
        raise Unfit(f"names `{twice}` twice")
    return labels


def _json(value: Any, context: Context, depth: int = 0) -> Any:
    """Plain data as written: what numbers and None mean in it, the schema of the rule knows."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        if not math.isfinite(value):
            raise Unfit("is NaN or infinite")
        return value
    if depth > _MAX_DEPTH:
        raise Unfit(f"is nested deeper than {_MAX_DEPTH}")
    if kind is list or kind is tuple:
        result = []
        for index, item in enumerate(value):
            try:
                result.append(_json(item, context, depth + 1))
            except Unfit as error:
                raise error.below(index) from None
        return result
    if kind is dict or isinstance(value, Mapping):
        mapping = {}
        for key, item in value.items():
            try:
                mapping[_string(key, context)] = _json(item, context, depth + 1)
            except Unfit as error:
                raise error.below(key) from None
        return mapping
    if kind is Select:
        raise Unfit("is a select(), which can only be the whole value or be added to a list")
    raise Unfit(f"is {shown(value)}, which is not plain data (numbers, strings, lists, dicts)")


def _dict(value: Any, context: Context) -> dict[str, Any]:
    if type(value) is not dict and not isinstance(value, Mapping):
        raise Unfit(f"must be a dict, not {_named(value)}")
    return _json(value, context)


def _list(value: Any, context: Context) -> list[Any]:
    if type(value) is not list and type(value) is not tuple:
        raise Unfit(f"must be a list, not {_named(value)}")
    return _json(value, context)


CONVERTERS: Mapping[str, Callable[[Any, Context], Any]] = {
    "string": _string,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "dict": _dict,
    "list": _list,
    "value": _json,
    "string_list": _list_of(_string, "strings"),
    "string_dict": _dict_of(_string, "string to string"),
    "label": _label,
    "label_list": _unique_labels,
    "label_dict": _dict_of(_label, "name to label"),
    "label_keyed_float_dict": _weights,
}
