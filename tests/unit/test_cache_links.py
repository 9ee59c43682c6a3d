"""The folder `out/`: what people find there, and that it never leads to a write into the store."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from marin_cas.cache.cache import Cache, open_cache
from marin_cas.digest import Digest
from marin_cas.label import Label
from marin_cas.result import Output
from marin_cas.tree.ingest import ingest

TINY = Label("exp", "tiny")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return open_cache(tmp_path / "cache")


def tree(cache: Cache, text: str) -> Output:
    folder = cache.root.parent / "made"
    folder.mkdir()
    (folder / "f").write_text(text)
    digest = ingest(cache.store, folder, move=True).digest
    folder.rmdir()
    return Output("tree", digest)


def file(cache: Cache, text: str) -> Output:
    return Output("file", cache.store.put(text.encode()))


def test_one_tree(cache: Cache) -> None:
    output = tree(cache, "one")
    assert cache.links.path(TINY) is None
    assert cache.links.publish(TINY, {"out": output}) == {"out": cache.root / "out/exp/tiny"}
    assert cache.links.path(TINY) == cache.root / "out/exp/tiny"
    assert (cache.root / "out/exp/tiny/f").read_text() == "one"
    assert os.readlink(cache.root / "out/exp/tiny") == f"../../trees/{output.digest.hex}"


def test_the_cache_may_be_moved(cache: Cache) -> None:
    cache.links.publish(TINY, {"out": tree(cache, "one")})
    moved = cache.root.rename(cache.root.parent / "elsewhere")
    assert (moved / "out/exp/tiny/f").read_text() == "one"


def test_a_file_keeps_its_ending_and_is_not_the_blob(cache: Cache) -> None:
    output = file(cache, "{}")
    cache.links.publish(TINY, {"scores.json": output})
    real = (cache.root / "out/exp/tiny").resolve()
    assert real.name == "scores.json" and real.read_text() == "{}"
    blob = cache.store.path(output.digest)
    assert blob is not None and not real.samefile(blob)
    assert real.stat().st_mode & 0o222 == 0


def test_several_outputs(cache: Cache) -> None:
    outputs = {"hf": tree(cache, "hf"), "scores.json": file(cache, "{}")}
    places = cache.links.publish(TINY, outputs)
    assert places == {name: cache.root / "out/exp/tiny" / name for name in outputs}
    assert (places["hf"] / "f").read_text() == "hf"
    assert places["scores.json"].read_text() == "{}"
    assert cache.links.path(TINY) == cache.root / "out/exp/tiny"


def test_the_next_build_moves_the_link(cache: Cache) -> None:
    for text in ("one", "two"):
        cache.links.publish(TINY, {"out": tree(cache, text)})
        assert (cache.root / "out/exp/tiny/f").read_text() == text
    assert len(list((cache.root / "trees").iterdir())) == 2


def test_from_one_output_to_several_and_back(cache: Cache) -> None:
    one = {"a": tree(cache, "a")}
    two = one | {"b": file(cache, "b")}
    other = {"a": one["a"], "c": two["b"]}
    for outputs in (one, two, other, one):
        places = cache.links.publish(TINY, outputs)
        assert all(place.exists() for place in places.values())
        if len(outputs) > 1:
            assert sorted(p.name for p in (cache.root / "out/exp/tiny").iterdir()) == [".outputs", *outputs]


def test_the_same_again_writes_nothing(cache: Cache) -> None:
    outputs = {"a": tree(cache, "a"), "b": file(cache, "b")}
    cache.links.publish(TINY, outputs)

    def look() -> dict[str, int]:
        return {str(p): p.lstat().st_mtime_ns for name in ("out", "trees") for p in (cache.root / name).rglob("*")}

    before = look()
    cache.links.publish(TINY, outputs)
    assert look() == before


def test_what_is_hollow_is_left_out(cache: Cache) -> None:
    gone = Output("tree", Digest.of(b"gone"))
    assert cache.links.publish(TINY, {"out": gone}) == {}
    here = tree(cache, "here")
    assert set(cache.links.publish(TINY, {"gone": gone, "here": here})) == {"here"}
    # Some of its blobs are gone, which shows only on the way.
    cache.store.delete(Digest.of(b"here"))
    cache.disk.remove_tree(cache.root / "trees")
    assert cache.links.publish(TINY, {"out": here}) == {}
    assert not list((cache.root / "trees").iterdir())
    assert [path.name for path in (cache.root / "tmp").iterdir()] == []


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("target_first", [False, True])
def test_a_package_below_a_target(cache: Cache, several: bool, target_first: bool) -> None:
    # //exp:tiny wants out/exp/tiny, and so does the package exp/tiny.
    outputs = {"x": tree(cache, "target")}
    if several:
        outputs["y"] = file(cache, "y")
    inner = Label("exp/tiny", "x")

    def publish_target() -> None:
        cache.links.publish(TINY, outputs)

    def publish_inner() -> None:
        cache.links.publish(inner, {"out": tree(cache, "inner")})

    steps = [publish_target, publish_inner] if target_first else [publish_inner, publish_target]
    for step in steps * 2:
        step()
    assert cache.links.path(TINY) == cache.root / "out/exp/tiny.out"
    assert (cache.root / "out/exp/tiny.out" / ("x/f" if several else "f")).read_text() == "target"
    place = cache.links.path(inner)
    assert place == cache.root / "out/exp/tiny/x" and (place / "f").read_text() == "inner"
    for folder in (cache.root / "trees").iterdir():
        assert [path.name for path in folder.iterdir()] in (["f"], ["y"])  # nothing was written into a tree


def test_a_label_with_a_slash(cache: Cache) -> None:
    label = Label("", "a/b")
    cache.links.publish(label, {"out": tree(cache, "x")})
    assert (cache.root / "out/a/b/f").read_text() == "x"
    assert cache.links.path(label) == cache.root / "out/a/b"


def test_several_builds_at_once(cache: Cache) -> None:
    output = tree(cache, "same")
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                cache.links.publish(TINY, {"out": output})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (cache.root / "out/exp/tiny/f").read_text() == "same"
