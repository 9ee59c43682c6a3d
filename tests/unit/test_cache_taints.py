"""Tainted digests: records, looking into trees, what a taint reaches; equates; fingerprints that know what is below."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.entry import Entry
from marin_cas.cache.equating import Place, equate
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease
from marin_cas.cache.tainting import READ, taint_digest, untaint_digest
from marin_cas.cache.taints import Holding
from marin_cas.digest import Digest
from marin_cas.errors import BuildError, RequestError
from marin_cas.recipe import FILE, TREE, Input, Recipe
from marin_cas.result import Output, Producer, Result
from marin_cas.tree.entries import DirEntry, FileEntry, LinkEntry, Tree

WHY = ("holds personal data", "ann@box")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return open_cache(tmp_path / "cache")


def tree(cache: Cache, *entries: FileEntry | DirEntry | LinkEntry) -> Digest:
    return cache.store.put(Tree(tuple(entries)).record())


def folder(cache: Cache, data: bytes) -> tuple[Digest, Digest, Digest]:
    """The file, the folder that holds it, and the tree above."""
    file = cache.store.put(data)
    inner = tree(cache, FileEntry("a.txt", file), LinkEntry("link", "a.txt"))
    return file, inner, tree(cache, DirEntry("deep", inner), FileEntry("other", cache.store.put(b"other")))


def publish(cache: Cache, name: str, *, reads: Digest | None = None, made: Digest | None = None) -> Result:
    recipe = Recipe("tool", 1, {"name": name}, {} if reads is None else {"in": Input(TREE, reads)}, {"data": TREE})
    lease = cache.actions.acquire(recipe.key(), Holder.here())
    assert isinstance(lease, Lease)
    cache.store.put(recipe.record())
    outputs = {"data": Output(TREE, made or folder(cache, name.encode())[2])}
    return lease.publish(
        Result(recipe.key(), b"f" * 32, "exact", outputs, Producer("ann", "box"), 1.0, 2.0, label=name)
    )


def test_without_taints_there_is_no_folder(cache: Cache) -> None:
    assert cache.taints.current() == {}
    assert not (cache.root / "taints").exists()


def test_a_taint_is_taken_back_and_given_again(cache: Cache) -> None:
    hash = Digest.of(b"bad").hash
    assert not cache.taints.lift(hash, *WHY)
    assert cache.taints.add(hash, *WHY)
    assert not cache.taints.add(hash, "again", "bob@box")
    other = open_cache(cache.root)
    assert {h: (e.reason, e.who) for h, e in other.taints.current().items()} == {hash: WHY}
    assert other.taints.lift(hash, "not at all", "ann@box")
    assert cache.taints.current() == {}
    assert cache.taints.add(hash, *WHY)
    assert [(entry.n, entry.state) for entry in cache.taints.history(hash)] == [
        (1, "tainted"),
        (2, "untainted"),
        (3, "tainted"),
    ]


def test_a_damaged_taint_stands(cache: Cache) -> None:
    hash = Digest.of(b"bad").hash
    cache.taints.add(hash, *WHY)
    (cache.root / "taints" / hash.hex() / "1").write_bytes(b"")
    [entry] = open_cache(cache.root).taints.current().values()
    assert "damaged" in entry.reason
    assert cache.taints.lift(hash, *WHY) and open_cache(cache.root).taints.current() == {}


def test_holding_finds_files_and_folders_at_any_depth(cache: Cache) -> None:
    file, inner, top = folder(cache, b"bad")
    for wanted, path in ((file, "deep/a.txt"), (inner, "deep"), (top, "")):
        holding = Holding(cache.store, {wanted.hash})
        assert holding.find(TREE, top) == (wanted.hash, path)
        assert holding.find(FILE, file) == ((file.hash, "") if wanted is file else None)
    holding = Holding(cache.store, {b"x" * 32})
    assert holding.find(TREE, top) is None and holding.find(TREE, inner) is None
    assert holding.unknown == set()


def test_a_tree_whose_record_is_gone_is_told(cache: Cache) -> None:
    _, inner, top = folder(cache, b"bad")
    cache.store.delete(inner)
    holding = Holding(cache.store, {b"x" * 32})
    assert holding.find(TREE, top) is None
    assert holding.unknown == {inner.hash}


def test_a_digest_reaches_who_made_and_who_read_it_and_lets_go_again(cache: Cache) -> None:
    file, _, top = folder(cache, b"bad")
    maker = publish(cache, "maker", made=top)
    reader = publish(cache, "reader", reads=top)
    above = publish(cache, "above", reads=reader.outputs["data"].digest)
    other = publish(cache, "other")
    cache.actions.taint(reader.key, "slow", "ann@box")
    reach = taint_digest(cache, file.hash, *WHY)
    assert {each.result.label: each.how for each in reach.reached} == {
        "maker": "made",
        "reader": READ,
        "above": "below",
    }
    served = {r.label: cache.actions.result(r.key) is not None for r in (maker, reader, above, other)}
    assert served == {"maker": False, "reader": False, "above": True, "other": True}
    assert (cache.root / "ac" / "changed").exists()
    assert untaint_digest(cache, file.hash, *WHY)
    assert not untaint_digest(cache, file.hash, *WHY)
    # The reader was tainted by name too, and that stands.
    assert cache.actions.result(maker.key) == maker
    assert cache.actions.result(reader.key) is None
    assert cache.actions.untaint(reader.key, *WHY)
    assert cache.actions.result(reader.key) == reader


def test_an_interrupted_untaint_is_completed_by_the_next(cache: Cache) -> None:
    file, _, top = folder(cache, b"bad")
    maker = publish(cache, "maker", made=top)
    taint_digest(cache, file.hash, *WHY)
    cache.taints.lift(file.hash, *WHY)  # and killed here
    assert cache.actions.result(maker.key) is None
    assert untaint_digest(cache, file.hash, *WHY)
    assert cache.actions.result(maker.key) == maker


def test_a_newer_result_stays_chosen(cache: Cache) -> None:
    old = publish(cache, "x", made=folder(cache, b"one")[2])
    cache.actions.taint(old.key, *WHY)
    new = publish(cache, "x", made=folder(cache, b"two")[2])
    assert cache.actions.untaint(old.key, *WHY)
    assert cache.actions.result(old.key) == new
    assert cache.actions.attempts(old.key) == [old]


def test_fingerprints_know_what_else_is_below(cache: Cache) -> None:
    result, below = publish(cache, "x"), publish(cache, "below")
    cache.fingerprints.put(b"p" * 32, result.key)
    cache.fingerprints.put(b"q" * 32, result.key, {below.key.hash})
    found = cache.fingerprints.get(b"q" * 32)
    assert found is not None and found.producer_keys == (below.key.hash,)
    assert cache.fingerprints.also(b"p" * 32) == frozenset()
    cache.actions.taint(below.key, *WHY)
    assert cache.fingerprints.get(b"q" * 32) is None
    assert cache.fingerprints.get(b"p" * 32) == result


def test_a_fingerprint_file_that_lost_its_end_is_a_miss(cache: Cache) -> None:
    result = publish(cache, "x")
    cache.fingerprints.put(b"q" * 32, result.key, {b"k" * 32, b"l" * 32})
    [path] = (path for path in (cache.root / "fp").rglob("*") if path.is_file())
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        assert cache.fingerprints.get(b"q" * 32) is None


def place(name: str, outputs: dict[str, str] | None = None) -> Place:
    return Place(Recipe("tool", 2, {"name": name}, {}, outputs or {"data": TREE}), label=f"//x:{name}")


def test_equate_keeps_who_made_it_and_says_from_where(cache: Cache) -> None:
    old = publish(cache, "old")
    made = equate(cache, old, place("new"), "only a name", "ann@box")
    assert (made.producer, made.cost, made.log) == (old.producer, old.cost, old.log)
    assert made.producer_keys == (old.key.hash,)
    assert made.note.startswith(f"equated with {old.key.short} (old): only a name (ann@box, ")
    standing = cache.actions.standing(made.key)
    assert standing.chosen == made and standing.lease is None and standing.notes == (made.note,)
    assert standing.equated is not None and standing.equated.source == old.key
    assert cache.store.read(made.key) == place("new").recipe.record()
    assert cache.actions.revoke(made.key, "not so", "ann@box") == made
    assert cache.actions.result(made.key) is None and cache.actions.attempts(made.key) == []
    assert made.key.hash in cache.actions.changed_keys()


def test_what_cannot_be_equated(cache: Cache) -> None:
    old = publish(cache, "old")
    with pytest.raises(RequestError, match="nothing to equate"):
        equate(cache, old, Place(Recipe("tool", 1, {"name": "old"}, {}, {"data": TREE})), *WHY)
    with pytest.raises(RequestError, match=r"`data` \(tree\), and `//x:new` declares `data` \(file\), `more` \(tree\)"):
        equate(cache, old, place("new", {"data": FILE, "more": TREE}), *WHY)
    equate(cache, old, place("new"), *WHY)
    with pytest.raises(RequestError, match="is equated with"):
        equate(cache, old, place("new"), *WHY)
    new = cache.actions.result(place("new").recipe.key())
    assert new is not None
    with pytest.raises(RequestError, match="its own producer"):
        equate(cache, new, Place(Recipe("tool", 1, {"name": "old"}, {}, {"data": TREE})), *WHY)
    publish(cache, "taken")
    with pytest.raises(RequestError, match="a result of its own"):
        equate(cache, old, Place(Recipe("tool", 1, {"name": "taken"}, {}, {"data": TREE})), *WHY)


def test_equate_does_not_wait_for_who_builds_it(cache: Cache) -> None:
    old, key = publish(cache, "old"), place("new").recipe.key()
    lease = cache.actions.acquire(key, Holder.here())
    with pytest.raises(BuildError, match=r"is being built by .*@.* \(process \d+\), since "):
        equate(cache, old, place("new"), *WHY)
    assert isinstance(lease, Lease) and lease.held()
    lease.release()
    equate(cache, old, place("new"), *WHY)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(3, "tainted", 5.0, reason="why", who="ann", cause="ab" * 32),
        Entry(3, "untainted", 5.0, reason="why", who="ann"),
        Entry(3, "equated", 5.0, "ab", reason="why", who="ann", source=Digest.of(b"a")),
        Entry(3, "revoked", 5.0, reason="why", who="ann"),
    ],
)
def test_what_people_decide_parses_back(entry: Entry) -> None:
    assert Entry.parse(3, entry.record()) == entry


def test_a_taint_says_why_who_and_when() -> None:
    assert Entry(1, "tainted", 0.0, reason="wrong", who="ann@box").said().startswith("wrong (ann@box, 19")
    through = Entry(1, "tainted", 0.0, reason="wrong", who="ann@box", cause="ab" * 32)
    assert through.said().startswith("`abababababab` is tainted: wrong (ann@box, ")
