"""Rolling checkpoints: the newest whole one is taken, damage is never mistaken for absence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marin_cas.tools import levanter_rolling as rolling
from marin_cas.worker.context import ToolError


def checkpoint(root: Path, step: int, process: int = 1, *, sealed: bool = True) -> Path:
    folder = root / rolling.CHECKPOINTS / str(process) / f"step-{step - 1}"
    (folder / "d").mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps({"step": step - 1}))
    (folder / "d" / "data").write_bytes(bytes([step % 256]) * 100)
    if sealed:
        rolling.seal(folder, step)
    return folder


def export(root: Path, step: int) -> Path:
    folder = root / rolling.EXPORTS / str(step)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes([step % 256]) * 50)
    rolling.seal(folder, step)
    return folder


def test_none_is_none(tmp_path: Path) -> None:
    assert rolling.choose([tmp_path / "scratch", tmp_path / "earlier"], []) is None


def test_one_that_was_never_finished_is_none_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint(tmp_path, 10, sealed=False)
    assert rolling.choose([tmp_path], []) is None
    assert "starting at step 0" in caplog.text


def test_the_newest_of_all_attempts_is_taken(tmp_path: Path) -> None:
    checkpoint(tmp_path / "a", 10)
    newest = checkpoint(tmp_path / "b", 30)
    checkpoint(tmp_path / "b", 20)
    found = rolling.choose([tmp_path / "a", tmp_path / "b"], [])
    assert found is not None
    assert (found.step, found.folder, found.root) == (30, newest, tmp_path / "b")


@pytest.mark.parametrize(
    ("tear", "why"),
    [
        (lambda f: (f / "d" / "data").unlink(), "`d/data` is missing"),
        (lambda f: (f / "d" / "data").write_bytes(b"xx"), "`d/data` has 2 bytes instead of 100"),
        (lambda f: (f / "d" / "data").write_bytes(b"x" * 100), "`d/data` has other bytes"),
        (lambda f: (f / "d" / "more").write_bytes(b"x"), "`d/more` does not belong there"),
        (lambda f: rolling.manifest_path(f).write_text('{"st'), "its manifest cannot be read"),
    ],
)
def test_a_damaged_newest_gives_way_to_an_older_one_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tear, why: str
) -> None:
    checkpoint(tmp_path, 10)
    tear(checkpoint(tmp_path, 20))
    found = rolling.choose([tmp_path], [])
    assert found is not None and found.step == 10
    assert f"the rolling checkpoint of step 20 is unreadable ({why}): going on from the older one of step 10" in (
        caplog.text
    )


def test_only_damaged_ones_are_an_error_and_never_step_0(tmp_path: Path) -> None:
    for step in (10, 20):
        (checkpoint(tmp_path, step) / "metadata.json").unlink()
    with pytest.raises(ToolError) as caught:
        rolling.choose([tmp_path], [])
    assert "no rolling checkpoint can be read, and the run was at step 20" in caught.value.message
    assert "marin build --again" in (caught.value.hint or "")


def test_a_checkpoint_whose_exports_are_gone_is_of_no_use(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20)
    export(tmp_path, 8)
    found = rolling.choose([tmp_path], [8, 16, 24])
    assert found is not None and found.step == 10
    export(tmp_path, 16)
    found = rolling.choose([tmp_path], [8, 16, 24])
    assert found is not None and found.step == 20


def test_what_is_discarded_is_gone_as_a_whole(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 10)
    rolling.discard(folder)
    assert rolling.kept(tmp_path, rolling.CHECKPOINTS) == []
    assert not folder.exists()
    rolling.discard(folder)


def test_metrics_of_an_earlier_attempt_are_kept_up_to_its_checkpoint(tmp_path: Path) -> None:
    source, target = tmp_path / "old", tmp_path / "new"
    source.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"summary": {}}\n{"st')
    rolling.copy_metrics(source, target, 2)
    assert target.read_text() == '{"step": 1}\n{"step": 2}\n'
    rolling.copy_metrics(tmp_path / "absent", target, 2)
    assert target.read_text() == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["whole", "torn", "unfinished"])), unique_by=lambda p: p[0])
)
def test_choice_is_the_greatest_whole_step_or_an_error_if_something_was_lost(
    tmp_path_factory: pytest.TempPathFactory, states: list[tuple[int, str]]
) -> None:
    root = tmp_path_factory.mktemp("scratch")
    for step, state in states:
        folder = checkpoint(root, step, sealed=state != "unfinished")
        if state == "torn":
            (folder / "d" / "data").write_bytes(b"")
    whole = [step for step, state in states if state == "whole"]
    torn = [step for step, state in states if state == "torn"]
    if whole or not torn:
        found = rolling.choose([root], [])
        assert (found.step if found else None) == max(whole, default=None)
    else:
        with pytest.raises(ToolError):
            rolling.choose([root], [])
