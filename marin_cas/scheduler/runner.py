"""Runs a task on an executor: sources into the store, the key's lease, the attempt, and what to publish of it.

The lease is taken before anything is looked at, so a key is never run twice at once, here or in another process.
What a finished run may change is decided here: a first run publishes, others only under `--again` or `--accept-new`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from marin_cas.action import Action
from marin_cas.cache.cache import Cache
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease
from marin_cas.errors import Interrupted, MarinError
from marin_cas.executors.base import Executor
from marin_cas.result import Output, Result
from marin_cas.scheduler import events
from marin_cas.scheduler.differing import differing
from marin_cas.scheduler.local import consumers, reads
from marin_cas.scheduler.lookup import Lookup, wanted_outputs
from marin_cas.scheduler.node import Mode
from marin_cas.scheduler.suspicion import Guard
from marin_cas.scheduler.task import Control, End, Outcome, Task
from marin_cas.scheduler.watched import Watched, sources_of
from marin_cas.store.base import MissingBlob
from marin_cas.tree.sources import put_source
from marin_cas.worker.attempt import Attempt, Progress, Started, Status
from marin_cas.worker.request import Request

_LEASES = 3  # a lease that is lost again and again means two clocks or disks that disagree


class LocalRunner:
    """`root` is the workspace. `pass_env` are names of environment variables that every tool may see; `machine_env`
    and the folders `writable` are this machine's own, for heavy tools (a compilation cache)."""

    def __init__(
        self,
        root: Path,
        cache: Cache,
        lookup: Lookup,
        executor: Executor,
        *,
        pass_env: tuple[str, ...] = (),
        machine_env: Mapping[str, str] | None = None,
        writable: tuple[str, ...] = (),
    ) -> None:
        self.root, self.cache, self.lookup, self.executor = root, cache, lookup, executor
        self.pass_env, self.machine_env, self.writable = pass_env, dict(machine_env or {}), writable
        self.holder = Holder.here()

    def run(self, task: Task, control: Control) -> Outcome:
        if (problem := self.executor.check(task.action.resources)) is not None:
            return Outcome(End.FAILED, error=problem)
        outcome = Outcome(End.CANCELLED)
        for _ in range(_LEASES):
            outcome = self._try(task, control)
            if outcome.status != Status.LOST_LEASE or control.cancelled():
                break
            control.emit(events.WARNING, message=str(outcome.error))
        return outcome

    def _try(self, task: Task, control: Control, *, instead: bool = False) -> Outcome:
        holders: list[Holder] = []

        def on_wait(holder: Holder, age: float) -> None:
            holders[:] = [holder]
            control.waiting(str(holder), age, holder.since)

        try:
            got = self.cache.actions.acquire(
                task.key,
                self.holder,
                on_wait=on_wait,
                cancelled=control.cancelled,
                force=instead or task.mode is not Mode.BUILD,
            )
        except Interrupted:
            return Outcome(End.CANCELLED, status=Status.CANCELLED)
        holder = str(holders[0]) if holders else ""
        if isinstance(got, Result):
            if instead or self.lookup.taint(task.key) is None:
                return Outcome(End.SERVED, got, holder=holder)
            # It was equated with what is tainted by now, or holds it: another is to stand in its place.
            return self._try(task, control, instead=True)
        with got as lease:
            if instead and (other := self.lookup.by_key(task.key)) is not None:
                return Outcome(End.SERVED, other, holder=holder)
            if holders and task.mode is Mode.RESTORE and (restored := self._restored(task)) is not None:
                return Outcome(End.SERVED, restored, holder=holder)
            control.admitted()
            if control.cancelled():
                return Outcome(End.CANCELLED, status=Status.CANCELLED)
            return self._attempt(task, control, lease, instead)

    def _restored(self, task: Task) -> Result | None:
        """The result, when whoever held the lease before us brought its bytes back."""
        result = self.lookup.by_key(task.key)
        if result is None or self.lookup.missing(result, wanted_outputs(task.action)) is not None:
            return None
        return result

    def _attempt(self, task: Task, control: Control, lease: Lease, instead: bool) -> Outcome:
        action, watched = task.action, Watched.now(self.root, task.action)
        publication = _Publication(task, lease, self.cache, instead)
        try:
            for source in sources_of(action):
                put_source(self.cache.store, self.root, source, self.cache.stats)
            publication.check()
        except MarinError as error:
            return Outcome(End.FAILED, error=error, status=Status.FAILED)
        request = Request.of(
            action,
            task.key,
            lease.fence,
            record=task.recipe.record(),
            pass_env=self.pass_env,
            # A light tool compiles nothing, and a user's function has no business in a shared folder.
            machine_env=self.machine_env if action.heavy else {},
            writable=self.writable if action.heavy else (),
            keep_work=task.keep_work,
            fresh=task.mode in (Mode.AGAIN, Mode.CHECK),
        )
        job = self.executor.submit(
            request, lease, _listener(action, control), recheck=watched.recheck, publish=publication.publish
        )
        control.attach(lambda kill: job.cancel(kill=kill))
        attempt = job.wait()
        if attempt is None:
            raise RuntimeError("a job without a time limit ended without an end")
        for warning in attempt.warnings:
            control.emit(events.WARNING, message=warning)
        return publication.outcome(attempt)


