"""Runs what a request needs, each key once, producers first, as many at a time as the machine holds.

One thread decides; each run has a thread of its own that reports back. After a failure nothing new starts (unless
--keep-going) and what runs is left to finish, since it is expensive and its result is good. The first Ctrl-C stops
politely, the second at once.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from marin_cas.action import EXACT, secret_name
from marin_cas.analysis.analysis import Analysis
from marin_cas.analysis.needs import refuse_unresolved
from marin_cas.errors import EnvironmentProblem, MarinError
from marin_cas.label import Label
from marin_cas.reasons import Code, Reason
from marin_cas.result import Result
from marin_cas.scheduler import events
from marin_cas.scheduler.admission import Admission, Capacity
from marin_cas.scheduler.differing import reproduced_otherwise, restored_otherwise
from marin_cas.scheduler.events import EventLog
from marin_cas.scheduler.frontier import Frontier, Mode, Node, Phase
from marin_cas.scheduler.interrupts import interrupts
from marin_cas.scheduler.keeping import Keep, keep_nothing, lost, there
from marin_cas.scheduler.ledger import Ledger
from marin_cas.scheduler.lookup import Lookup
from marin_cas.scheduler.plan import NONE, Options, new_frontier, wanted_actions
from marin_cas.scheduler.report import FAILED, SKIPPED, ActionOutcome, BuildReport, count, exit_code
from marin_cas.scheduler.task import Control, End, Outcome, Runner, Task

# A second process building the same things makes many of our runs wait at once; each waits in a thread.
_WAITERS = 64
# A collector without grace time may take what an action reads again and again, though seldom in the same moment.
_VANISHED_TRIES = 10
_FIRST = 1 << 30
_LOOK_S = 0.5


class Build:
    """One build. `keep` is told the outcomes before outputs are linked, to keep what was asked for from being deleted;
    it says whether anything may have been deleted meanwhile. `run` once; `interrupt` from anywhere."""

    def __init__(
        self,
        analysis: Analysis,
        roots: Iterable[Label],
        lookup: Lookup,
        ledger: Ledger,
        runner: Runner,
        options: Options | None = None,
        log: EventLog | None = None,
        keep: Keep = keep_nothing,
    ) -> None:
        self.analysis, self.roots = analysis, tuple(dict.fromkeys(roots))
        self.lookup, self.ledger, self.runner = lookup, ledger, runner
        self.options = options or Options()
        self.log = log or EventLog()
        self.keep = keep
        self.capacity = Capacity.of_machine(self.options.jobs, self.options.cpu, self.options.ram)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._running: dict[str, Control] = {}
        self._waiting: dict[str, float] = {}
        self._returning: dict[str, threading.Event] = {}
        self._outcomes: dict[str, ActionOutcome] = {}
        self._errors: list[MarinError] = []
        self._bug: BaseException | None = None
        self._warnings: list[str] = []
        self._checked: dict[str, tuple[str, ...]] = {}
        self._vanished: dict[str, int] = {}
        self._kept: dict[str, Path] = {}
        self._interrupts = 0
        self._stopping = self._replaced = False

    # The whole.

    def run(self) -> BuildReport:
        """Builds, and reports. Failures are in the report; raises RequestError for a request that makes no sense."""
        began = time.monotonic()
        names = {secret_name(text) for action in self.analysis.actions.values() for text in action.secrets}
        self.log.mask(os.environ[name] for name in names if name in os.environ)
        frontier = new_frontier(self.analysis, self.roots, self.lookup, self.options)
        refuse_unresolved(node.action for node in frontier.nodes.values())
        self.log.emit(events.BUILD_STARTED, targets=[str(root) for root in self.roots])
        for label, target in self.analysis.targets.items():
            self.log.emit(events.TARGET_ANALYSED, label=str(label), rule=target.kind, actions=list(target.actions))
        with interrupts(self.interrupt):
            self._build(frontier)
            while self._replaced and not self._stopping and not self._errors:
                # Another realisation was chosen: what was served or made from the one before it is looked at again.
                self._replaced = False
                frontier = self._again()
            for _ in range(_VANISHED_TRIES):
                if not self._lost(frontier):
                    break
                frontier = self._again()
            links = self._link(frontier) if not self._interrupts else {}
        counts = count(self._outcomes)
        code = exit_code(self._errors, interrupted=self._interrupts > 0)
        seconds = time.monotonic() - began
        self.log.emit(events.BUILD_FINISHED, counts=counts, exit_code=code, seconds=round(seconds, 3))
        if self._bug is not None:
            raise self._bug
        failures = tuple(o for o in self._outcomes.values() if o.error is not None)
        loose = tuple(e for e in self._errors if not any(e is f.error for f in failures))
        return BuildReport(
            self._outcomes, counts, failures, code, seconds, links, tuple(self._warnings), self._checked, loose
        )

    def interrupt(self) -> None:
        """Ctrl-C: once, what runs is asked to end; twice, it is killed. Safe in a signal handler."""
        self._interrupts += 1
        self._inbox.put(self._cancel_all)

    def _build(self, frontier: Frontier) -> None:
        self.frontier = frontier
        self.admission = Admission(self.capacity)
        while True:
            try:
                self._settle()
            except MarinError as error:  # a damaged record: what runs still ends well
                self._errors.append(error)
                self._stopping = True
            if not self._stopping:
                for id in frontier.take_ready():
                    node = frontier.nodes[id]
                    self.admission.add(id, node.action.resources, node.depth, node.order)
                while (id := self.admission.next()) is not None:
                    self._admit(id)
            if not self._running:
                break
            self._hear()
        left = list(frontier.open())
        if left and not self._stopping:
            raise RuntimeError(f"nothing runs, and `{left[0].action.id}` waits ({left[0].phase.name.lower()})")
        for node in left:
            node.reason = Reason(Code.NOT_STARTED)
            self._note(node, SKIPPED)

    def _hear(self) -> None:
        """Wait for the next message and act on it."""
        while True:
            try:
                # Not for ever: a signal that another thread receives does not wake this one.
                message = self._inbox.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            message()
            return

    def _settle(self) -> None:
        self.frontier.settle()
        for id in self.frontier.take_settled():
            node = self.frontier.nodes[id]
            if node.phase is Phase.SKIPPED:
                if self._interrupts:
                    node.reason = Reason(Code.NOT_STARTED)
                self._note(node, SKIPPED)
            elif node.phase is Phase.FAILED and node.refusal is not None and node.refusal not in self._errors:
                self._errors.append(node.refusal)
                self._stopping |= not self.options.keep_going
                self._note(node, FAILED, error=node.refusal)
            elif node.phase is Phase.SERVED and node.result is not None and id not in self._outcomes:
                self._record(node, node.result)
                self._note(node, events.LOCAL)
                if node.reason.code is Code.HIT_PUBLISHED:
                    self._warn(f"`{id}` is served as it was {node.reason.text()}")

    def _cancel_all(self) -> None:
        self._stopping = True
        for event in self._returning.values():
            event.set()
        for control in list(self._running.values()):
            control.cancel(kill=self._interrupts > 1)

    # Runs.

    def _admit(self, id: str) -> None:
        if (room := self._returning.pop(id, None)) is not None:
            self._waiting.pop(id, None)
            room.set()
            return
        node = self.frontier.nodes[id]
        if node.key is None or node.recipe is None:
            raise RuntimeError(f"`{id}` is ready without a key")
        self._warn_of_size(node)
        task = Task(
            node.action,
            node.recipe,
            node.key,
            node.mode,
            tuple(sorted(self.frontier.producer_keys(node))),
            replace=self.options.accept_new,
            keep_work=self.options.keep_work,
        )
        label, key = str(node.action.label), node.key.hex

        def emit(event: str, **data: object) -> None:
            if event == events.WARNING:
                self._warnings.append(str(data.get("message")))
            self.log.emit(event, label=label, action=id, key=key, **data)

        control = Control(
            emit=emit,
            waiting=lambda holder, age, since: self._inbox.put(lambda: self._wait(id, holder, age, since)),
            readmit=lambda room: self._inbox.put(lambda: self._return(id, room)),
        )
        self.frontier.started(id)
        self._running[id] = control
        self._emit(node, events.ACTION_STARTED, rule=node.action.rule, reason=node.reason.to_json())
        threading.Thread(target=self._run, args=(id, task, control), name=f"run {id}", daemon=True).start()

    def _run(self, id: str, task: Task, control: Control) -> None:
        began = time.monotonic()
        outcome: Outcome | BaseException
        try:
            outcome = self.runner.run(task, control)
        except MarinError as error:
            outcome = Outcome(End.FAILED, error=error)
        except BaseException as bug:  # the build must end, and say so, whatever happens in a thread
            outcome = bug
        seconds = time.monotonic() - began
        self._inbox.put(lambda: self._ended(id, outcome, seconds))

    def _wait(self, id: str, holder: str, age: float, since: float) -> None:
        if id not in self._running:
            return
        if id not in self._waiting:
            if len(self._waiting) < _WAITERS:
                self.admission.release(id)
            self._waiting[id] = 0.0
            if self._stopping:
                self._running[id].cancel(kill=False)
        elif time.monotonic() - self._waiting[id] < 5:
            return
        self._waiting[id] = time.monotonic()
        node = self.frontier.nodes[id]
        self._emit(node, events.ACTION_WAITING, holder=holder, age_s=round(age, 1), since=round(since, 3))

    def _return(self, id: str, room: threading.Event) -> None:
        if id not in self._running or self._stopping:
            room.set()
            return
        self.admission.release(id)
        self._returning[id] = room
        node = self.frontier.nodes[id]
        self.admission.add(id, node.action.resources, _FIRST, node.order)

    def _ended(self, id: str, outcome: Outcome | BaseException, seconds: float) -> None:
        self.admission.release(id)
        self._running.pop(id, None)
        self._waiting.pop(id, None)
        node = self.frontier.nodes[id]
        if isinstance(outcome, BaseException):
            self._bug, self._stopping = self._bug or outcome, True
            return
        if outcome.work is not None:
            self._kept[id] = outcome.work
        match outcome:
            case Outcome(End.RAN, result=Result() as result):
                self._replaced |= outcome.replaced and bool(node.consumers)
                self.frontier.finish(id, result, ran=True)
                self._record(node, result)
                self._note(node, events.EXECUTED, seconds=seconds)
            case Outcome(End.SERVED, result=Result() as result):
                node.reason = Reason(Code.WAITED, {"holder": outcome.holder or "another build"})
                self.frontier.finish(id, result, ran=False)
                self._record(node, result)
                self._note(node, events.LOCAL, seconds=seconds)
            case Outcome(End.COMPARED, differences=differences):
                self._compared(id, node, differences, seconds)
            case Outcome(End.DIFFERS):
                error = restored_otherwise(
                    node.action, outcome.differences, self._consumers(id), kept=self.options.keep_old
                )
                self._fail(id, node, error, seconds, go_on=self.options.keep_old)
            case Outcome(End.VANISHED) if self._vanished.get(id, 0) < _VANISHED_TRIES:
                self._vanished[id] = self._vanished.get(id, 0) + 1
                self.frontier.lost(id)
            case Outcome(End.CANCELLED) if self._stopping:
                node.reason = Reason(Code.NOT_STARTED)
                self.frontier.fail(id)
                self._note(node, SKIPPED, seconds=seconds, status="cancelled")
            case _:
                error = outcome.error or EnvironmentProblem(f"`{id}` ended as {outcome.end.name.lower()}")
                self._fail(id, node, error, seconds, status=outcome.status, log_tail=outcome.log_tail)

    def _compared(self, id: str, node: Node, differences: tuple[str, ...], seconds: float) -> None:
        self._checked[id] = differences
        self.frontier.keep(id)
        error = reproduced_otherwise(node.action, differences) if differences else None
        if error is not None and node.action.outcome == EXACT:
            self._errors.append(error)
            self._stopping |= not self.options.keep_going
            self._note(node, FAILED, error=error, seconds=seconds)
            return
        if differences:
            self._warn(f"`{id}` is sampled, and this run differs from the chosen one: {', '.join(differences[:3])}")
        self._note(node, events.EXECUTED, seconds=seconds)

    def _fail(
        self, id: str, node: Node, error: MarinError, seconds: float, *, go_on: bool = False, **more: str
    ) -> None:
        self._errors.append(error)
        if node.mode is Mode.CHECK:
            self.frontier.keep(id)
        else:
            self.frontier.fail(id)
        self._note(node, FAILED, error=error, seconds=seconds, **more)
        if not (self.options.keep_going or go_on):
            self._stopping = True
            for waiting in list(self._waiting):
                self._running[waiting].cancel(kill=False)
            for room in self._returning.values():
                room.set()

    # What is known of it.

    def _consumers(self, id: str) -> tuple[str, ...]:
        """Who was made from the result of `id`: in this analysis, and by what other labels' histories say."""
        result = self.frontier.nodes[id].result
        if result is None:
            return ()
        above, found = {id}, []
        for other, action in self.analysis.actions.items():
            if not above.isdisjoint(action.producers()):
                above.add(other)
                made = self.lookup.by_fingerprint(action.fingerprint)
                if made is not None and result.key.hash in made.producer_keys:
                    found.append(other)
        return tuple(dict.fromkeys([*found, *self.ledger.consumers(result.key)]))

    def _record(self, node: Node, result: Result) -> None:
        try:
            self.ledger.record(node.action, result, node.also, filed=not node.borrowed)
        except MarinError as error:
            self._errors.append(error)

    def _again(self) -> Frontier:
        options = replace(self.options, again=frozenset(), check=False)
        frontier = new_frontier(self.analysis, self.roots, self.lookup, options)
        self._build(frontier)
        return frontier

    def _lost(self, frontier: Frontier) -> bool:
        """Keeps what was asked for from now on, and says whether some of it was deleted before that."""
        try:
            if not self.keep(self._outcomes) or self._stopping or self._errors or self.options.bytes == NONE:
                return False
        except MarinError as error:
            self._errors.append(error)
            return False
        return lost(wanted_actions(self.analysis, self.roots), frontier.nodes, self.lookup)

    def _link(self, frontier: Frontier) -> dict[Label, Mapping[str, Path]]:
        links: dict[Label, Mapping[str, Path]] = {}
        for root in self.roots if self.options.bytes != NONE else ():
            if outputs := there(self.analysis.targets[root], frontier.nodes, self.lookup):
                try:
                    links[root] = self.ledger.link(root, outputs)
                except MarinError as error:
                    self._errors.append(error)
        return links

    def _note(
        self,
        node: Node,
        source: str,
        *,
        error: MarinError | None = None,
        seconds: float = 0.0,
        status: str = "",
        log_tail: str = "",
    ) -> None:
        id = node.action.id
        self._outcomes[id] = outcome = ActionOutcome(
            node.action, source, node.reason, node.key, node.result, error, seconds, log_tail, self._kept.get(id)
        )
        self._emit(node, events.ACTION_FINISHED, **outcome.finished(status))

    def _emit(self, node: Node, event: str, **data: object) -> None:
        key = node.key.hex if node.key else None
        self.log.emit(event, label=str(node.action.label), action=node.action.id, key=key, **data)

    def _warn(self, message: str) -> None:
        self._warnings.append(message)
        self.log.emit(events.WARNING, message=message)

    def _warn_of_size(self, node: Node) -> None:
        resources = node.action.resources
        if not self.capacity.holds(resources):
            asks = f"{resources.cpu:g} CPUs and {resources.ram / 2**30:.1f} GiB"
            has = f"{self.capacity.cpu:g} and {self.capacity.ram / 2**30:.1f}"
            self._warn(f"`{node.action.id}` asks for {asks}, and this build may use {has}: it runs alone")
