"""The no-op check: what leaves it standing, and each thing that takes it down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from marin_cas.scheduler import snapshot
from marin_cas.scheduler.snapshot import Report, check, save

REQUEST = {"patterns": ["//exp:tiny"], "package": "", "config": "c", "lock": "l"}


class Place:
    """A workspace with one of each watched thing, old enough to be told from what comes later."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "cache" / "snapshot"
        self.build = root / "exp" / "BUILD.marin"
        self.folder = root / "exp"
        self.source = root / "exp" / "clean.py"
        self.missing = root / "exp" / ".marinignore"
        self.link = root / "exp" / "data.txt"
        self.target = root / "data.txt"
        self.tree = root / "cache" / "trees" / "ab"
        self.out = root / "cache" / "out" / "exp" / "tiny"
        self.epoch = root / "cache" / "ac" / "changed"
        for path in (self.build, self.source, self.target, self.tree / "model" / "w", self.epoch):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.name)
        self.out.parent.mkdir(parents=True)
        self.out.symlink_to("../../trees/ab")
        self.link.symlink_to("../data.txt")
        time.sleep(0.05)

    def save(self, request=REQUEST, lines=("ok",), started=None) -> bool:
        return save(
            self.file,
            self.root,
            request,
            Report(lines, {"n": 1}),
            started=snapshot.start() if started is None else started,
            watched=[self.build, self.folder, self.source, self.missing, self.link],
            outputs=[self.out],
            contents=[self.epoch],
        )

    def check(self, request=REQUEST) -> Report | None:
        return check(self.file, self.root, request)


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    assert place.save()
    return place


def test_unchanged(place):
    report = place.check()
    assert report is not None
    assert (report.lines, report.data) == (("ok",), {"n": 1})


CHANGES = {
    "a BUILD file's text": lambda p: p.build.write_text("other text"),
    "same length and mtime, other bytes": lambda p: _rewrite_keeping_mtime(p.build),
    "a BUILD file replaced by a rename": lambda p: _replace(p.build),
    "a source edited": lambda p: p.source.write_text("x"),
    "a source removed": lambda p: p.source.unlink(),
    "a source became a folder": lambda p: (p.source.unlink(), p.source.mkdir()),
    "a file more in a walked folder": lambda p: (p.folder / "more.txt").write_text(""),
    "a folder more in a walked folder": lambda p: (p.folder / "sub").mkdir(),
    "a file that was absent": lambda p: p.missing.write_text(""),
    "a link's target edited": lambda p: p.target.write_text("other"),
    "a link led elsewhere": lambda p: (p.link.unlink(), p.link.symlink_to("../elsewhere")),
    "a link's target removed": lambda p: p.target.unlink(),
    "an output link removed": lambda p: p.out.unlink(),
    "an output link led elsewhere": lambda p: (p.out.unlink(), p.out.symlink_to("../../trees/cd")),
    "an output's tree removed": lambda p: _remove(p.tree),
    "an output's tree changed": lambda p: (p.tree / "new").write_text(""),
    "the epoch of taints": lambda p: p.epoch.write_text("changed\nmore\n"),
    "the epoch's file removed": lambda p: p.epoch.unlink(),
}


def _rewrite_keeping_mtime(path):
    before = path.stat()
    path.write_bytes(b"#" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path):
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def _remove(folder):
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(place, change):
    CHANGES[change](place)
    assert place.check() is None


KEPT = {
    "a temporary file came and went": lambda p: ((p.folder / "x~").write_text(""), (p.folder / "x~").unlink()),
    "an output linked elsewhere too": lambda p: os.link(p.tree / "model" / "w", p.root / "copy"),
    "the epoch's file rewritten as it was": lambda p: p.epoch.write_text(p.epoch.read_text()),
}


@pytest.mark.parametrize("change", KEPT)
def test_what_changes_nothing_is_not_a_change(place, change):
    KEPT[change](place)
    assert place.check() is not None


