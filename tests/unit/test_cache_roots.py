"""What must be kept for whom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.roots import Pin, Root
from marin_cas.digest import Digest
from marin_cas.errors import EnvironmentProblem

ONE, TWO = Digest.of(b"one"), Digest.of(b"two")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return open_cache(tmp_path / "cache")


def without_times(roots: list[Root]) -> list[tuple[str, str, set[Digest]]]:
    return [(root.workspace, root.label, set(root.keys)) for root in roots]


def test_labels_of_workspaces(cache: Cache) -> None:
    assert list(cache.roots.all()) == []
    for workspace in ("/home/ann/w", "/" + "long/" * 100 + "w"):
        for label in ("//exp:tiny", "//é:ü", "//" + "long/" * 100 + ":x"):
            cache.roots.register(workspace, label, [ONE])
            cache.roots.register(workspace, label, [TWO, ONE])
            assert cache.roots.registered(workspace, label)
    found = list(cache.roots.all())
    assert len(found) == 6 and all(set(root.keys) == {ONE, TWO} for root in found)
    cache.roots.forget(found[0])
    cache.roots.forget(found[0])
    assert list(cache.roots.all()) == found[1:]
    assert not cache.roots.registered(found[0].workspace, found[0].label)


def test_nothing_is_written_when_nothing_changed(cache: Cache) -> None:
    cache.roots.register("/w", "//exp:a", [ONE, TWO])
    before = cache.roots.signature()
    cache.roots.register("/w", "//exp:a", [TWO, ONE])
    assert cache.roots.signature() == before
    cache.roots.register("/w", "//exp:a", [ONE])
    changed = cache.roots.signature()
    assert changed != before
    cache.roots.pin(Pin("//exp:a", (ONE,)))
    assert cache.roots.signature() != changed


def test_pins(cache: Cache) -> None:
    pins = [
        Pin("//exp:a", (ONE,), (), True, "in the paper", "ann@box", 5.0),
        Pin("x@1.0", (), (TWO, ONE), False, "", "", 6.5),
    ]
    for pin in reversed(pins):
        cache.roots.pin(pin)
    assert list(cache.roots.pins()) == pins
    cache.roots.pin(Pin("//exp:a", (TWO,)))
    assert [pin.keys for pin in cache.roots.pins()] == [(TWO,), ()]
    cache.roots.unpin("//exp:a")
    cache.roots.unpin("//exp:a")
    assert list(cache.roots.pins()) == pins[1:]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"workspace": 1, "label": "x", "keys": []}', '{"keys": ["zz"]}', "\0"]
)
def test_a_damaged_file_is_an_error(cache: Cache, text: str) -> None:
    """Not "nothing is kept": whoever deletes must not go on."""
    cache.roots.register("/w", "//exp:a", [ONE])
    cache.roots.pin(Pin("//exp:a", (ONE,)))
    for folder, read in (("workspaces/*", cache.roots.all), ("pins", cache.roots.pins)):
        [path] = (cache.root / "roots").glob(f"{folder}/*")
        path.write_text(text)
        with pytest.raises(EnvironmentProblem, match="is damaged: it does not say what must be kept"):
            list(read())
    cache.roots.register("/w", "//exp:a", [ONE])
    assert without_times(list(cache.roots.all())) == [("/w", "//exp:a", {ONE})]


def test_an_unfinished_file_is_none(cache: Cache) -> None:
    os.makedirs(cache.root / "roots" / "workspaces")
    assert list(cache.roots.all()) == [] and list(cache.roots.pins()) == []
