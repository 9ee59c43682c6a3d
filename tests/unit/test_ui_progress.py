"""Displays of a build's progress, fed with events."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin_cas.errors import BuildError
from marin_cas.scheduler import events
from marin_cas.scheduler.events import Event
from marin_cas.ui.live import Live
from marin_cas.ui.out import visible
from marin_cas.ui.plain import Plain
from marin_cas.ui.progress import Silent, progress, rich_wanted
from marin_cas.ui.state import State

STORY = [
    Event(events.BUILD_STARTED, 100.0, {"version": 1}),
    Event(events.ACTION_FINISHED, 100.1, {"label": "//a:a", "status": "succeeded", "source": "local"}),
    Event(events.ACTION_STARTED, 100.2, {"label": "//a:b", "rule": "train_lm"}),
    Event(
        events.PROGRESS,
        130.0,
        {"label": "//a:b", "done": 1200, "total": 10000, "unit": "steps", "fields": {"loss": 4.215678}},
    ),
    Event(events.PROGRESS, 131.0, {"label": "//a:b", "done": 1210, "total": 10000, "unit": "steps"}),
    Event(events.LOG, 132.0, {"label": "//a:b", "path": "/nothing/there"}),
    Event(events.WARNING, 132.0, {"message": "the disk is nearly full"}),
    Event(
        events.ACTION_FINISHED,
        226.0,
        {"label": "//a:b", "status": "succeeded", "source": "executed", "seconds": 125.8},
    ),
    Event(events.ACTION_STARTED, 226.0, {"label": "//a:c", "rule": "lm_eval"}),
    Event(events.ACTION_FINISHED, 227.0, {"label": "//a:c", "status": "failed", "source": "executed", "seconds": 1.0}),
    Event(events.ACTION_FINISHED, 227.0, {"label": "//a:d", "status": "skipped", "reason": {"text": "needs `//a:c`"}}),
]


def test_the_state_follows_the_events() -> None:
    state = State()
    for event in STORY[:4]:
        state.apply(event)
    assert state.running["//a:b"].how_far() == "1,200/10,000 steps, loss 4.216"
    assert state.line(130.0) == "1 running, 1 served, 30 s"
    for event in STORY[4:]:
        state.apply(event)
    assert not state.running
    assert (state.executed, state.hits, state.failed, state.skipped) == (1, 1, 1, 1)
    assert state.warnings == ["the disk is nearly full"]


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Plain() as display:
        for event in STORY:
            display(event)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "start   //a:b",
        "        //a:b  1,200/10,000 steps, loss 4.216",
        "warning: the disk is nearly full",
        "done    //a:b  2 min 06 s",
        "start   //a:c",
        "FAILED  //a:c  1.0 s",
        "skip    //a:d  (needs `//a:c`)",
    ]


def test_verbose_adds_what_was_served_and_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"compiling\n10%\r20%\r\nlast")
    with Plain(verbose=True) as display:
        for event in STORY:
            display(Event(event.event, event.time, {**event.data, "path": str(log)}) if event.event == "log" else event)
    shown = capsys.readouterr().err
    assert "served  //a:a" in shown
    assert [line.strip() for line in shown.splitlines() if "|" in line] == [
        "//a:b| compiling",
        "//a:b| 20%",
        "//a:b| last",
    ]


def test_live_draws_and_takes_it_away(capsys: pytest.CaptureFixture[str]) -> None:
    from marin_cas.ui.live import Live

    with Live() as display:
        for event in STORY:
            display(event)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "done    //a:b" in shown.err
    assert "FAILED  //a:c" in shown.err


@pytest.mark.parametrize("display", ["plain", "live"])
def test_whatever_a_tool_says_is_shown_as_text(display: str, capsys: pytest.CaptureFixture[str]) -> None:
    odd = {
        "done": float("nan"),
        "total": float("inf"),
        "unit": "[/bold] \x1b[31m\r",
        "fields": {"[red]": [1], "n": None},
    }
    with Plain() if display == "plain" else Live() as shown:
        shown(Event(events.ACTION_STARTED, 100.0, {"label": "//a:b", "rule": "train_lm"}))
        for progress_of in (odd, {**odd, "done": 1, "total": 2}, {"done": "1", "total": [], "unit": None, "fields": 3}):
            shown(Event(events.PROGRESS, 130.0, {"label": "//a:b", **progress_of}))
            if isinstance(shown, Live):
                shown._live.refresh()
        shown(Event(events.WARNING, 131.0, {"message": "\x1b]0;title\x07red \x1b[31mone\x1b[0m\x07"}))
    assert "warning: red one\\x07" in capsys.readouterr().err


def test_controls_are_shown_and_colours_taken_out() -> None:
    assert visible("a\tb\nc é") == "a\tb\nc é"
    assert visible("\x1b[1;31mred\x1b[0m\x1b[2K \x9b \x7f \x00 \x1b") == "red \\x9b \\x7f \\x00 \\x1b"
    assert visible("50%\r100%") == "50%\\x0d100%"


def test_a_message_of_several_lines_is_one_error() -> None:
    error = BuildError("first\nerror: second", where="f.py:1", hint="third")
    assert error.render() == "error: f.py:1: first\n  error: second\n  hint: third"


def test_quiet_shows_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    with Silent() as display:
        for event in STORY:
            display(event)
    assert capsys.readouterr().err == "warning: the disk is nearly full\n"


@pytest.mark.parametrize(
    ("terminal", "environ", "rich"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"CI": "true"}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_who_gets_a_redrawn_display(terminal: bool, environ: dict[str, str], rich: bool) -> None:
    assert rich_wanted(terminal, environ) is rich


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(progress("plain"), Plain)
    assert isinstance(progress("none"), Silent)


def test_bytes_are_shown_as_sizes() -> None:
    state = State()
    state.apply(Event(events.ACTION_STARTED, 1.0, {"label": "//a:b", "rule": "hf_download"}))
    told = {"label": "//a:b", "done": 1_600_000, "total": 5_000_000_000, "unit": "bytes", "fields": {"files": 2}}
    state.apply(Event(events.PROGRESS, 2.0, told))
    assert state.running["//a:b"].how_far() == "1.5 MiB of 4.7 GiB, files 2"
    state.apply(Event(events.PROGRESS, 3.0, {**told, "total": None, "fields": {}}))
    assert state.running["//a:b"].how_far() == "1.5 MiB"
