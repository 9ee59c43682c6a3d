"""The entry of a key as a state machine: two processes, crashes, silence, takeovers, zombies, and what people decide
(taint, untaint, equate, revoke), against a model of a few lines."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from marin_cas.cache.actions import ActionCache
from marin_cas.cache.heart import Heart
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease, LostLease
from marin_cas.digest import Digest
from marin_cas.errors import Interrupted
from marin_cas.result import Producer, Result
from marin_cas.store.process import Process
from marin_cas.store.temporary import Temporary

KEY, OTHER = Digest.of(b"a recipe"), Digest.of(b"another recipe")
CAUSES = st.sampled_from(["", "ab" * 32])
WHO = st.sampled_from([0, 1])


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        # Coarser than what is asked for, so that a minute of waiting is few steps.
        self.time += max(seconds, 5.0)


class Leases(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.clock = Clock()
        self.gone: set[Process] = set()
        self.pids = [0, 0]
        self.processes: list[tuple[ActionCache, Holder]] = [self.new(0), self.new(1)]
        self.leases: list[Lease | None] = [None, None]  # what each process believes to hold
        self.zombies: list[Lease] = []  # of processes that crashed: nothing of theirs may ever be published
        self.runs = 0
        # The model.
        self.holder: Lease | None = None
        self.attempts: list[Result] = []
        self.choice: Result | None = None  # what was chosen last, tainted or not
        self.before: Result | None = None  # the choice before it was equated
        self.equated = False
        self.taints: list[tuple[Result, str]] = []  # result and cause
        self.changed = False

    @property
    def chosen(self) -> Result | None:
        return None if any(tainted is self.choice for tainted, _ in self.taints) else self.choice

    def choose(self, choice: Result | None, *, equated: bool = False) -> None:
        was, was_equated = self.chosen, self.equated
        self.choice, self.equated = choice, equated
        self.settle(was, was_equated)

    def settle(self, was: Result | None, was_equated: bool) -> None:
        """What is served has moved: what was served is an attempt, unless it was made under another key."""
        now = self.chosen
        if was is now:
            return
        self.attempts = [attempt for attempt in self.attempts if attempt is not now]
        if was is not None and not was_equated:
            self.attempts.append(was)

    def new(self, who: int) -> tuple[ActionCache, Holder]:
        self.pids[who] += 1
        temporary = Temporary(self.root / "tmp")
        heart = Heart(temporary.folder, interval_s=0)
        actions = ActionCache(self.root / "ac", temporary, heart=heart, clock=self.clock, gone=self.gone.__contains__)
        return actions, Holder("ann", Process("box", "boot", "space", self.pids[who] * 2 + who, 7), 0.0)

    def result(self) -> Result:
        self.runs += 1
        return Result(KEY, b"f" * 32, "exact", {}, Producer("ann", "box"), 1.0, 2.0, note=str(self.runs))

    def acquire(self, who: int, patience: float, force: bool) -> None:
        actions, holder = self.processes[who]
        began = self.clock.time
        alive = self.holder is not None and all(self.holder is not zombie for zombie in self.zombies)
        try:
            got = actions.acquire(KEY, holder, force=force, cancelled=lambda: self.clock.time - began > patience)
        except Interrupted:
            assert alive and patience < 60
            assert self.chosen is None or force
            return
        if isinstance(got, Result):
            assert not force and got == self.chosen
            return
        assert force or self.chosen is None
        # A living holder is overtaken only after a silence of a minute.
        assert not alive or self.clock.time - began >= 60
        self.leases[who] = got
        self.holder = got

    @rule(who=WHO, patience=st.sampled_from([0.0, 30.0, 200.0]), force=st.booleans())
    def asks(self, who: int, patience: float, force: bool) -> None:
        if self.leases[who] is None:
            self.acquire(who, patience, force)

    @rule(who=WHO, replace=st.booleans())
    def publishes(self, who: int, replace: bool) -> None:
        lease = self.leases[who]
        if lease is None:
            return
        self.leases[who] = None
        result = self.result()
        if lease is not self.holder:
            try:
                lease.publish(result, replace=replace)
            except LostLease:
                return
            raise AssertionError("published without holding the lease")
        self.holder = None
        got = lease.publish(result, replace=replace)
        self.published(result, replace)
        assert got == self.chosen

    def published(self, result: Result, replace: bool) -> None:
        if self.chosen is not None and not replace:
            self.attempts.append(result)
            return
        self.changed |= self.chosen is not None
        self.choose(result)
        self.before = None

    @rule(who=WHO)
    def equates(self, who: int) -> None:
        lease = self.leases[who]
        if lease is None:
            return
        self.leases[who] = None
        result = self.result()
        try:
            done = lease.equate(result, OTHER, "the same", "ann")
        except LostLease:
            assert lease is not self.holder
            return
        assert lease is self.holder
        self.holder = None
        assert done == (self.chosen is None)
        if done:
            self.before = self.before if self.equated else self.choice
            self.choose(result, equated=True)

    @rule(who=WHO)
    def revokes(self, who: int) -> None:
        got = self.processes[who][0].revoke(KEY, "not the same", "ann")
        assert got == (self.choice if self.equated else None)
        if self.equated:
            self.changed = True
            self.choose(self.before)
            self.before = None

    @rule(who=WHO)
    def releases(self, who: int) -> None:
        lease = self.leases[who]
        if lease is not None:
            lease.release()
            if lease is self.holder:
                self.holder = None
            self.leases[who] = None

    @rule(who=WHO)
    def crashes(self, who: int) -> None:
        self.gone.add(self.processes[who][1].process)
        lease = self.leases[who]
        if lease is not None:
            self.zombies.append(lease)
            self.leases[who] = None
        self.processes[who] = self.new(who)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), replace=st.booleans())
    def a_zombie_publishes(self, data: st.DataObject, replace: bool) -> None:
        # Its process was believed dead (a wrong clock, a paused machine); it may still be first.
        zombie = data.draw(st.sampled_from(self.zombies))
        self.zombies.remove(zombie)
        result = self.result()
        try:
            zombie.publish(result, replace=replace)
        except LostLease:
            assert zombie is not self.holder
            return
        assert zombie is self.holder
        self.holder = None
        self.published(result, replace)

    @rule(who=WHO, cause=CAUSES)
    def is_tainted(self, who: int, cause: str) -> None:
        got = self.processes[who][0].taint(KEY, "bad", "ann", cause)
        if self.choice is None or any(t is self.choice and c == cause for t, c in self.taints):
            assert got is None
            return
        assert got == self.choice
        was = self.chosen
        self.taints.append((self.choice, cause))
        self.changed = True
        self.settle(was, self.equated)

    @rule(who=WHO, cause=CAUSES)
    def is_untainted(self, who: int, cause: str) -> None:
        assert self.processes[who][0].untaint(KEY, "good", "ann", cause) == any(c == cause for _, c in self.taints)
        was = self.chosen
        self.taints = [taint for taint in self.taints if taint[1] != cause]
        self.settle(was, self.equated)

    @rule(seconds=st.sampled_from([1.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.time += seconds

    @invariant()
    def all_see_the_model(self) -> None:
        for actions, _ in self.processes:
            standing = actions.standing(KEY)
            assert actions.result(KEY) == standing.chosen == self.chosen
            assert list(standing.attempts) == self.attempts
            assert (standing.choice.result if standing.choice else None) == self.choice
            assert (standing.equated is not None) == self.equated
            assert [(taint.run.result, taint.entry.cause) for taint in standing.taints] == self.taints
            assert (standing.lease.fence if standing.lease else None) == (self.holder.fence if self.holder else None)
            assert bool(actions.changed_keys()) == self.changed

    @invariant()
    def entries_are_without_gaps(self) -> None:
        folder = self.root / "ac" / KEY.hex[:2] / KEY.hex
        if folder.exists():
            numbers = sorted(int(name) for name in os.listdir(folder))
            assert numbers == list(range(1, len(numbers) + 1))

    def teardown(self) -> None:
        shutil.rmtree(self.root)


TestLeases = Leases.TestCase
