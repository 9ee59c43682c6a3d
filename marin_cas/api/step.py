"""A step: a lazy handle to one target, declared in Python by the call of the very rule that a BUILD file calls.

A step holds what it declares and nothing of what it is: labels, fingerprints and outputs are found when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from marin_cas.api import workshop
from marin_cas.api.artifacts import Artifact, LevanterCheckpoint, LevanterEvalResult, TokenizedCache
from marin_cas.api.literal import STEP, literal, plain, replaced, texts_in
from marin_cas.errors import Location, MarinError
from marin_cas.label import Label
from marin_cas.lang.failure import placed
from marin_cas.lang.values import Declaration

if TYPE_CHECKING:
    from marin_cas.api.lowering import StepSpec

_TYPES: Mapping[str, type[Artifact]] = {
    "tokenized": TokenizedCache,
    "pretokenized": TokenizedCache,
    "train_lm": LevanterCheckpoint,
    "lm_eval": LevanterEvalResult,
}
_numbers = count(1)


@dataclass(frozen=True, slots=True, eq=False)
class ArtifactStep[T: Artifact]:
    """A handle to `name@version`, and how it is built. Equal only to itself, so that it can be the key of a dict.

    `declaration` is the call of its rule, in which placeholders stand for other steps; `known` maps these to the
    steps. `family` are the steps that the same call declared, by target name. With `auto` nobody has named it.
    """

    name: str
    version: str
    artifact_type: type[T]
    declaration: Declaration
    known: Mapping[str, ArtifactStep[Any]] = field(repr=False)
    family: Mapping[str, ArtifactStep[Any]] = field(repr=False)
    number: int = field(default_factory=lambda: next(_numbers), repr=False)
    auto: bool = field(default=False, repr=False)

    @property
    def placeholder(self) -> str:
        """The text that stands for its label in declarations."""
        return f"{STEP}{self.number}"

    @property
    def deps(self) -> tuple[ArtifactStep[Any], ...]:
        """The steps that it names, each once, in the order written."""
        return tuple(self.known[text] for text in texts_in(dict(self.declaration.attrs)) if text in self.known)

    @property
    def location(self) -> Location:
        """The line that declares it."""
        return self.declaration.location

    @property
    def evals(self) -> ArtifactStep[LevanterEvalResult] | None:
        """The scores of a training that was given `evals`: a step of its own, or None."""
        return self.family.get(f"{self.declaration.label.name}.evals")

    @classmethod
    def adopt[K: Artifact](
        cls,
        name: str,
        version: str,
        source: str,
        *,
        kind: type[K] = Artifact,  # pyright: ignore[reportArgumentType] - as Marin has it
        config: Mapping[str, Any] | None = None,
    ) -> ArtifactStep[K]:
        """Data that lies elsewhere under a name: what it is, marin.lock says. `config` are further attributes of the
        rule `adopted`: the `tokenizer` of a `TokenizedCache`, `validation`, ..."""
        given = {"source": source, "version": version, "kind": "tokenized" if kind is TokenizedCache else "tree"}
        return replace(declare("data.bzl", "adopted", name, given | dict(config or {})), artifact_type=kind)

    def lower(self) -> StepSpec:
        """The target that it is in the graph, analysed. Raises RequestError, located, for what cannot be."""
        from marin_cas.api.lowering import lower

        return lower(self)

    def fingerprint(self) -> str:
        """64 hex digits: the digest of all that determines the result, known before anything is built.

        Raises RequestError for a declaration that is wrong, and for a mixture, which runs nothing.
        """
        return self.lower().fingerprint

    def path(self) -> str:
        """The folder, or the link, where a build puts its outputs."""
        from marin_cas.api.lowering import place

        return place(self)

    def resolve(self) -> T:
        """What it makes, built if it is not. Raises BuildError when that fails."""
        from marin_cas.api.running import resolve

        return resolve(self)

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Called:
    """`steps` by target name, in the order declared, and the call's value, with steps for their labels."""

    steps: Mapping[str, ArtifactStep[Any]]
    value: Any


def rule_file(bzl: str) -> Label:
    """The label of a rule file of marin-cas, by its path there: `data.bzl`, `datasets/dclm.bzl`."""
    folder, _, name = bzl.rpartition("/")
    return Label(f"rules/{folder}" if folder else "rules", name, "marin")


def call(bzl: str, function: str, arguments: Mapping[str, Any], *, auto: bool = False) -> Called:
    """Calls a rule or a macro of a rule file as a BUILD file would, from the line that runs now.

    Arguments that are None are left out. Raises RequestError at that line.
    """
    where = workshop.caller()
    try:
        return _call(bzl, function, arguments, where, auto)
    except MarinError as error:
        raise placed(error, where) from None


def _call(bzl: str, function: str, arguments: Mapping[str, Any], where: Location, auto: bool) -> Called:
    known: dict[str, ArtifactStep[Any]] = {}
    written = {name: plain(value, known, name) for name, value in arguments.items() if value is not None}
    text = ", ".join(f"{name} = {literal(value)}" for name, value in written.items())
    name = workshop.package_of(where)
    package, value = workshop.current().loader.call(rule_file(bzl), function, text, where, name)
    numbers = {target: next(_numbers) for target in package.declarations}
    siblings = {f":{target}": f"{STEP}{number}" for target, number in numbers.items()}
    siblings |= {f"//{name}:{target}": f"{STEP}{number}" for target, number in numbers.items()}
    bare = siblings | {target: f"{STEP}{number}" for target, number in numbers.items()}
    family: dict[str, ArtifactStep[Any]] = {}
    for target, declared in package.declarations.items():
        specs = declared.rule.attrs
        labels = {attr for attr, spec in specs.items() if spec.is_label}
        attrs = {attr: replaced(item, bare if attr in labels else siblings) for attr, item in declared.attrs.items()}
        if "artifact" in specs and not attrs.get("artifact"):
            attrs["artifact"] = target
        made = ArtifactStep(
            attrs.get("artifact") or target,
            attrs.get("version") or "dev",
            _TYPES.get(declared.rule.name, Artifact),
            Declaration(declared.label, declared.rule, attrs, where, declared.chain, declared.visibility),
            known,
            family,
            numbers[target],
            auto,
        )
        family[target] = known[made.placeholder] = made
    steps = {text: known[placeholder] for text, placeholder in siblings.items()}
    return Called(family, _with_steps(value, steps))


def _with_steps(value: Any, steps: Mapping[str, ArtifactStep[Any]]) -> Any:
    """What a macro returned, with a step for each label of what it declared."""
    if isinstance(value, str):
        return steps.get(value, value)
    if isinstance(value, list):
        return [_with_steps(item, steps) for item in value]
    if isinstance(value, dict):
        return {key: _with_steps(item, steps) for key, item in value.items()}
    return value


def declare(bzl: str, rule: str, name: str, arguments: Mapping[str, Any], *, auto: bool = False) -> ArtifactStep[Any]:
    """The step of one rule that is called with `name`, which is its artifact's name too."""
    return call(bzl, rule, {"name": name, **arguments}, auto=auto).steps[name]
