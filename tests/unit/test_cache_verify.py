"""Verify: what it finds, what it repairs, what it does not touch, and going on after a run that was cut short."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from marin_cas.cache import cursor as cursors
from marin_cas.cache import verify as module
from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.cursor import Cursor
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease
from marin_cas.cache.verify import Progress, verify
from marin_cas.digest import Digest
from marin_cas.label import Label
from marin_cas.recipe import FILE, TREE, Recipe
from marin_cas.result import Output, Producer, Result
from marin_cas.store.local import SEALED_NS
from marin_cas.tree.ingest import ingest

LABEL = Label("exp", "x")
FILES = {"config.json": b"{}", "deep/weights": b"w" * 3_000_000, "deep/run": b"#!/bin/sh\n", "big.txt": b"b" * 70_000}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return open_cache(tmp_path / "cache")


def publish(cache: Cache, label: Label, kind: str, digest: Digest, recipe: bytes | None = None) -> Result:
    key = cache.store.put(recipe if recipe is not None else Recipe(str(label), 1).record())
    got = cache.actions.acquire(key, Holder.here(), force=True)
    assert isinstance(got, Lease)
    result = Result(key, b"f" * 32, "exact", {"out": Output(kind, digest)}, Producer("ann", "box"), 1.0, 2.0)
    result = got.publish(replace(result, label=str(label)))
    cache.links.publish(label, result.outputs)
    return result


@pytest.fixture
def result(cache: Cache) -> Result:
    """A tree of some files, laid out under `out/`."""
    folder = cache.root.parent / "made"
    for name, data in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "deep/run").chmod(0o755)
    (folder / "link").symlink_to("deep/weights")
    return publish(cache, LABEL, TREE, ingest(cache.store, folder, move=True).digest)


def blob(cache: Cache, name: str) -> Path:
    path = cache.store.path(Digest.of(FILES[name]), executable=name == "deep/run")
    assert path is not None
    return path


def write(path: Path, data: bytes) -> None:
    """As somebody who may: in place, and the mode of before."""
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(mode)


def flip(path: Path) -> None:
    """One bit, and no time stamp that moves: what a disk does by itself."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    write(path, bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def stats(cache: Cache) -> dict[str, tuple[int, ...]]:
    found = {}
    for _, entry in cache.store.files():
        st = os.stat(entry.path)
        found[entry.name] = (st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_nlink, st.st_mode)
    return found


# What it finds


def test_a_sound_cache_is_sound_and_nothing_counts_as_used(cache: Cache, result: Result) -> None:
    before = stats(cache)
    report = verify(cache)
    assert report.ok and report.files == len(before) and report.bytes == sum(size for _, size, *_ in before.values())
    assert not (report.wrong or report.unreadable or report.malformed or report.entries or report.copies)
    assert not report.hollow
    assert stats(cache) == before
    assert not (cache.root / "verify").exists()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "how", [flip, lambda path: write(path, b""), lambda path: write(path, FILES["big.txt"] + b"!")]
)
def test_wrong_bytes_are_found_and_repaired(
    cache: Cache, result: Result, name: str, how: Callable[[Path], None]
) -> None:
    path = blob(cache, name)
    how(path)
    report = verify(cache)
    assert not report.ok and [wrong.path for wrong in report.wrong] == [str(path)]
    assert report.wrong[0].digest == Digest.of(FILES[name]).hex
    # What people see shares those bytes.
    assert report.copies == (result.outputs["out"].digest.hex,)
    assert path.exists()
    report = verify(cache, repair=True)
    assert report.ok and report.removed == 2 and not path.exists()
    again = verify(cache)
    assert again.ok and [(hollow.label, hollow.blob) for hollow in again.hollow] == [
        (str(LABEL), Digest.of(FILES[name]))
    ]
    assert cache.links.publish(LABEL, result.outputs) == {}
    assert list((cache.root / "trees").iterdir()) == []


