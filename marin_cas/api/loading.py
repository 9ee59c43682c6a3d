"""A workspace's loader that also has the packages of Python scripts: steps in, targets with labels out.

The package of a script is its path, `//exp/x.py`, and a step's label there is its name. What two steps with one label
declare must be the same; they are then one target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from marin_cas.api.literal import FILE, replaced, texts_in
from marin_cas.api.step import ArtifactStep
from marin_cas.errors import RequestError
from marin_cas.graph.visibility import PUBLIC
from marin_cas.label import Label
from marin_cas.lang.loader import Loader
from marin_cas.lang.values import Declaration, Package, RuleDef

type Read = Callable[[str, str], Iterable[ArtifactStep[Any]]]


class ScriptLoader:
    """`base` with what scripts declare. `read(path, function)` gives the steps that a script's function returns."""

    def __init__(self, base: Loader, read: Read) -> None:
        self.base = base
        self.called = False
        self._read = read
        self._packages: dict[str, Package] = {}
        self._labels: dict[int, Label] = {}
        self._steps: dict[Label, ArtifactStep[Any]] = {}

    @property
    def root(self) -> Path:
        return self.base.root

    @property
    def watched(self) -> set[Path]:
        return self.base.watched

    def package(self, name: str) -> Package:
        return self._packages.get(name) or self.base.package(name)

    def has_package(self, name: str) -> bool:
        return name in self._packages or self.base.has_package(name)

    def packages(self, below: str = "") -> list[str]:
        return self.base.packages(below)

    def rules(self) -> Mapping[str, RuleDef]:
        return self.base.rules()

    def implement(self, *args: Any, **options: Any) -> dict[str, dict[str, Any]]:
        return self.base.implement(*args, **options)

    def script(self, label: Label) -> tuple[Label, ...] | None:
        """The targets of what a script's function returns, or the target that a script has declared so far."""
        known = self._packages.get(label.package)
        if known is not None and label.name in known.declarations:
            return (label,)
        if not (self.root / label.package).is_file():
            return None
        self.called = True
        return self.add(self._read(label.package, label.name))

    def label(self, step: ArtifactStep[Any]) -> Label:
        """The label of a step that was added."""
        return self._labels[step.number]

    def step(self, label: Label) -> ArtifactStep[Any] | None:
        """The step that a label was given to first."""
        return self._steps.get(label)

    def add(self, steps: Iterable[ArtifactStep[Any]]) -> tuple[Label, ...]:
        """Makes targets of the steps, of all that they name, and of what was declared by the same calls; returns the
        labels of `steps`, each once. Raises RequestError for two that are called the same and are not."""
        steps = list(steps)
        # A step is visited twice: to put what it names before it, and then to be declared.
        waiting = [(step, False) for step in reversed(steps)]
        seen: set[int] = set()
        while waiting:
            step, ready = waiting.pop()
            if ready:
                self._declare(step)
            elif step.number not in seen and step.number not in self._labels:
                seen.add(step.number)
                waiting += [(other, False) for other in reversed(list(step.family.values()))]
                waiting.append((step, True))
                waiting += [(other, False) for other in reversed(step.deps)]
        return tuple(dict.fromkeys(self._labels[step.number] for step in steps))

    def _declare(self, step: ArtifactStep[Any]) -> None:
        declared = step.declaration
        texts = texts_in(dict(declared.attrs))
        labels = {text: str(self._labels[step.known[text].number]) for text in texts if text in step.known}
        labels |= {text: str(self._file(text.removeprefix(FILE))) for text in texts if text.startswith(FILE)}
        attrs = {name: replaced(value, labels) for name, value in declared.attrs.items()}
        package = self._script_package(declared.label.package)
        for name in self._names(step):
            other = package.get(name)
            if other is None:
                label = Label(declared.label.package, name)
                package[name] = Declaration(
                    label, declared.rule, attrs, declared.location, declared.chain, declared.visibility
                )
                self._labels[step.number] = label
                self._steps[label] = step
                return
            if other.rule.name == declared.rule.name and other.rule.bzl == declared.rule.bzl and other.attrs == attrs:
                self._labels[step.number] = other.label
                return
            if not step.auto and (other.attrs.get("version") or "dev") == step.version:
                break
        other = package[name]
        raise RequestError(
            f"two steps are called `{step}`, and are not the same",
            where=declared.location,
            notes=(f"`{other.rule.name}` at {other.location}", f"`{declared.rule.name}` at {declared.location}"),
            hint="give one of them another name or version",
        )

    def _names(self, step: ArtifactStep[Any]) -> Iterable[str]:
        """The target names that a step may take, the first that is free."""
        name = step.declaration.label.name
        yield name
        yield f"{name}@{step.version}"
        number = 2
        while step.auto:
            yield f"{name}_{number}"
            number += 1

    def _script_package(self, name: str) -> dict[str, Declaration]:
        package = self._packages.get(name)
        if package is None:
            home = self._owner(name.rpartition("/")[0])
            package = self._packages[name] = Package(name, name, {}, (PUBLIC,), home=home)
        return package.declarations  # type: ignore[return-value]

    def _owner(self, folder: str) -> str:
        """The innermost package at or above a folder; the root where there is none."""
        while folder and not self.base.has_package(folder):
            folder = folder.rpartition("/")[0]
        return folder

    def _file(self, path: str) -> Label:
        """The label of a file of the workspace; where no BUILD file is above it, it belongs to the root."""
        owner = self._owner(path.rpartition("/")[0])
        if not self.has_package(owner):
            self._packages[owner] = Package(owner, owner, {})
        return Label(owner, path.removeprefix(f"{owner}/") if owner else path)
