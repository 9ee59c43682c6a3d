"""The whole of //exp:tiny_eval, from what CPython ships to a score, and what happens to it afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

ALL = {
    "//exp:reference", "//exp:library", "//exp:sample", "//exp:held_out", "//exp:tokenizer", "//exp:library_tokens",
    "//exp:reference_tokens", "//exp:held_out_tokens", "//exp:questions", "//exp:windows",
}  # fmt: skip
TRAINED = {"//exp:tiny", "//exp:tiny_eval"}

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def built(experiment):
    """The first build: everything runs."""
    report = experiment.build("//exp:tiny_eval", "//exp:tiny_step0_eval")
    assert {a["label"] for a in report["actions"] if a["source"] == "executed"} == (
        ALL | TRAINED | {"//exp:tiny_step0", "//exp:tiny_step0_eval"}
    )
    return experiment


def _scores(experiment, label):
    return json.loads(experiment.path(f"{label}%scores").read_text(encoding="utf-8"))["tasks"]


def test_it_learned(built):
    trained, fresh = _scores(built, "//exp:tiny_eval"), _scores(built, "//exp:tiny_step0_eval")
    text = trained["held_out_text"]
    assert text["loss"] < text["unigram_entropy"]
    assert fresh["held_out_text"]["loss"] > text["unigram_entropy"]
    after, before = trained["continuation"], fresh["continuation"]
    error = (after["acc_stderr"] ** 2 + before["acc_stderr"] ** 2) ** 0.5
    assert after["acc"] - before["acc"] > 2 * error


def test_the_build_prints_the_scores(built):
    shown = built.run("build", "//exp:tiny_eval")
    for number in ("acc", "loss", "unigram_entropy"):
        assert number in shown


def test_again_it_is_a_no_op(built):
    built.run("build", "//exp:tiny_eval")
    counts = built.build("//exp:tiny_eval")["counts"]
    assert counts["executed"] == 0
    assert counts["up_to_date"] >= 1
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    bare, start = time.perf_counter() - start, time.perf_counter()
    built.run("build", "//exp:tiny_eval")
    # The measured limit is in benchmarks/noop.py; this one only catches a no-op that does work.
    assert time.perf_counter() - start < bare + 5


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# A whole experiment", "# Another comment\n\n# A whole experiment"),
        ("steps_per_eval = 100", "steps_per_eval = 90"),
        ("name = name,\n        batch_size", 'name = name,\n        tags = ["other"],\n        batch_size'),
        ('cpu = 2,\n            ram = "3g"', 'cpu = 1,\n            ram = "4g"'),
    ],
    ids=["comment", "cadence", "tags", "resources"],
)
def test_what_bears_no_identity_executes_nothing(built, before, after):
    text = (built.root / "exp/BUILD.marin").read_text(encoding="utf-8")
    built.edit("exp/BUILD.marin", before, after)
    try:
        assert built.executed("//exp:tiny_eval") == set()
    finally:
        (built.root / "exp/BUILD.marin").write_text(text, encoding="utf-8")


def test_another_learning_rate_would_train_and_evaluate_only(built):
    built.edit("exp/BUILD.marin", "learning_rate = 0.01", "learning_rate = 0.02")
    try:
        assert built.misses("//exp:tiny_eval") == TRAINED
        assert "optimizer.learning_rate: 0.01 -> 0.02" in built.run("why", "//exp:tiny")
    finally:
        built.edit("exp/BUILD.marin", "learning_rate = 0.02", "learning_rate = 0.01")


def test_the_store_is_whole(built):
    built.run("cache", "verify")


def test_no_path_of_this_machine_is_in_what_consumers_read(built):
    for label in ("//exp:tiny%hf", "//exp:tiny_eval%scores", "//exp:library_tokens"):
        found = built.path(label)
        files = [found] if found.is_file() else [p for p in found.rglob("*") if p.is_file()]
        assert files
        for path in files:
            assert str(built.root).encode() not in path.read_bytes(), path


def test_why_and_aquery_answer(built):
    assert "//exp:tiny" in built.run("why", "//exp:tiny")
    (action,) = json.loads(built.run("aquery", "//exp:tiny", "--output", "json"))
    assert action["recipe"]["tool"] == "train_lm"
    assert len(action["key"]) == 64