def test_a_bit_that_rots_by_itself_is_found_by_verify_alone(cache: Cache, result: Result) -> None:
    path = blob(cache, "deep/weights")
    flip(path)
    assert path.stat().st_mtime_ns == SEALED_NS
    assert cache.store.path(Digest.of(FILES["deep/weights"])) == path  # nobody else can tell
    assert [wrong.path for wrong in verify(cache).wrong] == [str(path)]


def test_a_vanished_blob_is_hollow_and_no_damage(cache: Cache, result: Result) -> None:
    blob(cache, "config.json").unlink()
    report = verify(cache)
    assert report.ok
    assert [(hollow.key, hollow.output, hollow.blob) for hollow in report.hollow] == [
        (result.key, "out", Digest.of(FILES["config.json"]))
    ]


def test_what_cannot_be_read_is_told_and_does_not_end_the_run(cache: Cache, result: Result) -> None:
    path = blob(cache, "config.json")
    path.unlink()
    path.mkdir()  # read() fails there, for root too
    flip(blob(cache, "big.txt"))
    report = verify(cache, repair=True)
    assert [(each.path, each.digest) for each in report.unreadable] == [
        (str(path), Digest.of(FILES["config.json"]).hex)
    ]
    assert str(path) in report.unreadable[0].why
    assert [wrong.digest for wrong in report.wrong] == [Digest.of(FILES["big.txt"]).hex]
    assert not report.ok and path.exists()


def test_an_error_of_the_disk_is_told(cache: Cache, result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    real, size = module.hash_open, len(FILES["deep/weights"])

    def failing(fd: int, length: int, *, exclusive: bool) -> Digest:
        if length == size:
            raise OSError(5, "Input/output error")
        return real(fd, length, exclusive=exclusive)

    monkeypatch.setattr(module, "hash_open", failing)
    report = verify(cache)
    assert [each.why for each in report.unreadable] == [
        f"`{blob(cache, 'deep/weights')}`: the disk reported an input/output error"
    ]
    assert not report.wrong and report.files > 5


def test_a_damaged_entry_is_put_aside(cache: Cache, result: Result) -> None:
    path = cache.root / "ac" / result.key.hex[:2] / result.key.hex / "2"
    path.write_bytes(b"damaged")
    assert verify(cache).entries == (str(path),)
    assert verify(cache, repair=True).ok
    assert path.with_name("2.damaged").read_bytes() == b"damaged"
    assert verify(cache).ok


@pytest.mark.parametrize("record", [b"marin-cas tree 1\nnot one", b"text"])
def test_a_result_whose_tree_is_none(cache: Cache, record: bytes) -> None:
    made = publish(cache, LABEL, FILE, cache.store.put(record))
    assert verify(cache).ok  # anybody may store such bytes as a file
    digest = made.outputs["out"].digest
    key = cache.store.put(Recipe("other", 1).record())
    got = cache.actions.acquire(key, Holder.here())
    assert isinstance(got, Lease)
    got.publish(replace(made, key=key, outputs={"out": Output(TREE, digest)}, label="//exp:y"))
    report = verify(cache)
    assert [(each.label, each.output) for each in report.malformed] == [("//exp:y", "out")]
    assert digest.short in report.malformed[0].why
    assert not report.ok


def test_a_key_whose_recipe_is_none(cache: Cache) -> None:
    publish(cache, LABEL, FILE, cache.store.put(b"data"), recipe=b"marin-cas recipe 1\nnot one")
    assert [(each.label, each.output) for each in verify(cache).malformed] == [(str(LABEL), "")]


# What is laid out


def test_only_what_is_wrong_under_trees_goes(cache: Cache, result: Result) -> None:
    other = publish(cache, Label("exp", "other"), FILE, cache.store.put(b"scores"))
    flip(blob(cache, "big.txt"))
    assert verify(cache, repair=True).ok
    assert [path.name for path in (cache.root / "trees").iterdir()] == [other.outputs["out"].digest.hex + ".file"]
    assert (cache.root / "out/exp/other").read_bytes() == b"scores"
    assert not (cache.root / "out/exp/x").is_symlink()  # its bytes are gone: it would lead nowhere


def test_a_copy_that_somebody_edited_is_laid_out_again(cache: Cache) -> None:
    publish(cache, LABEL, FILE, cache.store.put(b"scores"))
    place = cache.root / "out/exp/x"
    write(place.resolve(), b"SCORES")
    report = verify(cache)
    assert not report.ok and len(report.copies) == 1 and not report.wrong
    report = verify(cache, repair=True)
    assert report.ok and (report.laid, report.unlinked) == (1, 0)
    assert place.read_bytes() == b"scores"


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "extra").write_bytes(b""),
        lambda tree: (tree / "config.json").unlink(),
        lambda tree: (tree / "link").unlink(),
        lambda tree: os.replace(tree / "big.txt", tree / "config.json"),
        lambda tree: ((tree / "link").unlink(), (tree / "link").symlink_to("elsewhere")),
        lambda tree: ((tree / "config.json").unlink(), (tree / "config.json").mkdir()),
        lambda tree: ((tree / "config.json").unlink(), (tree / "config.json").write_bytes(b"[]")),
    ],
    ids=["more", "less", "no-link", "swapped", "other-link", "folder", "other-bytes"],
)
def test_a_tree_that_somebody_changed_is_laid_out_again(
    cache: Cache, result: Result, change: Callable[[Path], object]
) -> None:
    tree = (cache.root / "out/exp/x").resolve()
    change(tree)
    assert verify(cache).copies == (tree.name,)
    assert verify(cache, repair=True).laid == 1
    assert verify(cache).ok
    assert (cache.root / "out/exp/x/config.json").read_bytes() == b"{}"


