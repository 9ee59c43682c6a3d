"""One cache folder and all that is in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from marin_cas.cache import durable
from marin_cas.cache.actions import ActionCache
from marin_cas.cache.epoch import Epoch
from marin_cas.cache.fingerprints import Fingerprints
from marin_cas.cache.format import open_format
from marin_cas.cache.heart import TTL_S
from marin_cas.cache.labels import Labels
from marin_cas.cache.links import Links
from marin_cas.cache.refs import Refs
from marin_cas.cache.roots import Roots
from marin_cas.cache.stats import StatCache
from marin_cas.cache.taints import Taints
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problems
from marin_cas.store.gate import Gate
from marin_cas.store.local import LocalStore
from marin_cas.store.temporary import Temporary


@dataclass(frozen=True, slots=True)
class Cache:
    """The parts of a cache: `store` in `cas/`, `actions` in `ac/`, `fingerprints` in `fp/`, `labels`, `refs`, `stats`
    in `state.db`, `links` in `out/` and `trees/`, `taints`; unfinished files in `tmp/`; `gate` (`gc.lock`) keeps who
    uses a blob and who deletes it apart, `epoch` tells of deletions, `roots` says what must be kept."""

    root: Path
    disk: Disk
    temporary: Temporary
    gate: Gate
    store: LocalStore
    actions: ActionCache
    fingerprints: Fingerprints
    labels: Labels
    refs: Refs
    stats: StatCache
    links: Links
    taints: Taints
    epoch: Epoch
    roots: Roots

    def work(self, key: Digest) -> Path:
        """The folder, made, in which attempts at a key have theirs."""
        return self._folder("work", key.hex)

    def scratch(self, key: Digest, fence: str) -> Path:
        """The folder, made, that an attempt may resume from if a later one takes over."""
        return self._folder("scratch", key.hex, fence)

    def earlier_scratch(self, key: Digest, fence: str) -> tuple[Path, ...]:
        """The scratch folders of earlier leases of the key, newest first, to be read only."""
        folder = self.root / "scratch" / key.hex
        return tuple(path for each in self.earlier_fences(key, fence) if (path := folder / each).is_dir())

    def earlier_fences(self, key: Digest, fence: str) -> tuple[str, ...]:
        """The fences of the leases of the key before that one, newest first."""
        fences = self.actions.standing(key).fences
        before = fences[: fences.index(fence)] if fence in fences else fences
        return tuple(reversed(before))

    def discard_scratch(self, key: Digest) -> None:
        """Removes all scratch of a key; for the holder of its lease, once its result is safe."""
        self.disk.remove_tree(self.root / "scratch" / key.hex)

    def sync(self) -> None:
        """Everything that was published so far survives a power cut. Once, at the end of a build."""
        durable.sync(self.root, self.disk, self.temporary)

    def close(self) -> None:
        """Writes what the stat cache learnt."""
        self.stats.close()

    def _folder(self, *parts: str) -> Path:
        path = self.root.joinpath(*parts)
        with disk_problems(path):
            self.disk.makedirs(path)
        return path


def open_cache(root: StrPath, disk: Disk = DISK, *, ttl_s: float = TTL_S) -> Cache:
    """The cache in that folder, made when absent. What killed processes left unfinished in it is removed. `ttl_s` is
    how long a holder of a lease that cannot be judged from here may be silent.

    Raises RequestError for a folder of other things, EnvironmentProblem for a cache of an unknown format.
    """
    root = Path(os.path.abspath(root))
    temporary = Temporary(root / "tmp", disk)
    open_format(root, disk, temporary)
    with disk_problems(root):
        temporary.prepare()
        temporary.sweep()
    gate = Gate(root / "gc.lock")
    store = LocalStore(root / "cas", disk, temporary, gate)
    actions = ActionCache(root / "ac", temporary, disk, ttl_s=ttl_s)
    durable.recheck(root, store, gate, actions, disk, temporary)
    return Cache(
        root,
        disk,
        temporary,
        gate,
        store,
        actions,
        Fingerprints(root / "fp", actions, temporary, disk),
        Labels(root / "labels", disk),
        Refs(root / "refs", temporary, disk),
        StatCache(root / "state.db"),
        Links(root / "out", root / "trees", store, temporary, disk),
        Taints(root / "taints", temporary, disk),
        Epoch(root / "epoch", gate, temporary, disk),
        Roots(root / "roots", temporary, disk),
    )
