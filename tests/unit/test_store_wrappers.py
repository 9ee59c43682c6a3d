"""What each wrapper does beyond being a store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from marin_cas.digest import Digest
from marin_cas.disk import StrPath
from marin_cas.errors import EnvironmentProblem, IntegrityError, MarinError
from marin_cas.store.base import Store, Unavailable, wrong_blob
from marin_cas.store.faulty import FaultyStore
from marin_cas.store.layered import REST_S, LayeredStore
from marin_cas.store.local import LocalStore
from marin_cas.store.memory import MemoryStore
from marin_cas.store.read_only import ReadOnlyStore
from marin_cas.store.recording import Asked, RecordingStore
from marin_cas.store.retrying import RetryingStore
from marin_cas.store.temporary import Temporary
from marin_cas.store.verifying import VerifyingStore
from marin_cas.store.wrapper import Wrapper
from tests.unit.store_cases import Now

HERE = Digest.of(b"here")


class Lying(Wrapper):
    """Hands out other bytes, whatever it is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(MemoryStore())
        self.folder = folder

    def contains(self, digest: Digest) -> bool:
        return True

    def read(self, digest: Digest) -> bytes | None:
        return b"lies"

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        (self.folder / "theirs").write_bytes(b"lies")
        return self.folder / "theirs"

    def fetch(self, digest: Digest, path: StrPath) -> bool:
        Path(path).write_bytes(b"lies")
        return True


VERBS = ("contains", "missing", "read", "path", "fetch", "put", "put_file", "delete")


def each_verb(store: Store, folder: Path) -> dict[str, Callable[[], object]]:
    (folder / "file").write_bytes(b"file")
    return {
        "contains": lambda: store.contains(HERE),
        "missing": lambda: store.missing([HERE]),
        "read": lambda: store.read(HERE),
        "path": lambda: store.path(HERE),
        "fetch": lambda: store.fetch(HERE, folder / "copy"),
        "put": lambda: store.put(b"new"),
        "put_file": lambda: store.put_file(folder / "file", move=True),
        "delete": lambda: store.delete(HERE),
    }


# Verifying


@pytest.mark.parametrize("verb", ["read", "path", "fetch"])
def test_lies_are_found(tmp_path: Path, verb: str) -> None:
    with pytest.raises(IntegrityError, match=HERE.short):
        each_verb(VerifyingStore(Lying(tmp_path)), tmp_path)[verb]()
    assert not (tmp_path / "copy").exists()


def test_a_file_that_vanishes_before_it_is_hashed_is_absent(tmp_path: Path) -> None:
    class Vanishing(MemoryStore):
        def path(self, digest: Digest, executable: bool = False) -> Path | None:
            return tmp_path / "gone"

    assert VerifyingStore(Vanishing()).path(HERE) is None


# Read-only


def test_read_only_reads_and_refuses_writes(tmp_path: Path) -> None:
    inner = MemoryStore()
    inner.put(b"here")
    verbs = each_verb(ReadOnlyStore(inner, "shared store"), tmp_path)
    for verb in ("put", "put_file", "delete"):
        with pytest.raises(EnvironmentProblem, match="`shared store` is read-only"):
            verbs[verb]()
    assert (verbs["contains"](), verbs["missing"](), verbs["read"](), verbs["fetch"]()) == (True, set(), b"here", True)
    assert inner.blobs == {HERE: b"here"}
    assert (tmp_path / "file").exists()


# Layered


class Layers:
    """A local store over two in memory, with all that they were asked and what was said."""

    def __init__(self, root: Path) -> None:
        self.top = RecordingStore(LocalStore(root / "cas"))
        self.team, self.far = RecordingStore(MemoryStore()), RecordingStore(MemoryStore())
        self.warnings: list[str] = []
        self.now = Now()
        self.root = root
        self.store = self.over({"team": self.team, "far": self.far})

    def over(self, below: dict[str, Store], top: Store | None = None) -> LayeredStore:
        return LayeredStore(
            top or self.top,
            below,
            temporary=Temporary(self.root / "tmp"),
            warn=self.warnings.append,
            clock=self.now,
        )

    def left_over(self) -> list[str]:
        return os.listdir(self.root / "tmp") if (self.root / "tmp").exists() else []


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    return Layers(tmp_path)


