"""From targets to actions: runs each rule's implementation once, producers first, and fixes every fingerprint.

Pure: it reads the workspace files that are inputs (to hash them) and nothing else; no clock, no network, no cache
whose state could change the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from marin_cas.action import Action, Artifact, Built, Source
from marin_cas.analysis.actions import ActionMaker, Handle
from marin_cas.analysis.lock import Lock
from marin_cas.analysis.needs import Answers
from marin_cas.analysis.schema import expand
from marin_cas.analysis.sources import Sources
from marin_cas.analysis.versions import check_expected, check_versions
from marin_cas.errors import RequestError
from marin_cas.graph.checks import raise_all
from marin_cas.graph.graph import Graph
from marin_cas.graph.target import Target
from marin_cas.label import Label
from marin_cas.lang.values import AttrSpec, Declaration, Dep

SOURCE_FILE = "source file"


@dataclass(frozen=True, slots=True)
class AnalysedTarget:
    """What a target's implementation returned. `actions` are ids; `outputs` the default outputs by name."""

    target: Target
    providers: Mapping[str, Mapping[str, Any]]
    actions: tuple[str, ...]
    outputs: Mapping[str, Artifact]

    @property
    def label(self) -> Label:
        return self.target.label

    @property
    def kind(self) -> str:
        return self.target.kind


@dataclass(frozen=True, slots=True)
class Analysis:
    """`actions` by id and `targets` by label, both producers first. `sources` are the workspace files in any input."""

    actions: Mapping[str, Action]
    targets: Mapping[Label, AnalysedTarget]
    sources: frozenset[str] = frozenset()

    def target(self, label: Label) -> AnalysedTarget:
        return self.targets[label]


class Implementer(Protocol):
    """What analysis needs of the loader."""

    def implement(
        self,
        declaration: Declaration,
        attrs: Mapping[str, Any],
        run: Callable[[str, dict[str, Any]], Mapping[str, Any]],
        *,
        identity: Callable[[Any], str] | None = None,
        expand: Callable[[str, Any], Any] | None = None,
        lock: Callable[[str, list[Any]], str | None] | None = None,
    ) -> Mapping[str, Mapping[str, Any]]: ...


def analyse(graph: Graph, loader: Implementer, lock: Lock, sources: Sources) -> Analysis:
    """Every target of `graph` analysed. Raises RequestError, located at the target."""
    analyser = _Analyser(graph, loader, lock, sources)
    for target in graph.targets.values():
        analyser.analyse(target)
    runs = {label for label, target in analyser.targets.items() if target.actions}
    raise_all([*check_versions(graph, runs), *check_expected(graph.targets.values(), analyser.actions)])
    return Analysis(analyser.actions, analyser.targets, frozenset(sources.used))


