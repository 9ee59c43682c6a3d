"""Python scripts on the command line and by themselves: the same targets, results and errors as BUILD files have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from marin_cas.analysis.lock import lock_text
from tests.cli.conftest import Mini, Ran
from tests.identity.space import lock

BUILD = """
load("@marin//rules:data.bzl", "hf_download", "py_action", "raw_download", "tokenized", "trained_tokenizer")
load("@marin//rules:eval.bzl", "core_tasks")
load("@marin//rules:mixture.bzl", "mixture")
load("@marin//rules:models.bzl", "adam", "llama")
load("@marin//rules:resources.bzl", "tpu")
load("@marin//rules:train.bzl", "train_lm")

hf_download(name = "raw", artifact = "raw/words", hf_id = "me/words", revision = "main", version = "2026.06.28")
trained_tokenizer(name = "tok", artifact = "tok", paths = glob(["text/*.txt"]), vocab_size = 300)
tokenized(
    name = "words",
    artifact = "tokenized/words",
    glob = "train/*.jsonl",
    raw = ":raw",
    tokenizer = ":tok",
    version = "2026.06.28",
)
tokenized(
    name = "held",
    artifact = "tokenized/held",
    paths = ["text/a.txt"],
    tokenizer = ":tok",
    validation = True,
    version = "2026.06.28",
)
train_lm(
    name = "small",
    artifact = "checkpoints/small",
    batch_size = 2,
    datasets = {":words": 1.5},
    evals = core_tasks(every = 10),
    model = llama(hidden_dim = 16, num_heads = 2, num_kv_heads = 2, max_seq_len = 16),
    num_train_steps = 20,
    optimizer = adam(learning_rate = 3e-3, warmup = 5),
    resources = tpu("v4-8"),
    seq_len = 16,
    tags = ["SMALL"],
    validation = [":held"],
    version = "2026.06.28",
    z_loss_weight = 1e-4,
)
"""
SCRIPT = """
from marin_cas.api import (
    AdamConfig, ArtifactStep, LevanterCheckpoint, LlamaConfig, ResourceConfig, StepRunner, core_tasks, hf_download,
    lower, tokenized, train_lm, trained_tokenizer,
)


def build(*, version: str = "2026.06.28") -> ArtifactStep[LevanterCheckpoint]:
    raw = hf_download("raw/words", hf_id="me/words", revision="main", version=version)
    tok = trained_tokenizer("tok", paths=["exp/text/a.txt", "exp/text/b.txt"], vocab_size=300)
    words = tokenized("tokenized/words", tokenizer=tok, raw=raw, glob="train/*.jsonl", version=version)
    held = tokenized("tokenized/held", tokenizer=tok, paths=["exp/text/a.txt"], validation=True, version=version)
    return train_lm(
        name="checkpoints/small",
        version=version,
        model=LlamaConfig(hidden_dim=16, num_heads=2, num_kv_heads=2, max_seq_len=16),
        optimizer=AdamConfig(learning_rate=3e-3, warmup=5),
        datasets={words: 1.5},
        validation=[held],
        batch_size=2,
        seq_len=16,
        num_train_steps=20,
        z_loss_weight=1e-4,
        evals=core_tasks(every=10),
        resources=ResourceConfig.with_tpu("v4-8"),
        tags=["SMALL"],
    )


if __name__ == "__main__":
    StepRunner().run([lower(build())], dry_run=True)
"""


@pytest.fixture
def both(mini: Mini) -> Mini:
    """The same targets in `//exp` and in `exp/small.py`."""
    mini.write(
        {
            "exp/BUILD.marin": BUILD,
            "exp/small.py": SCRIPT,
            "exp/text/a.txt": "some words\n",
            "exp/text/b.txt": "more words\n",
            "marin.lock": lock_text(lock()),
        }
    )
    return mini


def python(mini: Mini, *args: str, cwd: str = "") -> Ran:
    done = subprocess.run(
        [sys.executable, *args], cwd=mini.root / cwd, env=mini.environ(), capture_output=True, text=True, timeout=120
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def prints(mini: Mini, expression: str) -> dict[str, str]:
    """Fingerprints by artifact, of a target's main action."""
    records = mini.ok("aquery", expression, "--output", "json").json
    return {record["artifact"]: record["fingerprint"] for record in records if record["artifact"]}


def test_a_script_and_a_build_file_that_say_the_same_have_equal_fingerprints(both: Mini) -> None:
    written = prints(both, "deps(//exp:small)")
    declared = prints(both, "deps(exp/small.py:build)")
    assert len(written) == 5 and declared == written
