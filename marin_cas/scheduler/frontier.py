"""The state of every action of one build, driven by demand: nothing is looked up, run or materialised unasked.

An action may be wanted for its *digests* (to know a consumer's key) or for the *bytes* of some outputs. Wanting
starts at the roots; a fingerprint hit stops it; a miss passes it on to the producers, first for digests (the key may
hit: early cutoff), then for bytes once it is sure that the action runs. So a hollow result is a miss only for whoever
needs its bytes, and that can come to light in the middle of a build.

Pure but for the lookups; one thread only; no recursion. Invariant: a node is READY only when its key is known, missing
(or its run is forced) and every output that it reads is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from marin_cas.action import Action, Built
from marin_cas.digest import Digest
from marin_cas.errors import MarinError
from marin_cas.reasons import Code, Reason
from marin_cas.recipe import Input
from marin_cas.result import Result
from marin_cas.scheduler.differing import published_gone, refused_again
from marin_cas.scheduler.lookup import Lookup, Publication
from marin_cas.scheduler.node import Mode, Node, Phase, node_of
from marin_cas.scheduler.reasoning import why_miss


class Frontier:
    """`again` and `check` are ids to run though a result stands. Call `want`, then `settle`, then read or run."""

    def __init__(
        self,
        actions: Mapping[str, Action],
        lookup: Lookup,
        *,
        again: Collection[str] = (),
        check: Collection[str] = (),
    ) -> None:
        self.lookup = lookup
        self.nodes = {id: node_of(action, order) for order, (id, action) in enumerate(actions.items())}
        self._again, self._check = frozenset(again), set(check)
        self._work: deque[str] = deque()
        self._owners: dict[Digest, str] = {}
        self._failed: dict[Digest, str] = {}
        self._sharers: dict[str, list[str]] = {}
        self._ready: list[str] = []
        self._settled: list[str] = []
        # What stands above a forced run cannot be served by fingerprint: the run may move what is below it.
        self._unsure: set[str] = set(self._again)
        for id, node in self.nodes.items():
            node.refusal, node.publication = lookup.refusal(node.action), lookup.published(node.action)
            node.borrowed = node.publication is not None
            if node.refusal is not None or node.borrowed:
                self._unsure.add(id)
            for producer in node.producers:
                self.nodes[producer].consumers.append(id)
                node.borrowed |= self.nodes[producer].borrowed
                if producer in self._unsure:
                    self._unsure.add(id)
        for node in reversed(self.nodes.values()):
            for producer in node.producers:
                below = self.nodes[producer]
                below.depth = max(below.depth, node.depth + 1)

    # Asking.

    def want(self, id: str, outputs: Iterable[str] = ()) -> None:
        """Somebody needs the digests of `id`, and the bytes of `outputs`."""
        node = self.nodes[id]
        new = set(outputs) - node.wanted
        if node.phase is Phase.IDLE or new:
            node.wanted |= new
            self._work.append(id)

    def settle(self) -> None:
        """Follow every consequence, up to what only a run can tell."""
        while self._work:
            id = self._work.popleft()
            try:
                self._follow(id, self.nodes[id])
            except MarinError as error:
                # A store knows blobs, not what they are of.
                error.notes = (*error.notes, f"while `{id}` was looked up in the cache")
                raise

    def _follow(self, id: str, node: Node) -> None:
        if node.phase is Phase.IDLE:
            self._begin(id, node)
        if node.phase is Phase.ASKING:
            self._ask(id, node)
        if node.phase is Phase.SERVED and not node.wanted <= node.complete:
            self._complete(id, node)
        if node.phase is Phase.GATHERING:
            self._gather(id, node)

    def assume_misses(self) -> None:
        """For plans: go on as if every action that waits for a key will run, so that what it reads is looked at."""
        waiting = True
        while waiting:
            self.settle()
            waiting = False
            for node in self.nodes.values():
                if node.phase is not Phase.ASKING:
                    continue
                for producer, outputs in node.reads.items():
                    below = self.nodes[producer]
                    if below.phase is Phase.SERVED and not outputs <= below.complete:
                        self.want(producer, outputs)
                        waiting = True

    # Running.

    def take_ready(self) -> list[str]:
        """The ids that became ready since the last call; the caller starts each and reports `finish` or `fail`."""
        ready, self._ready = self._ready, []
        return [id for id in ready if self.nodes[id].phase is Phase.READY]

    def take_settled(self) -> list[str]:
        """The ids that were served, done, failed or skipped since the last call."""
        settled, self._settled = self._settled, []
        return [id for id in dict.fromkeys(settled) if self.nodes[id].settled]

    def started(self, id: str) -> None:
        self.nodes[id].phase = Phase.RUNNING

    def finish(self, id: str, result: Result, *, ran: bool) -> None:
        """`id` has this result now, complete: it `ran`, or another process had made it meanwhile."""
        node = self.nodes[id]
        node.key = result.key
        self._take(node, result)
        node.complete = set(result.outputs)
        self._become(id, node, Phase.DONE if ran else Phase.SERVED)
        for sharer in self._release(id, node):
            other = self.nodes[sharer]
            other.complete = set(node.complete)
            self._take(other, result)
            self._become(sharer, other, Phase.SERVED)

    def keep(self, id: str) -> None:
        """A run that only compared (CHECK) is over: `id` stands as it stood before."""
        node = self.nodes[id]
        for sharer in self._release(id, node):
            self.nodes[sharer].phase = Phase.GATHERING
            self._work.append(sharer)
        self._become(id, node, Phase.SERVED)

    def fail(self, id: str) -> None:
        """`id` has no bytes to give; whoever cannot do without is skipped."""
        node = self.nodes[id]
        if node.mode is Mode.AGAIN:
            node.result = None
        sharers = self._release(id, node)
        if node.key is not None:
            self._failed[node.key] = id
        self._settle_as(id, node, Phase.FAILED)
        self._spread(id)
        for sharer in sharers:
            self._skip(sharer, self.nodes[sharer], node)

    def lost(self, id: str) -> None:
        """Bytes that `id` reads vanished before it could read them: look again, and make them again."""
        node = self.nodes[id]
        for sharer in self._release(id, node):
            self.nodes[sharer].phase = Phase.GATHERING
            self._work.append(sharer)
        node.phase, node.cursor = Phase.GATHERING, 0
        for producer in node.producers:
            below = self.nodes[producer]
            if below.phase in (Phase.SERVED, Phase.DONE):
                below.complete.clear()
                below.phase = Phase.SERVED
                self._work.append(producer)
        self._work.append(id)

    def open(self) -> Iterator[Node]:
        """The nodes that are wanted and not settled."""
        return (node for node in self.nodes.values() if node.phase is not Phase.IDLE and not node.settled)

    # Steps.

    def _begin(self, id: str, node: Node) -> None:
        if node.refusal is not None:
            self._refuse(id, node, Reason(Code.TAINTED_INPUT, {"why": node.refusal.message}))
            return
        if node.publication is not None:
            self._take_published(id, node, node.publication)
            return
        if id not in self._unsure and not node.action.provisional:
            found = self.lookup.by_fingerprint(node.action.fingerprint)
            if found is not None:
                node.result, node.key, node.reason = found, found.key, _hit(Code.HIT_FINGERPRINT, found)
                self._found(id, node)
                return
        node.phase = Phase.ASKING
        for producer in node.producers:
            self.want(producer)

    def _take_published(self, id: str, node: Node, published: Publication) -> None:
        """Serve what was published though it is not quite this; never run what would be another thing by its name."""
        node.refusal = published.error or (refused_again(node.action, published.name) if id in self._again else None)
        if node.refusal is not None or published.result is None:
            self._refuse(id, node, Reason(Code.NOT_AS_PUBLISHED, {"name": published.name}, published.changes))
            return
        node.result, node.key = published.result, published.result.key
        node.reason = Reason(Code.HIT_PUBLISHED, {"name": published.name}, published.changes)
        self._become(id, node, Phase.SERVED)

    def _refuse(self, id: str, node: Node, reason: Reason) -> None:
        node.reason = reason
        self._settle_as(id, node, Phase.FAILED)
        self._spread(id)

    def _ask(self, id: str, node: Node) -> None:
        if node.action.unresolved:
            node.reason = Reason(Code.UNRESOLVED, {"need": str(node.action.unresolved[0])})
            return
        while node.cursor < len(node.producers):
            below = self.nodes[node.producers[node.cursor]]
            if not below.known:
                if below.phase in (Phase.FAILED, Phase.SKIPPED):
                    self._skip(id, node, below)
                elif node.reason.code is Code.NOT_NEEDED:
                    node.reason = why_miss(node.action, self._inputs(node), self.lookup)
                return
            node.cursor += 1
        self._identify(node)
        node.cursor = 0
        if id in self._again:
            node.mode, node.reason = Mode.AGAIN, Reason(Code.FORCED, {"flag": "--again"})
            self._enter_gathering(node)
        elif not self._serve_by_key(id, node):
            node.reason = why_miss(node.action, self._inputs(node), self.lookup)
            self._enter_gathering(node)

    def _serve_by_key(self, id: str, node: Node) -> bool:
        found = self.lookup.by_key(self._key(node))
        if found is not None:
            node.reason = _hit(Code.HIT_KEY, found)
            self._take(node, found)
            self._found(id, node)
        return found is not None

    def _found(self, id: str, node: Node) -> None:
        if id in self._check:
            node.phase = Phase.SERVED
            self._wake(id, node)  # consumers may go on with the digests
            node.mode, node.reason = Mode.CHECK, Reason(Code.FORCED, {"flag": "--check"})
            self._enter_gathering(node)
        else:
            self._become(id, node, Phase.SERVED)

    def _complete(self, id: str, node: Node) -> None:
        if node.result is None:
            return
        if self.lookup.missing(node.result, sorted(node.wanted - node.complete)) is None:
            node.complete |= node.wanted
            self._wake(id, node)
        elif node.publication is not None:
            node.refusal = published_gone(node.action, node.publication.name)
            self._refuse(id, node, Reason(Code.NOT_AS_PUBLISHED, node.reason.detail, node.reason.changes))
        else:
            node.mode, node.reason = Mode.RESTORE, Reason(Code.MISS_HOLLOW)
            self._enter_gathering(node)

    def _enter_gathering(self, node: Node) -> None:
        node.phase, node.cursor = Phase.GATHERING, 0
        for producer, outputs in node.reads.items():
            self.want(producer, outputs)

    def _gather(self, id: str, node: Node) -> None:
        while node.cursor < len(node.producers):
            below = self.nodes[node.producers[node.cursor]]
            if below.phase in (Phase.FAILED, Phase.SKIPPED):
                self._skip(id, node, below)
                return
            reads = node.reads[node.producers[node.cursor]]
            if below.phase not in (Phase.SERVED, Phase.DONE) or not reads <= below.complete:
                return
            node.cursor += 1
        before = node.key
        self._identify(node)
        if node.key != before and node.mode in (Mode.RESTORE, Mode.CHECK):
            # What it reads was made again with other bytes: the result at hand is of another key.
            node.mode, node.result = Mode.BUILD, None
            if self._serve_by_key(id, node):
                self._work.append(id)
                return
            node.reason = why_miss(node.action, self._inputs(node), self.lookup)
        self._start(id, node)

    def _start(self, id: str, node: Node) -> None:
        key = self._key(node)
        if (failed := self._failed.get(key)) is not None:
            self._skip(id, node, self.nodes[failed])
            return
        owner = self._owners.get(key)
        if owner is not None:
            node.phase, node.served_by = Phase.SHARING, owner
            node.reason = Reason(Code.WAITED, {"holder": owner})
            self._sharers.setdefault(owner, []).append(id)
            return
        self._owners[key] = id
        node.phase = Phase.READY
        self._ready.append(id)

    def _skip(self, id: str, node: Node, because: Node) -> None:
        root = because.reason.detail["failed"] if because.phase is Phase.SKIPPED else because.action.id
        node.reason = Reason(Code.SKIPPED, {"failed": root})
        self._settle_as(id, node, Phase.SKIPPED)
        self._spread(id)

    def _spread(self, id: str) -> None:
        """Skip all that waits, however indirectly, for what `id` will not give."""
        gone = [id]
        while gone:
            below = self.nodes[gone.pop()]
            failed = below.reason.detail["failed"] if below.phase is Phase.SKIPPED else below.action.id
            for consumer in below.consumers:
                node = self.nodes[consumer]
                if node.phase is Phase.GATHERING or (node.phase is Phase.ASKING and not below.known):
                    node.reason = Reason(Code.SKIPPED, {"failed": failed})
                    self._settle_as(consumer, node, Phase.SKIPPED)
                    gone.append(consumer)

    def _become(self, id: str, node: Node, phase: Phase) -> None:
        self._settle_as(id, node, phase)
        self._work.append(id)
        self._wake(id, node)

    def _settle_as(self, id: str, node: Node, phase: Phase) -> None:
        node.phase = phase
        self._settled.append(id)

    def _wake(self, id: str, node: Node) -> None:
        for consumer in node.consumers:
            other = self.nodes[consumer]
            waits = other.phase in (Phase.ASKING, Phase.GATHERING)
            if waits and other.cursor < len(other.producers) and other.producers[other.cursor] == id:
                self._work.append(consumer)

    def _release(self, id: str, node: Node) -> list[str]:
        if node.key is not None and self._owners.get(node.key) == id:
            del self._owners[node.key]
        return self._sharers.pop(id, [])

    # Keys.

    def producer_keys(self, node: Node) -> frozenset[bytes]:
        """The keys of every action below, as far as they are known."""
        keys: set[bytes] = set()
        for producer in node.producers:
            result = self.nodes[producer].result
            if result is not None:
                keys.add(result.key.hash)
                keys.update(result.producer_keys)
        return frozenset(keys)

    def _take(self, node: Node, result: Result) -> None:
        """`result` is the node's, however it came to be: it stands above all that is below the node, too."""
        node.also = self.producer_keys(node).difference(result.producer_keys)
        if node.also:
            result = replace(result, producer_keys=tuple(sorted(node.also.union(result.producer_keys))))
        node.result = result

    def _inputs(self, node: Node) -> dict[str, Input]:
        """The built inputs whose digests are known."""
        known: dict[str, Input] = {}
        for name, source in node.action.inputs.items():
            if isinstance(source, Built):
                result = self.nodes[source.action].result
                if result is not None and source.output in result.outputs:
                    known[name] = Input(source.kind, result.outputs[source.output].digest)
        return known

    def _identify(self, node: Node) -> None:
        node.recipe = node.action.recipe(self._inputs(node))
        node.key = node.recipe.key()

    def _key(self, node: Node) -> Digest:
        if node.key is None:
            self._identify(node)
        key = node.key
        if key is None:
            raise RuntimeError(f"`{node.action.id}` has no key yet")
        return key


def _hit(code: Code, found: Result) -> Reason:
    return Reason(code, {"note": found.note} if found.note else {})