class _Publication:
    """What of a run is published, by what the run was for. `publish` is called once, by the attempt. `instead` of
    what is chosen, which is not to be served."""

    def __init__(self, task: Task, lease: Lease, cache: Cache, instead: bool) -> None:
        self.task, self.lease, self.cache, self.instead = task, lease, cache, instead
        self.guard = Guard(cache, task.action, task.recipe)
        self.differences: tuple[str, ...] = ()
        self.replaced = False

    def check(self, made: Result | None = None) -> None:
        """Raises BuildError for a run that reads or made what is tainted."""
        if (found := self.guard.check(made)) is not None:
            raise found.error

    def publish(self, made: Result) -> Result:
        self.check(made)
        chosen = self._publish(made)
        # Whoever tainted a digest meanwhile may have looked for results that hold it before this one was there.
        if (found := self.guard.check(chosen)) is not None:
            self.cache.actions.taint(self.task.key, found.taint.reason, found.taint.who, found.hash.hex())
            raise found.error
        return chosen

    def _publish(self, made: Result) -> Result:
        # Not part of the request: in a chain of thousands, writing them down for each tool would cost more than it.
        made = replace(made, producer_keys=self.task.producer_keys)
        mode = self.task.mode
        chosen = None if mode is Mode.BUILD else self.cache.actions.result(self.task.key)
        if chosen is None:
            return self.lease.publish(made, replace=self.instead)
        opaque = {name for name, spec in self.task.action.outputs.items() if spec.opaque}
        moved = [chosen.outputs[name] for name in opaque if chosen.outputs[name] != made.outputs[name]]
        if _same(chosen.outputs, made.outputs, opaque):
            if mode is not Mode.RESTORE or not moved:
                if mode is Mode.AGAIN:
                    self.lease.record_attempt(made)
                self.lease.release()
                return chosen
            if not self._anyone_read(moved):
                # What can be compared is as it was, and nobody's key holds the rest: the new bytes stand for the old.
                return self.lease.publish(made, replace=True)
            opaque = set()
        self.differences = differing(self.cache.store, chosen.outputs, made.outputs, opaque)
        if mode is Mode.AGAIN or (mode is Mode.RESTORE and self.task.replace):
            self.replaced = True
            return self.lease.publish(made, replace=True)
        self.lease.record_attempt(made)
        self.lease.release()
        return chosen

    def _anyone_read(self, outputs: Collection[Output]) -> bool:
        made_from = [key for _, key in consumers(self.cache, self.task.key)]
        return any(reads(self.cache, key, output.digest) for key in made_from for output in outputs)

    def outcome(self, attempt: Attempt) -> Outcome:
        tail = "\n".join(attempt.log_tail)
        if attempt.status == Status.SUCCEEDED:
            end = End.RAN
            if self.task.mode is Mode.CHECK:
                end = End.COMPARED
            elif self.differences and not self.replaced:
                end = End.DIFFERS
            return Outcome(
                end, attempt.result, None, self.differences, self.replaced, status=attempt.status, work=attempt.work
            )
        end = End.FAILED
        if isinstance(attempt.error, MissingBlob):
            end = End.VANISHED
        elif attempt.status == Status.CANCELLED:
            end = End.CANCELLED
        return Outcome(end, error=attempt.error, log_tail=tail, status=attempt.status, work=attempt.work)


def _same(chosen: Mapping[str, Output], made: Mapping[str, Output], ignored: Collection[str]) -> bool:
    def compared(outputs: Mapping[str, Output]) -> dict[str, Output]:
        return {name: output for name, output in outputs.items() if not output.reporting and name not in ignored}

    return compared(chosen) == compared(made)


def _listener(action: Action, control: Control):
    def listen(said: Started | Progress) -> None:
        if isinstance(said, Started):
            control.emit(events.LOG, path=str(said.log))
        else:
            control.emit(events.PROGRESS, done=said.done, total=said.total, unit=said.unit, fields=said.fields)

    return listen
