"""What a build would do, as data: each wanted action served or run, and why. Runs nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from marin_cas.action import Action, Built
from marin_cas.analysis.analysis import Analysis
from marin_cas.analysis.resources import described
from marin_cas.digest import Digest
from marin_cas.errors import MarinError, RequestError
from marin_cas.label import Label
from marin_cas.reasons import Reason
from marin_cas.result import Result
from marin_cas.scheduler.frontier import Frontier, Node, Phase
from marin_cas.scheduler.lookup import Lookup, wanted_outputs

HIT, MISS, SKIP, REFUSED = "hit", "miss", "skip", "refused"
TOP, ALL, NONE = "top", "all", "none"


@dataclass(frozen=True, slots=True)
class Options:
    """What a build was asked for besides its targets. `cpu` and `ram` None: what the machine has.

    `bytes`: whose bytes must be there at the end: the requested targets' (`top`), everything's (`all`), nobody's.
    """

    jobs: int | None = None
    cpu: float | None = None
    ram: int | None = None
    keep_going: bool = False
    check: bool = False
    again: frozenset[Label] = frozenset()
    accept_new: bool = False
    keep_old: bool = False
    bytes: str = TOP
    keep_work: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """`key` is None while inputs are unbuilt; `result` the one that is served, or whose bytes are made again."""

    action: Action
    status: str
    reason: Reason
    key: Digest | None = None
    result: Result | None = None
    error: MarinError | None = None  # REFUSED: why it may not run

    @property
    def name(self) -> str:
        """The first 12 digits of the key, or of the fingerprint while there is no key."""
        return self.key.short if self.key else self.action.fingerprint.hex()[:12]

    def to_json(self) -> dict[str, object]:
        return {
            "status": self.status,
            "action": self.action.id,
            "label": str(self.action.label),
            "rule": self.action.rule,
            "key": self.key.hex if self.key else None,
            "fingerprint": self.action.fingerprint.hex(),
            "provisional": self.action.provisional,
            "resources": described(self.action.resources),
            "reason": self.reason.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """`decisions` by action id, producers first; only what the request needs is in it."""

    decisions: Mapping[str, Decision] = field(default_factory=dict)

    @property
    def misses(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.decisions.values() if d.status == MISS)

    @property
    def errors(self) -> tuple[MarinError, ...]:
        """Why some of the actions may not run."""
        return tuple(d.error for d in self.decisions.values() if d.error is not None)

    @property
    def hits(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.decisions.values() if d.status == HIT)


def plan(analysis: Analysis, roots: Iterable[Label], lookup: Lookup, options: Options | None = None) -> Plan:
    """The plan of building `roots`, as far as it can be told without running anything.

    What waits for an input to be built is shown as a miss: whether its key hits then, only the build can tell.
    """
    options = options or Options()
    frontier = new_frontier(analysis, roots, lookup, options)
    frontier.assume_misses()
    return Plan({id: decide(node) for id, node in frontier.nodes.items() if node.phase is not Phase.IDLE})


def decide(node: Node) -> Decision:
    status = MISS
    if node.phase in (Phase.SERVED, Phase.SHARING):
        status = HIT
    elif node.phase is Phase.SKIPPED:
        status = SKIP
    elif node.phase is Phase.FAILED:
        status = REFUSED
    return Decision(node.action, status, node.reason, node.key, node.result, node.refusal)


def new_frontier(analysis: Analysis, roots: Iterable[Label], lookup: Lookup, options: Options) -> Frontier:
    """The state of a build of `roots` with everything asked for and settled."""
    top = wanted_actions(analysis, roots)
    again = actions_of(analysis, options.again)
    needed = closure(analysis.actions, [*top, *again])
    frontier = Frontier(
        {id: action for id, action in analysis.actions.items() if id in needed},
        lookup,
        again=again,
        check=top if options.check else (),
    )
    if options.bytes == ALL:
        top = {id: wanted_outputs(analysis.actions[id]) for id in needed}
    for id in again:
        frontier.want(id)
    for id, outputs in top.items():
        frontier.want(id, () if options.bytes == NONE else outputs)
    frontier.settle()
    return frontier


def wanted_actions(analysis: Analysis, roots: Iterable[Label]) -> dict[str, tuple[str, ...]]:
    """The actions behind the roots' default outputs (all of a root's actions when it has none), and which outputs."""
    wanted: dict[str, dict[str, None]] = {}
    for root in roots:
        target = analysis.targets[root]
        built = [artifact for artifact in target.outputs.values() if isinstance(artifact, Built)]
        for artifact in built:
            outputs = wanted.setdefault(artifact.action, {})
            if not artifact.reporting:
                outputs[artifact.output] = None
        if not target.outputs:
            for id in target.actions:
                wanted.setdefault(id, {}).update(dict.fromkeys(wanted_outputs(analysis.actions[id])))
    return {id: tuple(outputs) for id, outputs in wanted.items()}


def actions_of(analysis: Analysis, labels: Collection[Label]) -> tuple[str, ...]:
    """The actions of targets named by `--again`. Raises RequestError for one that the request does not reach."""
    found: list[str] = []
    for label in sorted(labels):
        target = analysis.targets.get(label)
        if target is None:
            raise RequestError(
                f"`--again {label}`: nothing requested needs it", hint=f"request it too: `marin build {label} ...`"
            )
        found += target.actions
    return tuple(found)


def closure(actions: Mapping[str, Action], ids: Iterable[str]) -> set[str]:
    """`ids` and every action below them."""
    seen = set(ids)
    stack = list(seen)
    while stack:
        for producer in actions[stack.pop()].producers():
            if producer not in seen:
                seen.add(producer)
                stack.append(producer)
    return seen
