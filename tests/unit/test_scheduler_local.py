"""Builds of a mini workspace with the real cache, worker and analysis: what is published, and what is not."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from marin_cas.analysis.analysis import Analysis, analyse
from marin_cas.analysis.lock import Lock
from marin_cas.analysis.sources import Sources
from marin_cas.cache.cache import open_cache
from marin_cas.digest import Digest
from marin_cas.executors.local import LocalExecutor
from marin_cas.graph.graph import load_graph
from marin_cas.label import parse_label
from marin_cas.lang.loader import Loader
from marin_cas.reasons import Code
from marin_cas.scheduler.build import Build
from marin_cas.scheduler.events import EventLog
from marin_cas.scheduler.local import LocalCache
from marin_cas.scheduler.plan import Options, plan
from marin_cas.scheduler.runner import LocalRunner

CHECKOUT = Path(__file__).parents[2]

BUILD = """
load("@marin//rules:data.bzl", "py_action", "raw_download")
load(":own.bzl", "drifting")
drifting(name = "drifting")
py_action(name = "drift_reader", function = "exp/f.py:upper", inputs = {"doc": ":drifting"})
exports_files(["doc.txt"])
py_action(name = "doc", function = "exp/f.py:copy", inputs = {"doc": "doc.txt"})
py_action(name = "upper", function = "exp/f.py:upper", inputs = {"doc": ":doc"})
py_action(name = "top", function = "exp/f.py:upper", inputs = {"doc": ":upper"})
py_action(name = "random", function = "exp/g.py:random")
py_action(name = "reader", function = "exp/f.py:upper", inputs = {"doc": ":random"})
py_action(name = "slow", function = "exp/g.py:slow", inputs = {"doc": "doc.txt"})
py_action(name = "sleeps", function = "exp/g.py:sleeps")
"""

OWN = """# A rule whose output is opaque.

def _drifting(ctx):
    made = ctx.actions.run(
        tool = "function",
        revision = 1,
        params = {"function": "exp/g.py:random", "params": {}},
        outputs = {"files": "tree"},
        opaque = ["files"],
        code = "exp/g.py:random",
    )
    return [DefaultInfo(outputs = made)]

drifting = rule(implementation = _drifting)
"""

FUNCTIONS = '''
def _texts(ctx):
    for folder in ctx.inputs.values():
        files = sorted(folder.rglob("*")) if folder.is_dir() else [folder]
        yield from (file for file in files if file.is_file())


def copy(ctx):
    """As it is."""
    for file in _texts(ctx):
        (ctx.output_path / "a.txt").write_text(file.read_text().strip())
    (ctx.output_path / "sub").mkdir()
    (ctx.output_path / "sub" / "b.txt").write_text("b")


def upper(ctx):
    for file in _texts(ctx):
        (ctx.output_path / file.name).write_text(file.read_text().upper())
'''

OTHERS = """
import os
import time


def random(ctx):
    (ctx.output_path / "a.txt").write_text(os.urandom(8).hex())
    (ctx.output_path / "same.txt").write_text("same")


def slow(ctx):
    print("started", flush=True)
    ctx.progress(1, 2, "steps")
    time.sleep(0.6)
    (ctx.output_path / "a.txt").write_text("done")


def sleeps(ctx):
    ctx.progress(1, 2, "steps")
    time.sleep(60)
