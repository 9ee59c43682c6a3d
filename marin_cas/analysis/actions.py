"""One `ctx.actions.run()` of a rule made into an `Action`: identity and the rest kept apart, the fingerprint fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from marin_cas.action import EXACT, SAMPLED, Action, Artifact, Built, Need, OutputSpec, Source
from marin_cas.analysis.code import code_identity
from marin_cas.analysis.lock import Lock
from marin_cas.analysis.resources import parse_resources
from marin_cas.analysis.sources import Sources
from marin_cas.encoding import EncodingError, encode
from marin_cas.errors import Location, RequestError
from marin_cas.graph.target import Target
from marin_cas.recipe import FILE, TREE, UNRESOLVED, Pending
from marin_cas.versions import DEV, is_dev


@dataclass(frozen=True, slots=True)
class Handle:
    """An artifact as rules hold it: opaque to them but for `identity`, which is equal exactly for equal contents."""

    artifact: Artifact
    identity: str


@dataclass(frozen=True, slots=True)
class ActionMaker:
    """Makes the actions of targets; `made` maps the ids of the actions made so far, producers first."""

    lock: Lock
    sources: Sources
    made: Mapping[str, Action]
    _traced: dict[tuple[str, tuple[str, ...]], tuple[bytes, Source]] = field(default_factory=dict)

    def make(
        self,
        target: Target,
        name: str,
        arguments: Mapping[str, Any],
        unresolved: tuple[Need, ...] = (),
        asked: tuple[Need, ...] = (),
    ) -> Action:
        """The action of one call. `asked` is what the target asked of the lock in vain, `unresolved` what of it since
        the call before."""
        given, attrs, where = dict(arguments), target.attrs, target.location
        tool, revision = given.pop("tool"), given.pop("revision")
        reporting, opaque = (set(given.pop(name, None) or ()) for name in ("reporting", "opaque"))
        outputs = {
            out: OutputSpec(kind, out in reporting, out in opaque)
            for out, kind in (given.pop("outputs", None) or {}).items()
        }
        self._check_outputs(target, outputs, reporting | opaque)
        inputs = {key: self._input(target, key, value) for key, value in (given.pop("inputs", None) or {}).items()}
        outcome = given.pop("outcome", None) or EXACT
        if outcome not in (EXACT, SAMPLED):
            raise RequestError(f"rule `{target.kind}`: outcome `{outcome}` is not exact or sampled", where=where)
        params = dict(given.pop("params", None) or {})
        toolchain = given.pop("toolchain", None)
        distributions = dict.fromkeys(
            toolchain if toolchain is not None else [*target.rule.toolchain, *(attrs.get("toolchain") or ())]
        )
        code = None
        if function := given.pop("code", None):
            digest, code = self._code(function, tuple(distributions), where)
            declared = given.pop("code_revision", None)
            params["code"] = digest if declared is None else declared
        pending = any(self.made[id].provisional for id in _producers(inputs))
        if not unresolved and not pending:
            unresolved = asked  # nothing else says that it may depend on them
        if unresolved:
            params[UNRESOLVED] = [f"{need.kind} {need.name}" for need in unresolved]
        version = attrs.get("version") or DEV
        recipe_version = None
        if outcome == SAMPLED:
            recipe_version = DEV if is_dev(version) else version
        resources = given.pop("resources", None)
        secrets = given.pop("secrets", None)
        action = Action(
            id=f"{target.label}#{name}" if name else str(target.label),
            label=target.label,
            rule=target.kind,
            location=where,
            tool=tool,
            revision=revision,
            params=params,
            inputs=inputs,
            outputs=outputs,
            fingerprint=b"",
            env=given.pop("env", None) or {},
            toolchain={d: self.lock.version(d, where=where) for d in sorted(distributions)},
            version=recipe_version,
            outcome=outcome,
            settings=given.pop("settings", None) or {},
            resources=parse_resources(attrs.get("resources") if resources is None else resources, where),
            secrets=tuple((attrs.get("secrets") if secrets is None else secrets) or ()),
            heavy=bool(given.pop("heavy", False)),
            code=code,
            # A further action of a target (a download that it implies) is not what the name means.
            artifact="" if name else f"{artifact_name(target)}@{version}",
            tags=tuple(attrs.get("tags") or ()),
            unresolved=unresolved,
            provisional=bool(unresolved) or pending,
        )
        return self._with_fingerprint(action, target)

    def _code(self, function: str, toolchain: tuple[str, ...], where: Location) -> tuple[bytes, Source]:
        # Hundreds of targets may share one function, and tracing it reads every module it reaches.
        known = self._traced.get((function, toolchain))
        if known is None:
            code = code_identity(self.sources.root, function, toolchain, where=where)
            known = self._traced[function, toolchain] = (code.digest, self.sources.code(code.modules))
        return known

    def _with_fingerprint(self, action: Action, target: Target) -> Action:
        pending = {
            name: Pending(source.kind, self.made[source.action].fingerprint, source.output)
            for name, source in action.inputs.items()
            if isinstance(source, Built)
        }
        try:
            fingerprint = action.recipe(pending).fingerprint()
            encode(dict(action.settings))
        except EncodingError as error:
            raise RequestError(
                f"`{target.label}`: {error}", where=target.location, hint="keys hold numbers, text, lists and maps"
            ) from None
        return replace(action, fingerprint=fingerprint)

    def _input(self, target: Target, name: str, value: Any) -> Artifact:
        handles = value if isinstance(value, Sequence) else [value]
        for handle in handles:
            if not isinstance(handle, Handle):
                raise RequestError(
                    f"rule `{target.kind}`: input `{name}` is not an artifact", where=target.rule.location
                )
            if isinstance(handle.artifact, Built) and handle.artifact.reporting:
                raise RequestError(
                    f"`{target.label}`: input `{name}` is the reporting output `{handle.artifact.output}` of "
                    f"`{handle.artifact.action}`, which nothing may consume",
                    where=target.location,
                    hint="its bytes depend on more than its key; take another output",
                )
        if not isinstance(value, Sequence):
            return value.artifact
        members = [handle.artifact for handle in handles]
        if not all(isinstance(member, Source) for member in members):
            raise RequestError(
                f"`{target.label}`: input `{name}` lists several artifacts, and one of them is built",
                where=target.location,
                hint="a list may hold files of the workspace only",
            )
        return self.sources.group([m for m in members if isinstance(m, Source)], target.folder)

    def _check_outputs(self, target: Target, outputs: Mapping[str, OutputSpec], named: Iterable[str]) -> None:
        unknown = sorted(set(named) - set(outputs))
        wrong = [f"`{name}` is a `{spec.kind}`" for name, spec in outputs.items() if spec.kind not in (FILE, TREE)]
        if not outputs or unknown or wrong:
            problem = (
                "no outputs" if not outputs else ", ".join(wrong or [f"`{name}` is no output" for name in unknown])
            )
            raise RequestError(
                f"rule `{target.kind}`: {problem}",
                where=target.rule.location,
                hint='outputs maps names to "file" or "tree", and `reporting` and `opaque` list some of them',
            )


def _producers(inputs: Mapping[str, Artifact]) -> Iterable[str]:
    return (source.action for source in inputs.values() if isinstance(source, Built))


def artifact_name(target: Target) -> str:
    """The name in `name@version`: the attribute `artifact`, by default `<package>/<target name>`."""
    return target.attrs.get("artifact") or target.label.path
