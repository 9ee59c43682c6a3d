"""A cache with results of a known shape, cost and age, for tests of what deletes from it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from marin_cas.cache.cache import Cache
from marin_cas.cache.collect import Collected, collect
from marin_cas.cache.gc import Plan, Wanted, plan
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease
from marin_cas.digest import Digest
from marin_cas.recipe import FILE, TREE, Input, Recipe
from marin_cas.result import Cost, Output, Producer, Result
from marin_cas.tree.ingest import ingest
from marin_cas.tree.walk import blobs

DAY = 86400.0
NOTHING_IS_YOUNG = Wanted(grace_s=0.0)


@contextmanager
def folder() -> Iterator[Path]:
    """In memory where that can be: each collection ends with a sync."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


class Farm:
    """Makes results in a cache. `made` has them by name."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.made: dict[str, Result] = {}

    def blob(self, files: Mapping[str, str] | str) -> tuple[str, Digest]:
        """A file or, from paths and texts, a tree."""
        if isinstance(files, str):
            return FILE, self.cache.store.put(files.encode())
        folder = self.cache.root.parent / "ingested"
        folder.mkdir()
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        found = ingest(self.cache.store, folder, move=True).digest
        shutil.rmtree(folder)
        return TREE, found

    def recipe(self, name: str, of: Sequence[str] = (), source: str | None = None) -> Recipe:
        inputs = {
            f"{below}.{output}": Input(made.kind, made.digest)
            for below in of
            for output, made in self.made[below].outputs.items()
        }
        if source is not None:
            inputs["source"] = Input(*self.blob(source))
        return Recipe("tool", 1, {"name": name}, inputs, {"out": TREE})

    def lease(self, key: Digest, *, force: bool = False) -> Lease:
        got = self.cache.actions.acquire(key, Holder.here(), force=force)
        assert isinstance(got, Lease)
        return got

    def result(
        self,
        name: str,
        files: Mapping[str, str] | str,
        *,
        of: Sequence[str] = (),
        source: str | None = None,
        wall_s: float = 1.0,
        resources: Mapping[str, object] | None = None,
        age_s: float = 0.0,
        log: str | None = None,
        report: str | None = None,
        again: bool = False,
        attempt: bool = False,
    ) -> Result:
        """A result that was last used `age_s` ago. `again` replaces the chosen one of this name, `attempt` does not."""
        recipe = self.recipe(name, of, source)
        key = self.cache.store.put(recipe.record())
        outputs = {"out": Output(*self.blob(files))}
        if report is not None:
            outputs["report"] = Output(*self.blob(report), reporting=True)
        below = {hash for each in of for hash in (self.made[each].key.hash, *self.made[each].producer_keys)}
        result = Result(
            key,
            Digest.of(f"fingerprint of {name}".encode()).hash,
            "exact",
            outputs,
            Producer("ann", "box"),
            1.0,
            2.0,
            Cost(wall_s, resources=dict(resources or {})),  # type: ignore[arg-type]
            None if log is None else self.cache.store.put(log.encode()),
            tuple(sorted(below)),
            f"//exp:{name}",
        )
        lease = self.lease(key, force=again or attempt)
        if attempt:
            lease.record_attempt(result)
            lease.release()
        else:
            lease.publish(result, replace=again)
            self.made[name] = result
        self.cache.fingerprints.put(result.fingerprint, key)
        self.age(result, age_s)
        return result

    def age(self, result: Result, seconds: float) -> None:
        """All entries of its key are that old. The time of a use of a blob cannot be set back."""
        folder = self.cache.root / "ac" / result.key.hex[:2] / result.key.hex
        then = time.time() - seconds
        for entry in folder.iterdir():
            os.utime(entry, (then, then))

    def root(self, *names: str, workspace: str = "/w") -> None:
        for name in names:
            self.cache.roots.register(workspace, f"//exp:{name}", [self.made[name].key])

    def whole(self, name: str) -> bool:
        return all(
            self.cache.store.contains(blob)
            for output in self.made[name].outputs.values()
            if not output.reporting
            for blob in self.blobs_of(output)
        )

    def blobs_of(self, output: Output) -> list[Digest]:
        try:
            return list(blobs(self.cache.store, output.kind, output.digest))
        except Exception:
            return [output.digest]

    def gc(self, wanted: Wanted = NOTHING_IS_YOUNG) -> tuple[Plan, Collected]:
        made = plan(self.cache, wanted)
        return made, collect(self.cache, made)


def names(made: Plan) -> list[str]:
    """The targets whose bytes go, in order."""
    return [item.holding.label.removeprefix("//exp:") for item in made.items if item.holding is not None]


def sized(max_size: int, **more: object) -> Wanted:
    return replace(NOTHING_IS_YOUNG, max_size=max_size, **more)  # type: ignore[arg-type]


def disk_bytes(root: Path) -> int:
    """The bytes of all blobs and copies, each inode once."""
    seen: dict[int, int] = {}
    for room in ("cas", "trees", "work", "scratch"):
        for folder, _, files in os.walk(root / room):
            for name in files:
                found = os.lstat(f"{folder}/{name}")
                seen[found.st_ino] = found.st_size
    return sum(seen.values())