@pytest.mark.parametrize("field", ["patterns", "package", "config", "lock"])
def test_another_request_is_another_snapshot(place, field):
    assert place.check({**REQUEST, field: "other"}) is None


def test_another_version_of_marin_or_python_starts_anew(place, monkeypatch):
    monkeypatch.setattr(snapshot, "__version__", "999")
    assert place.check() is None
    monkeypatch.undo()
    monkeypatch.setattr(sys, "version", "4.0")
    assert place.check() is None


def test_the_last_eight_requests_are_kept(place):
    requests = [{**REQUEST, "patterns": [str(n)]} for n in range(9)]
    for request in requests:
        assert place.save(request)
    assert place.check(requests[0]) is None
    assert all(place.check(request) for request in requests[1:])


def test_a_file_edited_while_the_build_ran_leaves_no_snapshot(tmp_path):
    place = Place(tmp_path)
    started = snapshot.start()
    place.source.write_text("edited after it was read")
    assert not place.save(started=started)
    assert place.check() is None


def test_an_mtime_set_back_does_not_hide_an_edit(tmp_path):
    place = Place(tmp_path)
    started = snapshot.start()
    _rewrite_keeping_mtime(place.source)
    assert not place.save(started=started)


def test_a_young_output_is_compared_by_content(tmp_path):
    """Its time stamps cannot tell a change within the same tick of the file system's clock."""
    place = Place(tmp_path)
    place.out.unlink()
    place.tree = place.root / "cache" / "trees" / "file"
    place.tree.write_text("aaaa")
    place.out.symlink_to("../../trees/file")
    assert place.save()
    before = place.tree.stat()
    place.tree.write_text("bbbb")
    os.utime(place.tree, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert place.check() is None


@pytest.mark.parametrize("garbage", [b"", b"\0\xff", b"{}", b"0" * 40 + b" {"])
def test_a_damaged_file_is_no_snapshot(place, garbage):
    place.file.write_bytes(garbage)
    assert place.check() is None
    time.sleep(0.02)
    assert place.save()
    assert place.check() is not None


def test_a_damaged_entry_is_no_snapshot(place):
    line = place.file.read_text()
    name, _, body = line.partition(" ")
    entry = json.loads(body)
    entry["watch"][0] = ["exp/BUILD.marin", "f", "not a number"]
    place.file.write_text(f"{name} {json.dumps(entry)}\n")
    assert place.check() is None


def test_a_workspace_that_moved_keeps_its_snapshot(place, tmp_path_factory):
    moved = tmp_path_factory.mktemp("other") / "place"
    os.rename(place.root, moved)
    assert check(moved / "cache" / "snapshot", moved, REQUEST) is not None


def test_a_disk_that_is_in_the_way_is_no_error(tmp_path):
    place = Place(tmp_path)
    place.file.mkdir()
    assert not place.save()
    assert place.check() is None
    assert not list(place.file.parent.glob("snapshot.*"))


def test_forget(place):
    snapshot.forget(place.file)
    snapshot.forget(place.file)
    assert place.check() is None


def test_it_imports_next_to_nothing():
    program = (
        "import sys; before = set(sys.modules); import marin_cas.scheduler.snapshot; "
        "print(' '.join(sorted(m.split('.')[0] for m in set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"json", "_json", "_blake2", "marin_cas", "re", "_sre", "enum", "types",
        "functools", "_functools", "collections", "_collections", "copyreg", "keyword", "operator", "_operator",
        "reprlib", "itertools", "time", "stat", "_stat", "os"}  # fmt: skip


def test_thousands_of_entries_take_a_tenth_of_a_second(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    files = [folder / f"{n}.txt" for n in range(5000)]
    for file in files:
        file.write_text("x")
    time.sleep(0.05)
    target = tmp_path / "snapshot"
    assert save(target, tmp_path, REQUEST, Report([], {}), started=snapshot.start(), watched=files)
    best = min(_time(lambda: check(target, tmp_path, REQUEST)) for _ in range(5))
    assert best < 0.15


def _time(call) -> float:
    began = time.process_time()
    assert call() is not None
    return time.process_time() - began
