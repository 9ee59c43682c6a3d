"""The right to build a key, and the error for having lost it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from marin_cas.digest import Digest
from marin_cas.errors import EnvironmentProblem
from marin_cas.result import Result

if TYPE_CHECKING:
    from marin_cas.cache.actions import ActionCache


class LostLease(EnvironmentProblem):
    """Another process took over the key: nothing of this run may be published under it."""

    def __init__(self, key: Digest, by: str = "") -> None:
        super().__init__(
            f"the lease of `{key.short}` was taken over{by and f' by {by}'}; this run's result was not published",
            hint="build again: what the other process publishes will be used",
        )
        self.key = key


class Lease:
    """Held from `acquire` until `publish` or `release`; as a context manager it releases what was not published.

    `lost` turns true at a heartbeat after another process took over; `held()` looks now. Both are early warnings:
    the check that counts is made by `publish` itself, which creates the next entry or fails.
    """

    __slots__ = ("_actions", "fence", "key", "lost", "open")

    def __init__(self, actions: ActionCache, key: Digest, fence: str) -> None:
        self._actions = actions
        self.key = key
        self.fence = fence
        self.lost = False
        self.open = False  # until its entry is there: a heartbeat before that must not take it for lost

    def held(self) -> bool:
        self.lost = self.lost or (self.open and not self._actions.holds(self.key, self.fence))
        return self.open and not self.lost

    def publish(self, result: Result, *, replace: bool = False) -> Result:
        """Makes `result` the chosen realisation and ends the lease; the chosen one is returned.

        When another was chosen already it stays so, and this one is kept as an attempt, unless `replace`. The blobs,
        records and recipe that the result names are in the store before this is called. Raises LostLease.
        """
        try:
            chosen = self._actions.publish(self.key, self.fence, result, replacing=replace)
        except LostLease:
            self.lost = True
            self._ended()
            raise
        self._ended()
        return chosen

    def record_attempt(self, result: Result) -> None:
        """Keeps `result` as another run of the key and goes on holding the lease. Raises LostLease."""
        self._actions.record_attempt(self.key, self.fence, result)

    def equate(self, result: Result, source: Digest, reason: str, who: str) -> bool:
        """Makes `result`, which was made under the key `source`, the chosen one, and ends the lease. False, and
        nothing is chosen, when the key has come to a result of its own. Raises LostLease."""
        try:
            return self._actions.equate(self.key, self.fence, result, source, reason, who)
        except LostLease:
            self.lost = True
            raise
        finally:
            self._ended()

    def release(self) -> None:
        """Ends the lease without a choice. Does nothing when it has ended or was lost."""
        if self.open:
            self._ended()
            self._actions.release(self.key, self.fence)

    def _ended(self) -> None:
        self.open = False
        self._actions.heart.stop(self.fence)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
