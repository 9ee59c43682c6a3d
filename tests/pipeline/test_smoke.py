"""The 20-step variant of the experiment, changed, killed and moved."""

from __future__ import annotations

import os
import signal
import time

import pytest

from marin_cas.digest import hash_file

SMOKE = {"//exp:tiny_smoke", "//exp:tiny_smoke_eval"}

DATA = ("//exp:reference_tokens", "//exp:library_tokens", "//exp:held_out_tokens", "//exp:questions")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def built(experiment):
    experiment.build("//exp:tiny_smoke_eval")
    return experiment


def _hashes(folder):
    return {str(p.relative_to(folder)): hash_file(p).hex for p in sorted(folder.rglob("*")) if p.is_file()}


def test_two_workspaces_at_different_paths_agree(built, tmp_path):
    from_copy = _copy(built, tmp_path / "elsewhere" / "w")
    assert from_copy.executed("//exp:tiny_smoke_eval") > SMOKE
    assert from_copy.keys("deps(//exp:tiny_smoke_eval)") == built.keys("deps(//exp:tiny_smoke_eval)")
    for label in ("//exp:tiny_smoke%hf", "//exp:library_tokens", "//exp:tokenizer", "//exp:questions"):
        assert _hashes(from_copy.path(label)) == _hashes(built.path(label)), label
    assert from_copy.path("//exp:tiny_smoke_eval%scores").read_bytes() == (
        built.path("//exp:tiny_smoke_eval%scores").read_bytes()
    )


def test_another_learning_rate_runs_training_and_evaluation_only(built):
    built.edit("exp/BUILD.marin", "learning_rate = 0.01", "learning_rate = 0.02")
    try:
        assert built.executed("//exp:tiny_smoke_eval") == SMOKE
    finally:
        built.edit("exp/BUILD.marin", "learning_rate = 0.02", "learning_rate = 0.01")
    assert built.executed("//exp:tiny_smoke_eval") == set()


def test_a_changed_character_tokenizes_again_only_what_contains_it(built):
    """The reference changes in one character; the tokenizer was trained on other lines, so it comes out as before."""
    documents = built.path("//exp:reference")
    (built.root / "exp" / "fixed.py").write_text(
        "import shutil\n\n\ndef copy(ctx):\n"
        "    for path in sorted(ctx.inputs['files'].iterdir()):\n"
        "        shutil.copy(path, ctx.output_path / path.name)\n"
        "    train = ctx.output_path / 'train.jsonl'\n"
        "    train.write_text(train.read_text(encoding='utf-8') + ctx.params['more'], encoding='utf-8')\n",
        encoding="utf-8",
    )
    text = (built.root / "exp/BUILD.marin").read_text(encoding="utf-8")
    try:
        built.edit("exp/BUILD.marin", 'name = "reference"', 'name = "original"')
        line = '{\\"text\\": \\"one more a\\"}\\n'
        built.edit(
            "exp/BUILD.marin",
            "# Code: sources",
            'py_action(name = "reference", function = "exp/fixed.py:copy", inputs = {"files": ":original"}, '
            f'params = {{"more": "{line}"}})\n\n# Code: sources',
        )
        built.build(*DATA)
        built.edit("exp/BUILD.marin", "one more a", "one more b")
        ran = built.executed(*DATA)
    finally:
        (built.root / "exp/BUILD.marin").write_text(text, encoding="utf-8")
    assert {"//exp:reference", "//exp:reference_tokens"} <= ran
    assert not ran & {"//exp:library", "//exp:library_tokens", "//exp:original", "//exp:held_out_tokens"}
    assert documents.is_dir()


def test_killed_in_mid_training_and_built_again_it_exports_the_same_bytes(built, tmp_path):
    """A checkpoint every 5 steps, and a driver that is killed, with all it started, after the tenth."""
    expected = _hashes(built.path("//exp:tiny_smoke%hf"))
    again = _copy(built, tmp_path / "w")
    again.edit("exp/BUILD.marin", "steps_per_eval = 100", "steps_per_eval = 100,\n        checkpoint_every_steps = 5")
    events = tmp_path / "events"
    process = again.start("build", "//exp:tiny_smoke", "--events", str(events))
    deadline = time.monotonic() + 600
    while not _reached(events, 10):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    ran = again.build("//exp:tiny_smoke")
    (training,) = [a for a in ran["actions"] if a["source"] == "executed"]
    assert training["label"] == "//exp:tiny_smoke"
    assert _hashes(again.path("//exp:tiny_smoke%hf")) == expected
    assert "going on from the checkpoint of step" in again.run("logs", "//exp:tiny_smoke")


def _reached(events, step):
    import json

    if not events.exists():
        return False
    for line in events.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the last line is being written
        if event["event"] == "progress" and event.get("unit") == "steps" and event["done"] >= step:
            return True
    return False


def _copy(experiment, root):
    from dataclasses import replace
    from shutil import copytree, ignore_patterns

    copytree(experiment.root, root, ignore=ignore_patterns("cache", "__pycache__"))
    return replace(experiment, root=root)
