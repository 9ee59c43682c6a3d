"""Levanter's configs as plain data: one walker describes the classes, expands instances and builds them again.

A schema, an expanded config and an instance agree: `build(expanded)` gives a config whose every stated field
encodes to what was stated. Importing this module does not import Levanter; its functions do.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

FORMAT = 1
MODELS = "levanter.LmConfig"
OPTIMIZERS = "levanter.OptimizerConfig"
TRAINER = "levanter.TrainerConfig"

# Models that do not train from local files alone, and why.
REFUSED_MODELS = {
    "gpt2_hyena": "it has no Hugging Face form to export",
    "mixtral": "its experts cannot be differentiated in this Levanter",
    "modernbert": "it is not a causal language model",
    "snowball": "it needs mesh axes that the trainer does not set",
    "whisper": "it is not a text model",
}
# Fields of a model that a training sets itself.
OWNED_OF_MODELS = ("tokenizer",)
# The trainer's fields that change weights and that no attribute of the rule states; every other one is refused.
TRAINER_FIELDS = (
    "crash_on_inf",
    "crash_on_nan",
    "model_averaging",
    "per_device_parallelism",
)
_SCALARS: dict[Any, str] = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null"}
# Spellings by which Levanter takes a checkpointing policy; its own decoder turns them into objects.
POLICY_NAMES = ("full", "nested", "offload", "recompute", "save_all")


def qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def load_class(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def field_hints(cls: type) -> dict[str, Any]:
    """The resolved hint of every field that its constructor takes."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def choices_of(root: type) -> dict[str, type]:
    """Name to class of a draccus registry, plugins included."""
    return dict(root.get_known_choices())  # type: ignore[attr-defined]


def choice_name(root: type, cls: type) -> str:
    """The one name of `cls`: the first where several are registered for it."""
    return next(name for name, choice in choices_of(root).items() if choice is cls)


def is_registry(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "get_known_choices") and hint in _roots(hint)


def _roots(cls: type) -> list[type]:
    """Registry bases of `cls`: the classes that inherit a registry directly (a choice inherits it through one)."""
    import draccus

    registries = {draccus.ChoiceRegistry, getattr(draccus, "PluginRegistry", draccus.ChoiceRegistry)}
    return [base for base in cls.__mro__ if registries & set(base.__bases__)]


def describe(hint: Any) -> Any:
    """The JSON type of a hint: a scalar's name, or one-entry dicts `{"list": T}`, `{"class": name}` and so on.

    What no literal can state (a callable, a dtype object) is `opaque`.
    """
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _describe_union([describe(argument) for argument in arguments])
    if origin is typing.Literal:
        return {"enum": [str(argument) for argument in arguments]}
    if origin in (list, tuple, Sequence):
        return _describe_sequence(origin, arguments)
    if origin in (dict, Mapping):
        return {"dict": describe(arguments[1])}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.name for member in hint]}
    if is_registry(hint):
        return {"choice": qualified(hint)}
    if dataclasses.is_dataclass(hint):
        return {"class": qualified(hint)}  # type: ignore[arg-type]
    return "opaque"


def _describe_sequence(origin: Any, arguments: tuple[Any, ...]) -> Any:
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return {"tuple": [describe(argument) for argument in arguments]}
    return {"list": describe(arguments[0])}


def _describe_union(members: list[Any]) -> Any:
    flat = [inner for member in members for inner in (member["union"] if _kind(member) == "union" else [member])]
    flat = [member for member in flat if member != "opaque"]
    if "float" in flat:
        # Levanter reads 2 and 2.0 alike there, so one of the two spellings must not be another key.
        flat = [member for member in flat if member != "int"]
    named = [
        m for m in flat if _kind(m) == "choice" or (_kind(m) == "class" and m["class"].endswith("CheckpointPolicy"))
    ]
    if named and "str" in flat:
        flat = [member | {"named": True} if member in named else member for member in flat if member != "str"]
    if not flat:
        return "opaque"
    return flat[0] if len(flat) == 1 else {"union": flat}


