"""An action as a build sees it: how far it has come, what its run would be for, and what is known of its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from marin_cas.action import Action, Built
from marin_cas.digest import Digest
from marin_cas.errors import MarinError
from marin_cas.reasons import Code, Reason
from marin_cas.recipe import Recipe
from marin_cas.result import Result
from marin_cas.scheduler.lookup import Publication

_NOT_NEEDED = Reason(Code.NOT_NEEDED)


class Phase(Enum):
    IDLE = auto()  # nobody wants it so far
    ASKING = auto()  # no fingerprint hit: waits for its producers' digests, to know its key
    GATHERING = auto()  # will run: waits for the bytes that it reads
    READY = auto()
    RUNNING = auto()
    SHARING = auto()  # another action of this build has its key and runs
    SERVED = auto()  # a result is known, and whatever bytes are wanted of it are there
    DONE = auto()  # it ran here
    FAILED = auto()
    SKIPPED = auto()


class Mode(Enum):
    """What a run is for, which decides what is published."""

    BUILD = auto()
    RESTORE = auto()  # a hollow result's bytes
    CHECK = auto()  # --check: compare only
    AGAIN = auto()  # --again: replaces the chosen result


@dataclass(slots=True)
class Node:
    """`result` may be known while it runs (RESTORE, CHECK): consumers that want digests only do not wait for it."""

    action: Action
    order: int  # in which the actions were declared
    producers: tuple[str, ...]
    reads: Mapping[str, frozenset[str]]  # producer -> the outputs that this action reads
    consumers: list[str] = field(default_factory=list)
    depth: int = 1  # of the longest chain of consumers above: what to start first
    phase: Phase = Phase.IDLE
    mode: Mode = Mode.BUILD
    reason: Reason = _NOT_NEEDED
    recipe: Recipe | None = None
    key: Digest | None = None
    result: Result | None = None
    wanted: set[str] = field(default_factory=set)
    complete: set[str] = field(default_factory=set)
    cursor: int = 0  # producers before it are satisfied; only the one at it can wake this node
    served_by: str | None = None  # the action whose run it shares
    also: frozenset[bytes] = frozenset()  # keys below it here that its result was not made from itself
    refusal: MarinError | None = None  # why it may not run
    publication: Publication | None = None  # what was published under its name, where that is not what it is now
    borrowed: bool = False  # served as published, or made from such: its fingerprint says another thing

    @property
    def settled(self) -> bool:
        return self.phase in (Phase.SERVED, Phase.DONE, Phase.FAILED, Phase.SKIPPED)

    @property
    def known(self) -> bool:
        """Its digests are known, and no run in this build may move them."""
        return self.result is not None and (self.mode is not Mode.AGAIN or self.settled)


def node_of(action: Action, order: int) -> Node:
    """The node of an action, the `order`th that was declared; who consumes it is for the whole graph to say."""
    reads: dict[str, set[str]] = {}
    for source in action.inputs.values():
        if isinstance(source, Built):
            reads.setdefault(source.action, set()).add(source.output)
    return Node(action, order, tuple(reads), {producer: frozenset(outputs) for producer, outputs in reads.items()})
