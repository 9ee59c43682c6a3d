"""Tree records: one encoding, held against cbor2, and nothing else is let in."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.digest import Digest
from marin_cas.encoding import Value, encode_record
from marin_cas.errors import IntegrityError
from marin_cas.tree.entries import TREE_HEADER, DirEntry, FileEntry, LinkEntry, Tree
from marin_cas.tree.nest import Leaf, nest

D = Digest.of(b"hello")
ROW: list[Value] = ["a", "f", D.to_record(), False]

short = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=12)
# Lengths are written in one byte, two or three.
names = st.one_of(
    short, st.builds(lambda text, length: (text * length)[:length], short, st.sampled_from([30, 300]))
).filter(lambda name: name not in (".", ".."))
digests = st.builds(Digest, st.binary(min_size=32, max_size=32), st.integers(0, 1 << 62))
targets = st.lists(names, min_size=1, max_size=3).map("/".join)
entries = st.one_of(
    st.builds(FileEntry, names, digests, st.booleans()),
    st.builds(DirEntry, names, digests),
    st.builds(LinkEntry, names, targets),
)
trees = st.lists(entries, unique_by=lambda entry: entry.name, max_size=8).map(Tree.of)


def test_golden_record() -> None:
    tree = Tree.of([LinkEntry("z", "../b"), FileEntry("run", D, True), DirEntry("dir", Digest.of(b""))])
    assert tree.record().startswith(b"marin-cas tree 1\n\x83\x83")
    assert tree.digest().hex == "27d6c39d98010fcd428240fedcdd24e07edf382112c615be107fde0b2aed8177"


@given(trees)
def test_parse_is_the_inverse(tree: Tree) -> None:
    assert Tree.parse(tree.record(), depth=0) == tree


@given(trees)
def test_the_oracle_agrees(tree: Tree) -> None:
    rows = cbor2.loads(tree.record().removeprefix(b"marin-cas tree 1\n"))
    assert [row[0] for row in rows] == [entry.name for entry in tree.entries]
    encoded = [name.encode() for name in (row[0] for row in rows)]
    assert encoded == sorted(encoded)
    assert cbor2.dumps(rows, canonical=True) == tree.record().removeprefix(b"marin-cas tree 1\n")


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1])
def test_every_width_of_a_size_and_of_a_count(size: int) -> None:
    count = size % 70_000
    tree = Tree.of(
        [FileEntry("a", Digest(D.hash, size)), *(LinkEntry(f"b{n}", "a") for n in range(count if count < 300 else 1))]
    )
    rows = [[e.name, "f", e.digest.to_record(), False] if e.name == "a" else [e.name, "l", "a"] for e in tree.entries]  # type: ignore[union-attr]
    assert tree.record() == encode_record(TREE_HEADER, rows)
    assert Tree.parse(tree.record()) == tree


@given(trees, st.randoms())
def test_order_of_entries_does_not_matter(tree: Tree, random: object) -> None:
    shuffled = list(tree.entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Tree.of(shuffled).record() == tree.record()


@given(trees, st.data())
def test_a_changed_record_is_refused_or_another_tree(tree: Tree, data: st.DataObject) -> None:
    record = bytearray(tree.record())
    at = data.draw(st.integers(0, len(record) - 1))
    record[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        other = Tree.parse(bytes(record), depth=0)
    except IntegrityError:
        return
    assert other != tree
    assert other.record() == bytes(record)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({"a": 1}, "not a list"),
        ([1], "not an entry"),
        ([["a"]], "not an entry"),
        ([["a", "x", D.to_record()]], "not an entry"),
        ([["a", "f", D.to_record()]], "not an entry"),
        ([["a", "f", D.to_record(), 0]], "not an entry"),
        ([["a", "f", D.to_record(), False, 1]], "not an entry"),
        ([["a", "f", [b"short", 1], False]], "not a digest field"),
        ([["a", "f", [D.hash, -1], False]], "not a digest field"),
        ([["a", "f", [D.hash, True], False]], "not a digest field"),
        ([["a", "d", D.to_record(), False]], "not an entry"),
        ([[b"a", "d", D.to_record()]], "not an entry"),
        ([["", "d", D.to_record()]], "no name"),
        ([[".", "d", D.to_record()]], "no name"),
        ([["..", "d", D.to_record()]], "no name"),
        ([["a/b", "d", D.to_record()]], "slash"),
        ([["a\0", "d", D.to_record()]], "NUL"),
        ([["b", "l", "x"], ["a", "l", "x"]], "out of order"),
        ([["a", "l", "x"], ["a", "l", "x"]], "twice"),
        ([["a", "l", ""]], "link to nothing"),
        ([["a", "l", "x\0"]], "link to nothing"),
        ([["a", "l", "/etc/passwd"]], "absolute"),
        ([["a", "l", "../x"]], "out of the tree"),
        ([["a", "l", "./../x"]], "out of the tree"),
        ([["a", "l", "b/../../x"]], "up after going down"),
        ([["a", "l", b"x"]], "not an entry"),
    ],
)
def test_hostile_records(rows: Value, why: str) -> None:
    with pytest.raises(IntegrityError, match=why):
        Tree.parse(encode_record(TREE_HEADER, rows), depth=0)


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"marin-cas tree 2\n\x80",
        b"marin-cas tree 1\n",
        b"marin-cas tree 1\n\x80\x00",
        b"marin-cas tree 1\n\x98\x00",
        b"marin-cas tree 1\n\x9f\xff",
        b"marin-cas recipe 1\n\x80",
        b"marin-cas tree 1\n\x9a\xff\xff\xff\xff",
    ],
)
def test_other_records(record: bytes) -> None:
    with pytest.raises(IntegrityError, match="not a tree record"):
        Tree.parse(record)


def test_links_are_held_against_their_depth() -> None:
    record = Tree.of([LinkEntry("a", "../../x")]).record()
    assert Tree.parse(record) == Tree.parse(record, depth=2)
    with pytest.raises(IntegrityError, match="out of the tree"):
        Tree.parse(record, depth=1)


def test_framing_keeps_things_apart() -> None:
    # A file with the bytes of a record is another thing than the tree, and names are not run together.
    assert Tree.of([LinkEntry("ab", "c")]).record() != Tree.of([LinkEntry("a", "bc")]).record()
    assert nest({"a/b": Leaf(D)}).digest != nest({"a": Leaf(D)}).digest != nest({"ab": Leaf(D)}).digest


def test_nest_shares_equal_folders() -> None:
    nested = nest({"a/x": Leaf(D), "b/x": Leaf(D), "c/d/x": Leaf(D)})
    assert len(set(nested.records)) == 3
    root = Tree.parse(nested.records[-1], depth=0)
    assert nested.digest == root.digest()
    by_name = {entry.name: entry for entry in root.entries}
    assert [*by_name] == ["a", "b", "c"]
    assert by_name["a"].digest == by_name["b"].digest  # type: ignore[union-attr]


def test_nest_of_nothing_is_the_empty_tree() -> None:
    assert nest({}).digest == Tree().digest()


@pytest.mark.parametrize(
    "paths", [["a", "a/b"], ["a/b", "a"], ["a//b"], ["/a"], ["a/"], ["../a"], ["a/./b"], [""], ["a/b/c", "a/b"]]
)
def test_nest_refuses(paths: list[str]) -> None:
    with pytest.raises(ValueError, match="`"):
        nest({path: Leaf(D) for path in paths})


def test_nest_is_not_recursive() -> None:
    assert len(nest({"/".join(["d"] * 5000): Leaf(D)}).records) == 5000