@pytest.mark.parametrize("verb", ["read", "path", "fetch"])
def test_what_is_found_below_is_copied_up(layers: Layers, tmp_path: Path, verb: str) -> None:
    layers.far.put(b"here")
    layers.far.asked.clear()
    assert each_verb(layers.store, tmp_path)[verb]()
    assert layers.top.contains(HERE)
    assert [asked.verb for asked in layers.far.asked] == ["read" if verb == "read" else "fetch"]
    (tmp_path / "copy").unlink(missing_ok=True)
    for store in (layers.far, layers.team):
        store.asked.clear()
    assert each_verb(layers.store, tmp_path)[verb]()
    assert not layers.far.asked and not layers.team.asked
    assert not layers.left_over() and not layers.warnings


def test_the_nearest_that_has_it_is_asked(layers: Layers) -> None:
    layers.team.put(b"here")
    layers.far.put(b"here")
    layers.far.asked.clear()
    assert layers.store.read(HERE) == b"here"
    assert layers.store.contains(HERE)
    assert not layers.far.asked


def test_missing_asks_on_for_what_is_left(layers: Layers) -> None:
    near, team, far, gone = (Digest.of(name) for name in (b"near", b"team", b"far", b"gone"))
    for store, data in ((layers.top, b"near"), (layers.team, b"team"), (layers.far, b"far")):
        store.put(data)
    assert layers.store.missing([near, team, far, gone]) == {gone}
    assert set(layers.team.asked[-1].digests) == {team, far, gone}
    assert set(layers.far.asked[-1].digests) == {far, gone}
    assert not layers.top.missing([near]) and layers.top.missing([team, far]) == {team, far}


def test_writes_go_to_the_top(layers: Layers, tmp_path: Path) -> None:
    layers.store.put(b"here")
    (tmp_path / "file").write_bytes(b"file")
    layers.store.put_file(tmp_path / "file", move=True)
    assert not layers.team.asked and not layers.far.asked
    layers.far.put(b"here")
    layers.store.delete(HERE)
    assert not layers.top.contains(HERE)
    assert layers.store.contains(HERE)


@pytest.mark.parametrize("verb", ["read", "path", "fetch"])
def test_wrong_bytes_below_are_an_absence_and_a_warning(layers: Layers, tmp_path: Path, verb: str) -> None:
    layers.far.put(b"here")
    store = layers.over({"liar": Lying(tmp_path), "far": layers.far})
    assert each_verb(store, tmp_path)[verb]()
    assert layers.top.read(HERE) == b"here"
    assert len(layers.warnings) == 1
    assert "`liar`" in layers.warnings[0] and HERE.short in layers.warnings[0]
    assert not each_verb(layers.over({"liar": Lying(tmp_path)}, LocalStore(tmp_path / "new")), tmp_path)["read"]()
    assert not layers.left_over()


def test_a_store_below_that_cannot_answer_is_left_alone_for_a_while(layers: Layers, tmp_path: Path) -> None:
    layers.far.put(b"here")
    calls: list[str] = []
    down = True

    def before(verb: str) -> None:
        calls.append(verb)
        if down:
            raise Unavailable("the network is unreachable")

    store = layers.over({"team": FaultyStore(MemoryStore(), before), "far": layers.far})
    assert store.read(HERE) == b"here"
    for verb, ask in each_verb(store, tmp_path).items():
        ask()
        assert calls == ["read"], verb
    assert layers.warnings == ["going on without `team`: the network is unreachable"]
    layers.now.time += REST_S
    assert not store.contains(Digest.of(b"nowhere"))
    assert calls == ["read", "contains"]
    down = False
    assert not store.contains(Digest.of(b"nowhere"))
    assert calls == ["read", "contains"]
    layers.now.time += REST_S
    assert not store.contains(Digest.of(b"nowhere"))
    assert calls == ["read", "contains", "contains"]
    assert len(layers.warnings) == 1


@pytest.mark.parametrize("error", [EnvironmentProblem("the disk is full"), wrong_blob(HERE, "by test")])
def test_what_the_top_raises_is_raised(layers: Layers, tmp_path: Path, error: MarinError) -> None:
    def before(verb: str) -> None:
        raise error

    layers.far.put(b"here")
    for verb, ask in each_verb(layers.over({"far": layers.far}, FaultyStore(layers.top, before)), tmp_path).items():
        with pytest.raises(type(error)):
            ask()
            pytest.fail(verb)
    assert not layers.warnings


def test_a_full_disk_at_the_top_leaves_nothing_half_copied(layers: Layers) -> None:
    layers.far.put(b"here")

    def before(verb: str) -> None:
        if verb.startswith("put"):
            raise EnvironmentProblem("the disk is full")

    store = layers.over({"far": layers.far}, FaultyStore(layers.top, before))
    for ask in (store.read, store.path):
        with pytest.raises(EnvironmentProblem, match="full"):
            ask(HERE)
    assert not layers.left_over() and not layers.top.contains(HERE)


