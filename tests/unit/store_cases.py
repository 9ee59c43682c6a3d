"""Each implementation of Store and each wrapper, ready to be held against what the protocol promises."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from marin_cas.digest import Digest
from marin_cas.store.base import Store, Unavailable
from marin_cas.store.faulty import FaultyStore
from marin_cas.store.gate import Gate
from marin_cas.store.layered import LayeredStore
from marin_cas.store.local import LocalStore
from marin_cas.store.memory import MemoryStore
from marin_cas.store.read_only import ReadOnlyStore
from marin_cas.store.recording import RecordingStore
from marin_cas.store.retrying import RetryingStore
from marin_cas.store.temporary import Temporary
from marin_cas.store.verifying import VerifyingStore


@dataclass(frozen=True, slots=True)
class Case:
    """What is put into `into` is found in `store`, which is the same one where `writes`. `base` holds the bytes in the
    end. `deletes`: what is deleted from `into` is gone from `store`."""

    store: Store
    into: Store
    base: LocalStore | MemoryStore
    writes: bool = True
    deletes: bool = True

    def damage(self, digest: Digest, data: bytes) -> None:
        """Other bytes under the digest."""
        if isinstance(self.base, MemoryStore):
            self.base.blobs[digest] = data
        else:
            path = self.base.path(digest)
            assert path is not None
            path.chmod(0o644)
            path.write_bytes(data)
            path.chmod(0o444)


class Now:
    """Time that passes when somebody waits for it."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float, /) -> None:
        self.waits.append(seconds)
        self.time += seconds


def nowhere(message: str) -> None:
    """Takes warnings that a test does not look at."""


def unreliable(inner: Store, seed: int = 1) -> FaultyStore:
    """Cannot answer in about half of all calls."""
    random = Random(seed)

    def before(verb: str) -> None:
        if random.random() < 0.5:
            raise Unavailable(f"no answer to {verb}")

    return FaultyStore(inner, before)


def patient(inner: Store) -> RetryingStore:
    return RetryingStore(inner, budget_s=1e9, clock=Now(), random=Random(2))


def local(root: Path) -> LocalStore:
    return LocalStore(root / "cas")


def gated(root: Path) -> LocalStore:
    return LocalStore(root / "cas", gate=Gate(root / "gc.lock"))


def layered(top: Store, below: Store, root: Path) -> LayeredStore:
    return LayeredStore(
        top, {"none": MemoryStore(), "team": below}, temporary=Temporary(root / "tmp"), warn=nowhere, clock=Now()
    )


def over(wrap: Callable[[Store], Store], make: Callable[[Path], LocalStore], root: Path) -> Case:
    base = make(root)
    store = wrap(base)
    return Case(store, store, base)


def alone(make: Callable[[Path], LocalStore], root: Path) -> Case:
    return over(lambda base: base, make, root)


def in_memory(wrap: Callable[[Store], Store], root: Path) -> Case:
    base = MemoryStore()
    store = wrap(base)
    return Case(store, store, base)


def read_only(root: Path) -> Case:
    base = local(root)
    return Case(ReadOnlyStore(base), base, base, writes=False)


def top_of_layers(root: Path) -> Case:
    top = local(root)
    store = layered(top, MemoryStore(), root)
    return Case(store, store, top)


def below_in_layers(root: Path) -> Case:
    below = MemoryStore()
    return Case(layered(local(root), below, root), below, below, writes=False, deletes=False)


def files_below_in_layers(root: Path) -> Case:
    below = LocalStore(root / "below")
    return Case(layered(local(root), below, root), below, below, writes=False, deletes=False)


def everything(root: Path) -> Case:
    """As a bucket will be used: what fails is asked again, is checked, and lies behind a local store."""
    below = MemoryStore()
    remote = VerifyingStore(RecordingStore(patient(unreliable(below))))
    return Case(layered(local(root), ReadOnlyStore(remote), root), remote, below, writes=False, deletes=False)


CASES: dict[str, Callable[[Path], Case]] = {
    "local": functools.partial(alone, local),
    "local-with-a-gate": functools.partial(alone, gated),
    "memory": functools.partial(in_memory, lambda base: base),
    "verifying": functools.partial(over, VerifyingStore, local),
    "verifying-memory": functools.partial(in_memory, VerifyingStore),
    "read-only": read_only,
    "layered-top": top_of_layers,
    "layered-below": below_in_layers,
    "layered-files-below": files_below_in_layers,
    "retrying": functools.partial(over, lambda base: patient(unreliable(base)), local),
    "recording": functools.partial(over, RecordingStore, local),
    "faulty-that-never-fails": functools.partial(over, lambda base: FaultyStore(base, nowhere), local),
    "everything": everything,
}


# Several at once

BLOBS = [b"%d" % n * (1 + 5000 * n) for n in range(6)]


def work(case: Case, folder: Path, seed: int, rounds: int) -> None:
    """Everything at random; what is handed out must be right, and whether it is there nobody can know."""
    random = Random(seed)
    for n in range(rounds):
        data = random.choice(BLOBS)
        digest = Digest.of(data)
        match random.choice(["put", "move", "copy", "read", "path", "fetch", "contains", "delete"]):
            case "put":
                assert case.into.put(data) == digest
            case "move" | "copy" as how:
                source = folder / f"{seed}-{n}"
                source.write_bytes(data)
                got = case.into.put_file(source, move=how == "move", executable=random.random() < 0.5)
                assert got == digest and source.exists() == (how == "copy")
            case "read":
                assert case.store.read(digest) in (data, None)
            case "path":
                path = case.store.path(digest, executable=random.random() < 0.5)
                if path is not None:
                    try:
                        assert path.read_bytes() == data
                    except FileNotFoundError:
                        pass  # deleted meanwhile
            case "fetch":
                copy = folder / f"{seed}-{n}-copy"
                assert case.store.fetch(digest, copy) == copy.exists()
                assert not copy.exists() or copy.read_bytes() == data
            case "contains":
                assert case.store.contains(digest) in (True, False)
                assert case.store.missing([digest]) <= {digest}
            case _:
                case.into.delete(digest)


if __name__ == "__main__":
    name, folder, seed = sys.argv[1:]
    sys.stdin.read()  # until all have started
    work(CASES[name](Path(folder)), Path(folder), int(seed), 80)
