"""Which ready action may start now: those whose CPU and memory fit beside what runs.

The longest chain of consumers goes first, then the first declared. One that does not fit lets others pass a few
times, then nothing passes it: a large action is never starved by small ones. One larger than the machine runs alone.
"""

from __future__ import annotations

import heapq
import os
from dataclasses import dataclass, field

from marin_cas.action import Resources

_PASSES = 16


@dataclass(frozen=True, slots=True)
class Capacity:
    """`jobs` bounds how many run at once, whatever they need."""

    jobs: int
    cpu: float
    ram: int

    @classmethod
    def of_machine(cls, jobs: int | None = None, cpu: float | None = None, ram: int | None = None) -> Capacity:
        """What this process may use; asking for more jobs than cores is taken as asking for that many cores."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(
            jobs=jobs or cores,
            cpu=cpu if cpu is not None else float(jobs or cores),
            ram=ram if ram is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )

    def holds(self, resources: Resources) -> bool:
        return resources.cpu <= self.cpu and resources.ram <= self.ram


@dataclass(slots=True)
class Admission:
    """A queue of ids with what they need, and what the running ones hold."""

    capacity: Capacity
    _queue: list[tuple[int, int, str, Resources]] = field(default_factory=list)
    _holding: dict[str, Resources] = field(default_factory=dict)
    _passed: dict[str, int] = field(default_factory=dict)

    def add(self, id: str, resources: Resources, depth: int, order: int) -> None:
        heapq.heappush(self._queue, (-depth, order, id, resources))

    def next(self) -> str | None:
        """The id to start now; it holds its resources until `release`. None when nothing fits or waits."""
        if len(self._holding) >= self.capacity.jobs:
            return None
        passed: list[tuple[int, int, str, Resources]] = []
        chosen: str | None = None
        while self._queue and chosen is None:
            entry = heapq.heappop(self._queue)
            if self._fits(entry[3]):
                chosen = entry[2]
                self._holding[chosen] = entry[3]
                self._passed.pop(chosen, None)
                continue
            passed.append(entry)
            if self._passed.get(entry[2], 0) >= _PASSES or len(passed) > _PASSES:
                break
        for entry in passed:
            heapq.heappush(self._queue, entry)
            if chosen is not None:
                self._passed[entry[2]] = self._passed.get(entry[2], 0) + 1
        return chosen

    def release(self, id: str) -> None:
        self._holding.pop(id, None)

    def __len__(self) -> int:
        return len(self._queue)

    def _fits(self, resources: Resources) -> bool:
        if not self._holding:
            return True
        cpu = sum(r.cpu for r in self._holding.values()) + resources.cpu
        ram = sum(r.ram for r in self._holding.values()) + resources.ram
        return cpu <= self.capacity.cpu + 1e-9 and ram <= self.capacity.ram
