"""Every Store as a state machine against a dictionary."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from marin_cas.digest import Digest
from tests.unit.store_cases import CASES, Case

POOL = [b"", b"a", b"b" * 100, b"#!/bin/sh\n", bytes(70_000)]
DATA = st.sampled_from(POOL)
MODE = st.booleans()


class StoreMachine(RuleBasedStateMachine):
    """`make` is set by the class of each case."""

    name: str

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.case: Case = CASES[self.name](self.root)
        self.model: dict[Digest, bytes] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def file(self, data: bytes) -> Path:
        path = self.root / "source"
        path.write_bytes(data)
        return path

    @rule(data=DATA)
    def put(self, data: bytes) -> None:
        digest = self.case.into.put(data)
        self.model[digest] = data
        assert digest == Digest.of(data)

    @rule(data=DATA, move=st.booleans(), executable=MODE)
    def put_file(self, data: bytes, move: bool, executable: bool) -> None:
        digest = self.case.into.put_file(self.file(data), move=move, executable=executable)
        self.model[digest] = data
        assert digest == Digest.of(data)
        assert (self.root / "source").exists() is not move

    @rule(data=DATA)
    def read(self, data: bytes) -> None:
        digest = Digest.of(data)
        assert self.case.store.read(digest) == self.model.get(digest)

    @rule(data=DATA, executable=MODE)
    def path(self, data: bytes, executable: bool) -> None:
        digest = Digest.of(data)
        path = self.case.store.path(digest, executable)
        if path is not None:
            assert path.read_bytes() == self.model[digest]
            assert path.stat().st_mode & 0o777 == (0o555 if executable else 0o444)

    @rule(data=DATA)
    def fetch(self, data: bytes) -> None:
        digest, copy = Digest.of(data), self.root / "copy"
        assert self.case.store.fetch(digest, copy) is (digest in self.model)
        if digest in self.model:
            assert copy.read_bytes() == data
            copy.unlink()
        assert not copy.exists()

    @precondition(lambda self: self.case.deletes)
    @rule(data=DATA)
    def delete(self, data: bytes) -> None:
        self.case.into.delete(Digest.of(data))
        self.model.pop(Digest.of(data), None)

    @rule(data=DATA, wrong=st.sampled_from([b"", b"wrong"]))
    def damage_and_put(self, data: bytes, wrong: bytes) -> None:
        if Digest.of(data) in self.model and self.case.writes and data != wrong:
            self.case.damage(Digest.of(data), wrong)
            self.put_file(data, move=False, executable=False)

    @invariant()
    def the_same_are_there(self) -> None:
        every = [Digest.of(data) for data in POOL]
        assert [self.case.store.contains(digest) for digest in every] == [digest in self.model for digest in every]
        assert self.case.store.missing(every) == set(every) - set(self.model)


# One model for many stores: each gets a share of the examples.
_SHARE = settings(max_examples=12 * (settings().max_examples // 60))
for _name in CASES:
    _class = f"Store_{_name.replace('-', '_')}"
    globals()[f"Test{_class}"] = type(_class, (StoreMachine,), {"name": _name}).TestCase
    globals()[f"Test{_class}"].settings = _SHARE