"""


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "exp").mkdir(parents=True)
        (root / "marin.toml").write_text("")
        (root / "exp" / "BUILD.marin").write_text(BUILD)
        (root / "exp" / "own.bzl").write_text(OWN)
        (root / "exp" / "f.py").write_text(FUNCTIONS)
        (root / "exp" / "g.py").write_text(OTHERS)
        (root / "exp" / "doc.txt").write_text("hello\n")
        self.cache = open_cache(root / "cache")
        self.local = LocalCache(self.cache)
        self.executor = LocalExecutor(self.cache, root, grace=1.0)
        self.events = io.StringIO()

    def analyse(self, *labels: str) -> Analysis:
        loader = Loader(self.root, CHECKOUT / "rules", cache=self.root / "cache")
        graph = load_graph(loader, [parse_label(label) for label in labels], {}, None)
        return analyse(graph, loader, Lock({}), Sources(self.root, self.cache.stats))

    def start(self, *labels: str, log: EventLog | None = None, **options) -> Build:
        runner = LocalRunner(self.root, self.cache, self.local, self.executor)
        roots = [parse_label(label) for label in labels]
        log = log or EventLog(self.events)
        return Build(self.analyse(*labels), roots, self.local, self.local, runner, Options(jobs=2, **options), log)

    def build(self, *labels: str, **options):
        return self.start(*labels, **options).run()

    def executed(self, *labels: str, **options) -> list[str]:
        report = self.build(*labels, **options)
        assert report.exit_code == 0, [str(f.error) for f in report.failures]
        return sorted(o.action.label.name for o in report.executed)

    def result(self, label: str):
        key = self.cache.labels.latest(label).key
        return self.cache.actions.result(key)

    def blobs(self) -> list[Digest]:
        return sorted({Digest.parse(f"{p.name}-{p.stat().st_size}") for p in (self.root / "cache/cas").rglob("?" * 64)})


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path / "ws")
    yield place
    place.executor.close()
    place.cache.close()


def test_once_and_not_again(place):
    report = place.build("//exp:top")
    assert report.counts["executed"] == 3
    link = report.links[parse_label("//exp:top")]["files"]
    assert (link / "a.txt").read_text() == "HELLO"
    record = place.result("//exp:top")
    assert record.producer_keys == tuple(
        sorted(place.cache.labels.latest(f"//exp:{n}").key.hash for n in ("doc", "upper"))
    )
    assert place.cache.refs.get("exp/top@dev") == record.fingerprint
    again = place.build("//exp:top")
    assert (again.counts["executed"], again.counts["local_hits"]) == (0, 1)
    assert len(place.cache.labels.history("//exp:top")) == 1


def test_a_change_that_gives_equal_bytes_stops_there(place):
    place.build("//exp:top")
    (place.root / "exp" / "doc.txt").write_text("hello   \n")
    assert place.executed("//exp:top") == ["doc"]
    (place.root / "exp" / "f.py").write_text("# a comment\n" + FUNCTIONS)
    assert place.executed("//exp:top") == []
    (place.root / "exp" / "doc.txt").write_text("bye\n")
    planned = plan(place.analyse("//exp:top"), [parse_label("//exp:top")], place.local).decisions
    assert planned["//exp:doc"].reason.code is Code.MISS_CHANGED
    assert planned["//exp:doc"].reason.changes[0].path == "inputs.doc"
    assert place.executed("//exp:top") == ["doc", "top", "upper"]


def test_each_blob_that_is_gone_is_made_again_or_not_missed(place):
    place.build("//exp:top")
    top = place.result("//exp:top").outputs
    for blob in place.blobs():
        (place.root / "cache" / "trees").rename(place.root / f"gone-{blob.short}-{blob.size}")
        place.cache.store.delete(blob)
        report = place.build("//exp:top")
        assert report.exit_code == 0, f"without {blob}: {[str(f.error) for f in report.failures]}"
        assert place.result("//exp:top").outputs == top
        assert (report.links[parse_label("//exp:top")]["files"] / "a.txt").read_text() == "HELLO"


def test_a_source_edited_while_its_action_runs(place):
    def edit(event):
        if event.event == "progress":
            (place.root / "exp" / "doc.txt").write_text("edited\n")

    report = place.build("//exp:slow", log=EventLog(listeners=[edit]))
    assert report.exit_code == 1
    text = report.failures[0].error.render()
    assert "`exp/doc.txt` changed while `//exp:slow` ran, so its result was not published" in text
    key = report.failures[0].key
    assert place.cache.actions.result(key) is None
    assert place.cache.labels.history("//exp:slow") == []
    assert place.executed("//exp:slow") == ["slow"]


def test_a_source_that_is_only_touched_is_no_edit(place):
    def touch(event):
        if event.event == "progress":
            os.utime(place.root / "exp" / "doc.txt")

    assert place.build("//exp:slow", log=EventLog(listeners=[touch])).exit_code == 0


def _forget_bytes(place, label):
    for name in ("a.txt", "same.txt"):
        path = place.root / "cache" / "out" / "exp" / label / name
        if path.exists():
            place.cache.store.delete(Digest.of(path.read_bytes()))


class TestAnOpaqueOutput:
    def test_whose_bytes_are_gone_is_simply_made_again(self, place):
        place.build("//exp:drifting")
        made = place.result("//exp:drifting")
        _forget_bytes(place, "drifting")
        assert place.executed("//exp:drifting") == ["drifting"]
        assert place.result("//exp:drifting").outputs != made.outputs
        assert place.executed("//exp:drifting") == []

    def test_is_not_compared(self, place):
        place.build("//exp:drifting")
        made = place.result("//exp:drifting")
        assert place.build("//exp:drifting", check=True).exit_code == 0
        assert place.result("//exp:drifting") == made

    def test_that_something_was_made_from_waits_for_a_decision(self, place):
        place.build("//exp:drifting", "//exp:drift_reader")
        made = place.result("//exp:drifting")
        _forget_bytes(place, "drifting")
        report = place.build("//exp:drifting", "//exp:drift_reader")
        assert report.exit_code == 1
        assert "`//exp:drift_reader`" in report.failures[0].error.render()
        assert place.result("//exp:drifting") == made


class TestANonReproducibleAction:
    @pytest.fixture
    def made(self, place):
        place.build("//exp:reader", "//exp:random")
        _forget_bytes(place, "random")
        (place.root / "exp" / "g.py").write_text(OTHERS.replace("\n\n\ndef slow", "\n\n\n# comment\ndef slow"))
        return place.result("//exp:random")

    def test_whose_bytes_are_gone_is_not_run_unasked(self, place, made):
        assert place.executed("//exp:reader") == []

    def test_whose_bytes_are_wanted_stops_the_build_and_names_the_consumers(self, place, made):
        report = place.build("//exp:random", "//exp:reader")
        assert report.exit_code == 1
        text = report.failures[0].error.render()
        assert "differs: `out/files/a.txt`" in text
        assert "`//exp:reader`" in text
        assert "same.txt" not in text
        assert place.result("//exp:random") == made
        assert len(place.cache.actions.attempts(made.key)) == 1

    def test_accept_new(self, place, made):
        old = place.result("//exp:reader")
        assert place.executed("//exp:random", "//exp:reader", accept_new=True) == ["random", "reader"]
        assert place.result("//exp:random") != made
        assert place.result("//exp:reader").key != old.key
        assert place.executed("//exp:random", "//exp:reader") == []

    def test_keep_old(self, place, made):
        report = place.build("//exp:random", "//exp:reader", keep_old=True)
        assert report.exit_code == 1
        assert report.outcomes["//exp:reader"].source == "local"

    def test_check_names_the_paths_and_keeps_the_chosen_one(self, place, made):
        place.build("//exp:random", accept_new=True)
        chosen = place.result("//exp:random")
        report = place.build("//exp:random", check=True)
        assert report.exit_code == 1
        assert report.checked == {"//exp:random": ("out/files/a.txt",)}
        assert place.result("//exp:random") == chosen

    def test_again_takes_the_new_one(self, place, made):
        old = place.result("//exp:random")
        again = frozenset({parse_label("//exp:random")})
        assert place.executed("//exp:reader", again=again) == ["random", "reader"]
        assert place.result("//exp:random") != old
        assert place.executed("//exp:reader") == []


def test_check_of_a_reproducible_one(place):
    place.build("//exp:top")
    report = place.build("//exp:top", check=True)
    assert report.checked == {"//exp:top": ()}
    assert report.exit_code == 0


def test_an_interrupt_ends_the_tool_and_leaves_nothing_to_clean_up(place):
    build = place.start("//exp:sleeps", "//exp:top")
    build.log.listen(lambda event: build.interrupt() if event.event == "progress" else None)
    began = time.monotonic()
    report = build.run()
    assert report.exit_code == 8
    assert time.monotonic() - began < 20
    key = report.outcomes["//exp:sleeps"].key
    assert place.cache.actions.standing(key).lease is None
    assert place.executed("//exp:top") in ([], ["top"], ["top", "upper"], ["doc", "top", "upper"])


def test_two_builds_of_one_key_in_one_process_run_it_once(place):
    reports = []
    builds = [place.start("//exp:slow") for _ in range(2)]
    threads = [threading.Thread(target=lambda b=b: reports.append(b.run())) for b in builds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r.counts["executed"] for r in reports) == [0, 1]
    assert {r.exit_code for r in reports} == {0}
    served = next(r for r in reports if not r.counts["executed"])
    assert served.outcomes["//exp:slow"].reason.code is Code.WAITED


def test_two_processes_that_build_one_key_run_it_once(place):
    place.executor.close()
    command = [sys.executable, "-m", "marin_cas", "build", "//exp:slow", "--output", "json", "--progress", "none"]
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    running = [
        subprocess.Popen(command, cwd=place.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ended = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0], ended
    assert sorted(json.loads(out)["counts"]["executed"] for out, _ in ended) == [0, 1]


def test_events_are_json_lines_without_secrets():
    sink = io.StringIO()
    log = EventLog(sink, clock=lambda: 12.5)
    log.mask(["hunter2-token", "a"])
    log.emit("build_started", targets=["//exp:hunter2-token"])
    log.emit("log", lines=["key=hunter2-token", {"deep": ("hunter2-token",)}], key="ab")
    first, second = (json.loads(line) for line in sink.getvalue().splitlines())
    assert first == {"event": "build_started", "time": 12.5, "version": 1, "targets": ["//exp:***"]}
    assert second == {"event": "log", "time": 12.5, "lines": ["key=***", {"deep": ["***"]}], "key": "ab"}


def test_an_events_file_that_cannot_be_written_is_a_warning():
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    seen = []
    log = EventLog(Full(), [seen.append])
    log.emit("progress", done=1)
    log.emit("progress", done=2)
    assert [event.event for event in seen] == ["warning", "progress", "progress"]
    assert seen[0]["message"] == "the events file is incomplete: No space left on device"


def test_a_reader_of_events_that_goes_away_is_none():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    seen = []
    log = EventLog(Closed(), [seen.append])
    log.emit("progress", done=1)
    assert [event.event for event in seen] == ["progress"]
