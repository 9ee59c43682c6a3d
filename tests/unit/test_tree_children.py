"""The quick look into tree records: it accepts what Tree.parse accepts, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from marin_cas.digest import Digest
from marin_cas.errors import IntegrityError
from marin_cas.tree.children import children
from marin_cas.tree.entries import DirEntry, FileEntry, LinkEntry, Tree

digests = st.builds(Digest, st.binary(min_size=32, max_size=32), st.integers(0, 2**64 - 1))
names = st.text(min_size=1, max_size=30).filter(lambda n: n not in (".", "..") and "/" not in n and "\0" not in n)
entries = st.one_of(
    st.builds(FileEntry, names, digests, st.booleans()),
    st.builds(DirEntry, names, digests),
    st.builds(LinkEntry, names, st.just("a/b")),
)
trees = st.lists(entries, max_size=40, unique_by=lambda e: e.name).map(Tree.of)


def expected(record: bytes) -> list[tuple[bytes, int, bool]] | None:
    """By the general decoder; None where it refuses."""
    try:
        found = Tree.parse(record).entries
    except IntegrityError:
        return None
    return [(e.digest.hash, e.digest.size, isinstance(e, DirEntry)) for e in found if not isinstance(e, LinkEntry)]


def got(record: bytes) -> list[tuple[bytes, int, bool]] | None:
    try:
        return children(record)
    except IntegrityError:
        return None


@given(trees)
@example(Tree())
@example(Tree.of([FileEntry("ü" * 200, Digest.of(b""), True), DirEntry("z", Digest(b"1" * 32, 1 << 40))]))
def test_every_tree(tree: Tree) -> None:
    assert children(tree.record()) == expected(tree.record())


@given(trees, st.data())
def test_what_is_nearly_a_record(tree: Tree, data: st.DataObject) -> None:
    record = bytearray(tree.record())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(record) - 1)) if record else 0
        match data.draw(st.sampled_from(("change", "remove", "insert", "cut"))):
            case "change" if record:
                record[at] = data.draw(st.integers(0, 255))
            case "remove" if record:
                del record[at]
            case "insert":
                record.insert(at, data.draw(st.integers(0, 255)))
            case "cut":
                del record[at:]
    assert got(bytes(record)) == expected(bytes(record))


def test_long_spellings_are_refused() -> None:
    """A number written longer than it needs to be would give one tree two digests."""
    record = Tree.of([FileEntry("a", Digest(b"1" * 32, 5))]).record()
    at = record.index(b"1" * 32) + 32
    longer = record[:at] + b"\x18\x05" + record[at + 1 :]
    with pytest.raises(IntegrityError):
        children(longer)
    assert children(record) == [(b"1" * 32, 5, False)]