def test_a_blob_that_vanishes_between_two_looks_is_a_miss(layers: Layers, tmp_path: Path) -> None:
    class Vanishing(MemoryStore):
        def contains(self, digest: Digest) -> bool:
            return True

    below = layers.over({"team": Vanishing()})
    assert below.contains(HERE)
    at_top = layers.over({"far": layers.far}, Vanishing())
    for store in (below, at_top):
        assert store.read(HERE) is None
        assert store.path(HERE) is None
        assert store.fetch(HERE, tmp_path / "copy") is False
    assert not layers.warnings


# Retrying


def retrying(error: MarinError, times: int, now: Now, **options: float) -> tuple[RetryingStore, list[str]]:
    """Fails that many times before it answers, and the calls that reach it."""
    calls: list[str] = []
    inner = MemoryStore()
    inner.put(b"here")

    def before(verb: str) -> None:
        calls.append(verb)
        if len(calls) <= times:
            raise error

    return RetryingStore(FaultyStore(inner, before), clock=now, random=Random(7), **options), calls


@pytest.mark.parametrize("verb", VERBS)
def test_a_silent_store_is_asked_again(tmp_path: Path, verb: str) -> None:
    now = Now()
    store, calls = retrying(Unavailable("busy"), 3, now)
    each_verb(store, tmp_path)[verb]()
    assert calls == [verb] * 4
    assert len(now.waits) == 3


def test_waits_grow_and_are_jittered() -> None:
    now = Now()
    store, _ = retrying(Unavailable("busy"), 9, now, first_s=1.0, longest_s=16.0, budget_s=1000.0)
    assert store.read(HERE) == b"here"
    longest = [1, 2, 4, 8, 16, 16, 16, 16, 16]
    assert all(most / 2 <= wait <= most for wait, most in zip(now.waits, longest, strict=True))
    assert len({wait / most for wait, most in zip(now.waits, longest, strict=True)}) == 9


def test_the_budget_ends_it() -> None:
    now = Now()
    store, calls = retrying(Unavailable("busy"), 10_000, now, first_s=1.0, longest_s=4.0, budget_s=30.0)
    with pytest.raises(Unavailable, match="busy") as caught:
        store.read(HERE)
    assert 26.0 <= now.time <= 30.0
    assert caught.value.notes == (f"asked {len(calls)} times in {now.time:.1f} s",)
    store, calls = retrying(Unavailable("busy"), 10_000, now, budget_s=0.0)
    with pytest.raises(Unavailable):
        store.read(HERE)
    assert len(calls) == 1


@pytest.mark.parametrize("error", [wrong_blob(HERE, "by test"), EnvironmentProblem("the disk is full")])
def test_what_does_not_get_better_is_not_repeated(error: MarinError) -> None:
    now = Now()
    store, calls = retrying(error, 1, now)
    with pytest.raises(type(error)):
        store.read(HERE)
    assert len(calls) == 1 and not now.waits


def test_a_refusal_is_not_repeated() -> None:
    now = Now()
    store = RetryingStore(ReadOnlyStore(MemoryStore()), clock=now)
    with pytest.raises(EnvironmentProblem, match="read-only"):
        store.put(b"new")
    assert not now.waits


# Recording, and failing when told to


def test_what_was_asked_is_kept(tmp_path: Path) -> None:
    store = RecordingStore(MemoryStore())
    for ask in each_verb(store, tmp_path).values():
        ask()
    new, file = Digest.of(b"new"), Digest.of(b"file")
    given = {"put": new, "put_file": file}
    verbs = list(each_verb(store, tmp_path))
    assert store.asked == [Asked(verb, (given.get(verb, HERE),)) for verb in verbs]
    assert store.verbs() == dict.fromkeys(verbs, 1)


def test_each_verb_can_fail_and_then_does_nothing(tmp_path: Path) -> None:
    inner = MemoryStore()
    inner.put(b"here")
    told: list[str] = []

    def before(verb: str) -> None:
        told.append(verb)
        raise Unavailable(verb)

    verbs = each_verb(FaultyStore(inner, before), tmp_path)
    for verb, ask in verbs.items():
        with pytest.raises(Unavailable, match=verb):
            ask()
    assert told == list(verbs)
    assert inner.blobs == {HERE: b"here"}
    assert (tmp_path / "file").exists() and not (tmp_path / "copy").exists()