@dataclass(slots=True)
class _Analyser:
    graph: Graph
    loader: Implementer
    lock: Lock
    sources: Sources
    actions: dict[str, Action] = field(default_factory=dict)
    targets: dict[Label, AnalysedTarget] = field(default_factory=dict)
    maker: ActionMaker = field(init=False)

    def __post_init__(self) -> None:
        self.maker = ActionMaker(self.lock, self.sources, self.actions)

    def analyse(self, target: Target) -> None:
        if target.kind == "alias":
            actual = self.targets[self.graph.actual(target.label)] if self._is_target(target.label) else None
            if actual is None:
                handle = self._source(self.graph.actual(target.label), target)
                providers: Mapping[str, Any] = {"DefaultInfo": {"outputs": {handle.artifact.kind: handle}}}
                self._finish(target, providers, ())
            else:
                self.targets[target.label] = AnalysedTarget(target, actual.providers, actual.actions, actual.outputs)
            return
        if target.kind == "filegroup":
            self._finish(target, {"DefaultInfo": {"outputs": {"files": self._filegroup(target)}}}, ())
            return
        ran: dict[str, Action] = {}
        answers = Answers(self.lock, target.location)
        attrs = {name: self._attribute(target, name, spec) for name, spec in target.rule.attrs.items()}

        def run(name: str, arguments: Mapping[str, Any]) -> dict[str, Handle]:
            action = self.maker.make(target, name, arguments, answers.fresh(), tuple(answers.missing))
            if action.id in ran:
                raise RequestError(
                    f"`{target.label}`: its rule `{target.kind}` runs two actions with the id `{action.id}`",
                    where=target.rule.location,
                    hint="give each ctx.actions.run() of one target another `name`",
                )
            ran[action.id] = self.actions[action.id] = action  # at once: the target's next one may take it in
            return {
                output: Handle(
                    Built(action.id, output, spec.kind, spec.reporting), f"{action.fingerprint.hex()}:{output}"
                )
                for output, spec in action.outputs.items()
            }

        declaration = self.graph.packages[target.label.package].declarations[target.label.name]
        providers = self.loader.implement(
            declaration,
            attrs,
            run,
            identity=lambda handle: handle.identity,
            expand=lambda schema, value: expand(
                schema, value, lock=self.lock, where=target.location, what=f"`{target.label}`"
            ),
            lock=answers.ask,
        )
        self._finish(target, providers, tuple(ran))

    def _finish(self, target: Target, providers: Mapping[str, Any], actions: tuple[str, ...]) -> None:
        outputs: dict[str, Artifact] = {}
        for name, handle in (providers.get("DefaultInfo", {}).get("outputs") or {}).items():
            if not isinstance(handle, Handle):
                raise RequestError(
                    f"rule `{target.kind}`: DefaultInfo output `{name}` is not an artifact",
                    where=target.rule.location,
                    hint="outputs maps names to what ctx.actions.run() returned",
                )
            outputs[name] = handle.artifact
        self.targets[target.label] = AnalysedTarget(target, providers, actions, outputs)

    # Attributes.

    def _attribute(self, target: Target, name: str, spec: AttrSpec) -> Any:
        value = target.attrs.get(name)
        if value is None:
            return None
        if not spec.is_label or (spec.hub and isinstance(value, str)):
            if spec.schema:
                return expand(
                    spec.schema,
                    value,
                    lock=self.lock,
                    where=target.location,
                    what=f"`{target.label}`, attribute `{name}`",
                )
            return value
        match spec.kind:
            case "label":
                return self._dep(target, name, spec, value)
            case "label_list":
                return [self._dep(target, name, spec, label) for label in value]
            case "label_dict":
                return {key: self._dep(target, name, spec, label) for key, label in value.items()}
        pairs = value.items() if isinstance(value, Mapping) else value
        return [[self._dep(target, name, spec, label), weight] for label, weight in pairs]

    def _is_target(self, label: Label) -> bool:
        return self.graph.actual(label) in self.targets

    def _dep(self, target: Target, name: str, spec: AttrSpec, label: Label) -> Dep:
        actual = self.graph.actual(label)
        found = self.targets.get(actual)
        if found is None:
            handle = self._source(actual, target)
            dep = Dep(label, SOURCE_FILE, {"DefaultInfo": {"outputs": {handle.artifact.kind: handle}}})
        else:
            dep = Dep(label, found.kind, found.providers)
        for provider in spec.providers:
            if provider not in dep.providers:
                raise RequestError(
                    f"`{target.label}`, attribute `{name}`: `{label}` is a {dep.kind}, which has no {provider}",
                    where=target.location,
                    notes=target.chain,
                    hint=f"`{target.kind}` takes here a target that gives {provider}",
                )
        return dep

    def _source(self, label: Label, target: Target) -> Handle:
        source = self.sources.at(label.path, where=target.location)
        return Handle(source, f"{source.digest}")

    def _filegroup(self, target: Target) -> Handle:
        members: list[Source] = []
        for label in target.attrs.get("srcs") or ():
            actual = self.graph.actual(label)
            if (found := self.targets.get(actual)) is None:
                members.append(self.sources.at(actual.path, where=target.location))
                continue
            for artifact in found.outputs.values():
                if not isinstance(artifact, Source):
                    raise RequestError(
                        f"`{target.label}`: `{label}` is built, and a filegroup groups files of the workspace",
                        where=target.location,
                        hint="name the built target itself where it is needed, or join trees with a py_action",
                    )
                members.append(artifact)
        source = self.sources.group(members, target.folder)
        return Handle(source, f"{source.digest}")
