"""An action as analysis makes it: one run of a tool, with what bears identity and what does not kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marin_cas.digest import Digest
from marin_cas.encoding import Value
from marin_cas.errors import Location
from marin_cas.label import Label
from marin_cas.recipe import Input, Pending, Recipe

EXACT, SAMPLED = "exact", "sampled"


@dataclass(frozen=True, slots=True)
class Source:
    """Workspace files given to an action, already hashed. `paths` are workspace-relative, sorted.

    For a `file` there is one path; for a `tree`, `names[i]` is the path inside the tree of `paths[i]`.
    """

    kind: str
    digest: Digest
    paths: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Built:
    """An output of another action. A `reporting` output may not be an input of anything."""

    action: str
    output: str
    kind: str
    reporting: bool = False


type Artifact = Source | Built


@dataclass(frozen=True, slots=True)
class Resources:
    """What an attempt needs; never in a key. `ram` and `disk` in bytes; `device` is `cpu`, `tpu` or `gpu`.

    `cpu`, `ram` and `disk` are those of one host. `alternatives` are TPU types that will do as well as `variant`.
    """

    cpu: float = 1.0
    ram: int = 1 << 30
    disk: int = 0
    device: str = "cpu"
    variant: str = ""
    count: int = 0
    slice_count: int = 1
    preemptible: bool = True
    regions: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """`kind` is `file` or `tree`; a `reporting` output (metrics, logs) is for people, not for consumers.

    The bytes of an `opaque` output differ from run to run by design (Levanter's checkpoints have random file names),
    so they are never compared.
    """

    kind: str
    reporting: bool = False
    opaque: bool = False


def secret_name(text: str) -> str:
    """The environment variable that an entry of `secrets` names: `HF_TOKEN?` is HF_TOKEN, where it is set."""
    return text.removesuffix("?")


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """An entry that `marin.lock` lacks: `kind` is its section, `name` its left side, `where` who asks first."""

    kind: str
    name: str
    where: Location | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Action:
    """Identity: tool, revision, params, inputs, outputs, env, toolchain, version. The rest never reaches a key."""

    id: str  # the label's text, or `label#name` for a second action of one target
    label: Label
    rule: str
    location: Location
    tool: str
    revision: int
    params: Mapping[str, Value]
    inputs: Mapping[str, Artifact]
    outputs: Mapping[str, OutputSpec]
    fingerprint: bytes
    env: Mapping[str, str] = field(default_factory=dict)
    toolchain: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None  # in the recipe: for sampled actions only
    outcome: str = EXACT
    settings: Mapping[str, Value] = field(default_factory=dict)  # execution and reporting values for the tool
    resources: Resources = Resources()
    secrets: tuple[str, ...] = ()  # names in the environment; with a `?` behind it one that may be unset
    heavy: bool = False  # a fresh process instead of a fork of the warm one
    code: Source | None = None  # a user function's modules: transport, never in the key
    artifact: str = ""  # name@version, the weak ref that a build leaves
    tags: tuple[str, ...] = ()
    unresolved: tuple[Need, ...] = ()  # what marin.lock does not say: it has no key, and cannot run
    provisional: bool = False  # unresolved itself, or made from what is: its fingerprint will be another one

    def recipe(self, built: Mapping[str, Input | Pending]) -> Recipe:
        """The recipe, given what stands for each built input: its bytes (for a key) or its producer's fingerprint."""
        inputs: dict[str, Input | Pending] = {
            name: Input(source.kind, source.digest) if isinstance(source, Source) else built[name]
            for name, source in self.inputs.items()
        }
        return Recipe(
            self.tool,
            self.revision,
            self.params,
            inputs,
            {name: spec.kind for name, spec in self.outputs.items()},
            self.env,
            self.toolchain,
            self.version,
        )

    def producers(self) -> tuple[str, ...]:
        """The ids of the actions whose outputs it takes, each once, in input order."""
        return tuple(dict.fromkeys(a.action for a in self.inputs.values() if isinstance(a, Built)))
