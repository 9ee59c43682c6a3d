"""Writes the schema of the installed Levanter's configs, by which analysis checks literals without importing it.

`python -m marin_cas.tools.schema [FOLDER]` writes `levanter-<version>.json`, the same bytes for the same Levanter.
"""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from marin_cas.tools import levanter_schema as walker


def generate() -> dict[str, Any]:
    """The schema of every model that trains here, every optimizer, and the trainer's fields that change weights."""
    importlib.import_module("levanter.main.train_lm")  # fills the registries
    from haliax import ScanCheckpointPolicy
    from levanter.models.lm_model import LmConfig
    from levanter.optim.config import OptimizerConfig
    from levanter.trainer import TrainerConfig

    writer = _Writer()
    models = {n: c for n, c in walker.choices_of(LmConfig).items() if n not in walker.REFUSED_MODELS}
    writer.root(walker.MODELS, models, None)
    writer.roots[walker.MODELS]["refused"] = walker.REFUSED_MODELS
    writer.root(walker.OPTIMIZERS, walker.choices_of(OptimizerConfig), OptimizerConfig.default_choice_name())
    writer.roots[walker.TRAINER] = {"class": walker.qualified(TrainerConfig)}
    writer.add(TrainerConfig, only=walker.TRAINER_FIELDS)
    writer.finish()
    writer.classes[walker.qualified(ScanCheckpointPolicy)]["names"] = {
        name: walker.expand_instance(ScanCheckpointPolicy.from_bool_or_str(name)) for name in walker.POLICY_NAMES
    }
    return {
        "format": walker.FORMAT,
        "levanter": version("marin-levanter"),
        "roots": writer.roots,
        "classes": writer.classes,
    }


class _Writer:
    """Collects the classes that can be reached from the roots."""

    def __init__(self) -> None:
        self.roots: dict[str, Any] = {}
        self.classes: dict[str, Any] = {}
        self._pending: list[Any] = []

    def root(self, name: str, choices: dict[str, type], default: str | None) -> None:
        self.roots[name] = {
            "choices": {choice: walker.qualified(cls) for choice, cls in choices.items()},
            "default": default,
        }
        for cls in choices.values():
            self.add(cls)

    def add(self, cls: type, only: tuple[str, ...] | None = None) -> None:
        name = walker.qualified(cls)
        if name in self.classes:
            return
        fields: dict[str, Any] = {}
        owned: list[str] = []
        self.classes[name] = {"fields": fields, "owned": owned}
        defaults = walker.defaults_of(cls)
        for field, hint in walker.field_hints(cls).items():
            described = walker.describe(hint)
            if described == "opaque" or field in walker.OWNED_OF_MODELS or (only is not None and field not in only):
                owned.append(field)
                continue
            fields[field] = {"type": described}
            if field in defaults:
                fields[field]["default"] = walker.encode(defaults[field], hint)
            self._pending.append(described)

    def finish(self) -> None:
        while self._pending:
            described = self._pending.pop()
            if isinstance(described, str) or "enum" in described:
                continue
            if "class" in described:
                cls = walker.load_class(described["class"])
                self.add(cls)
            elif "choice" in described:
                root = walker.load_class(described["choice"])
                if described["choice"] not in self.roots:
                    default = getattr(root, "default_choice_name", lambda: None)()
                    self.root(described["choice"], walker.choices_of(root), default)
            else:
                inner = next(iter(described.values()))
                self._pending += inner if isinstance(inner, list) else [inner]


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) if arguments else Path(__file__).parent.parent / "analysis" / "schemas"
    schema = generate()
    path = folder / f"levanter-{schema['levanter']}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(schema, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(path)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