def test_a_copy_with_right_bytes_is_right(cache: Cache, result: Result) -> None:
    # A file system may allow no link, or no more of them.
    path = (cache.root / "out/exp/x").resolve() / "config.json"
    path.unlink()
    path.write_bytes(b"{}")
    assert verify(cache).ok


def test_links_that_lead_nowhere_are_mended(cache: Cache, result: Result) -> None:
    publish(cache, Label("exp", "gone"), FILE, cache.store.put(b"gone"))
    cache.disk.remove_tree(cache.root / "trees")
    (cache.root / "out/exp/mine").symlink_to("nowhere")
    cache.store.delete(Digest.of(b"gone"))
    assert cache.links.mend() == (1, 2)
    assert sorted(path.name for path in (cache.root / "out/exp").iterdir()) == ["x"]
    assert (cache.root / "out/exp/x/big.txt").stat().st_size == 70_000


# Repair and those who build meanwhile


def test_good_bytes_put_meanwhile_stay(cache: Cache, result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    path = blob(cache, "big.txt")
    write(path, b"wrong")
    advance = type(cache.epoch).advance

    def meanwhile(epoch: object) -> int:
        cache.store.put(FILES["big.txt"])
        return advance(epoch)  # type: ignore[arg-type]

    monkeypatch.setattr(type(cache.epoch), "advance", meanwhile)
    verify(cache, repair=True)
    assert path.read_bytes() == FILES["big.txt"]


def test_a_repair_is_known_to_whoever_builds(cache: Cache, result: Result) -> None:
    before = cache.epoch.now()
    verify(cache, repair=True)
    assert cache.epoch.now() == before
    flip(blob(cache, "big.txt"))
    verify(cache, repair=True)
    assert cache.epoch.now() == before + 1


# Going on


class Cut(BaseException):
    pass


def cut_after(count: int) -> Callable[[Progress], None]:
    def progress(at: Progress) -> None:
        if at.files == count:
            raise Cut

    return progress


def test_a_run_that_was_cut_short_goes_on(cache: Cache, result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(stats(cache))
    with pytest.raises(Cut):
        verify(cache, progress=cut_after(3))
    hashed: list[int] = []
    real = module.hash_open

    def counted(fd: int, size: int, *, exclusive: bool) -> Digest:
        hashed.append(size)
        return real(fd, size, exclusive=exclusive)

    monkeypatch.setattr(module, "hash_open", counted)
    told: list[Progress] = []
    report = verify(cache, progress=told.append)
    assert report.resumed is not None and report.resumed.files == 3
    assert len(hashed) == len(names) - 3
    assert report.files == len(names) and told[-1].files == told[-1].all_files == len(names)
    assert told[-1].bytes == told[-1].all_bytes == report.bytes
    assert not (cache.root / "verify").exists()
    assert verify(cache).resumed is None


def test_what_was_wrong_before_the_cut_is_looked_at_again(cache: Cache, result: Result) -> None:
    first, last = (cache.store.root / name[:2] / name for name in (sorted(stats(cache))[0], sorted(stats(cache))[-1]))
    kept = first.read_bytes()
    flip(first)
    flip(last)
    with pytest.raises(Cut):
        verify(cache, progress=cut_after(2))
    assert [wrong.path for wrong in verify(cache).wrong] == [str(first), str(last)]
    with pytest.raises(Cut):
        verify(cache, progress=cut_after(2))
    first.unlink()
    cache.store.put(kept)
    assert [wrong.path for wrong in verify(cache).wrong] == [str(last)]


def test_restart_and_another_sample_begin_anew(cache: Cache, result: Result) -> None:
    for again in (lambda: verify(cache, restart=True), lambda: verify(cache, 0.999999)):
        with pytest.raises(Cut):
            verify(cache, progress=cut_after(3))
        assert again().resumed is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"began": "x"}', "\0\0"])
def test_a_damaged_note_is_no_note(cache: Cache, result: Result, text: str) -> None:
    (cache.root / "verify").write_text(text)
    report = verify(cache)
    assert report.ok and report.resumed is None and report.files == len(stats(cache))


def test_a_run_that_was_killed_goes_on(cache: Cache) -> None:
    for n in range(400):
        cache.store.put(b"%d" % n)
    # One file a hundredth of a second, so that it is killed in the middle.
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom marin_cas.cache import verify as m\n"
        "from marin_cas.cache.cache import open_cache\n"
        "real = m.hash_open\n"
        "def slow(*a, **k):\n    time.sleep(0.01); return real(*a, **k)\n"
        "m.hash_open = slow; m._NOTE_S = 0.05\nm.verify(open_cache(Path(sys.argv[1])))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(cache.root)], cwd=Path(__file__).parent.parent.parent)
    deadline = time.monotonic() + 60
    while not (cache.root / "verify").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    noted = json.loads((cache.root / "verify").read_text())["files"]
    report = verify(cache)
    assert report.ok and report.files == 400
    assert report.resumed is not None and 0 < report.resumed.files == noted < 400


# Samples


def test_a_sample_takes_its_share_and_another_one_each_time() -> None:
    hexes = [Digest.of(b"%d" % n).hex for n in range(4000)]
    chosen = [
        {hexed for hexed in hexes if Cursor(0.0, share, seed).chooses(hexed)}
        for share in (0.1, 0.5)
        for seed in (1, 0x9E3779B9)
    ]
    assert [round(len(each) / 4000, 1) for each in chosen] == [0.1, 0.1, 0.5, 0.5]
    assert chosen[0] != chosen[1]
    assert all(Cursor(0.0, 1.0, seed).chooses(hexed) for seed in (0, 5) for hexed in hexes)


def test_a_sample_that_was_cut_short_is_the_same_sample(cache: Cache) -> None:
    for n in range(300):
        cache.store.put(b"%d" % n)
    with pytest.raises(Cut):
        verify(cache, 0.5, cut_after(20))
    cursor = cursors.load(cache)
    assert cursor is not None and cursor.files == 20
    expected = sum(cursor.chooses(hexed) for hexed, _ in cache.store.files())
    assert verify(cache, 0.5).files == expected