def _kind(described: Any) -> str:
    return described if isinstance(described, str) else next(iter(described))


# From instances to plain data.


def expand_instance(instance: Any, root: type | None = None) -> dict[str, Any]:
    """Every field of a config object, with its name in the registry `root` and its class."""
    cls = type(instance)
    result: dict[str, Any] = {"class": qualified(cls)}
    if root is not None:
        result["type"] = choice_name(root, cls)
    for name, hint in field_hints(cls).items():
        described = describe(hint)
        if described != "opaque" and name not in OWNED_OF_MODELS:
            result[name] = encode(getattr(instance, name), hint)
    return result


def encode(value: Any, hint: Any) -> Any:
    """`value` of a field declared `hint` as plain data, numbers folded to the declared type."""
    described = describe(hint)
    members = described["union"] if _kind(described) == "union" else [described]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        roots = [root for root in _roots(type(value)) if any(m == {"choice": qualified(root)} | m for m in members)]
        return expand_instance(value, roots[0] if roots else None)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, str) and (root := _named_root(hint)) is not None:
        return expand_instance(choices_of(root)[value](), root)
    if isinstance(value, int) and not isinstance(value, bool) and "float" in members and "int" not in members:
        return float(value)
    if isinstance(value, list | tuple):
        argument = next(iter(typing.get_args(_member(hint, list, tuple, Sequence)) or (Any,)))
        return [encode(item, argument) for item in value]
    if isinstance(value, Mapping):
        argument = (typing.get_args(_member(hint, dict, Mapping)) or (str, Any))[1]
        return {key: encode(item, argument) for key, item in value.items()}
    return value


def _member(hint: Any, *origins: Any) -> Any:
    """The member of a union (or the hint itself) whose origin is one of `origins`."""
    for member in _members(hint):
        if typing.get_origin(member) in origins:
            return member
    return None


def _members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _named_root(hint: Any) -> type | None:
    """The registry whose names a string stands for, in a field declared as registry or text."""
    members = _members(hint)
    return next((member for member in members if is_registry(member)), None) if str in members else None


# From plain data to instances.


def build(expanded: Mapping[str, Any], **owned: Any) -> Any:
    """The config object of an expanded config; `owned` are fields that the caller sets.

    Only what differs from the class's defaults is passed on: some classes refuse their own defaults when stated, and
    the library's own decoder reads a stated `False` of some fields as text.
    """
    cls = load_class(expanded["class"])
    hints, defaults = field_hints(cls), defaults_of(cls)
    stated = {
        name: value
        for name, value in expanded.items()
        if name not in ("class", "type") and (name not in defaults or encode(defaults[name], hints[name]) != value)
    }
    instance = cls(**{name: _decode(value, hints[name]) for name, value in stated.items()}, **owned)
    for name, value in stated.items():
        if encode(getattr(instance, name), hints[name]) != value:
            raise ValueError(
                f"field `{name}` of {expanded['class']} came out as {getattr(instance, name)!r}, not {value!r}"
            )
    return instance


def defaults_of(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


def _decode(value: Any, hint: Any) -> Any:
    if isinstance(value, Mapping) and "class" in value:
        return build(value)
    members = _members(hint)
    for member in members:
        if isinstance(value, str) and isinstance(member, type) and issubclass(member, enum.Enum):
            return member[value]
    if isinstance(value, list | tuple):
        member = _member(hint, list, tuple, Sequence)
        arguments = typing.get_args(member)
        items = [_decode(item, arguments[min(i, len(arguments) - 1)]) for i, item in enumerate(value)]
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            items = [_decode(item, arguments[0]) for item in value]
        return tuple(items) if typing.get_origin(member) is tuple else items
    if isinstance(value, Mapping):
        argument = typing.get_args(_member(hint, dict, Mapping))[1]
        return {key: _decode(item, argument) for key, item in value.items()}
    return value
