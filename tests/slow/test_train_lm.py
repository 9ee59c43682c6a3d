"""Tiny trainings by the tool itself: same bytes again, after a kill, and whatever does not bear identity."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.slow.training import STEPS, Job, Trainings, adam, write_corpus

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def trainings(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(corpus, tmp_path_factory.mktemp("trainings"))


HF = ("hf", "hf.8", "hf.16")


@pytest.fixture(scope="module")
def plain(trainings: Trainings) -> Job:
    job = trainings.job()
    job.run()
    return job


@pytest.fixture(scope="module")
def killed(trainings: Trainings) -> Path:
    """The scratch folder of a training killed at once after its checkpoint of step 15."""
    job = trainings.job(settings={"checkpoint_every_steps": 5})
    process = job.start()
    while process.poll() is None and not re.search("checkpoint of step 15 is complete", job.log):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL, job.log[-4000:]
    return job.folder / "scratch"


def copied(scratch: Path, name: str) -> Path:
    target = scratch.with_name(name)
    subprocess.run(["cp", "-r", scratch, target], check=True)
    return target


def test_outputs_are_a_model_folder_a_checkpoint_and_metrics_that_name_no_machine(plain: Job) -> None:
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    for output in HF:
        assert {path.name for path in (plain.folder / "out" / output).iterdir()} == names
    assert (plain.folder / "out" / "native" / "metadata.json").exists()
    for path in (plain.folder / "out").rglob("*"):
        assert path.is_dir() or str(plain.folder).encode() not in path.read_bytes(), path
    config = json.loads((plain.folder / "out" / "hf" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "transformers_version" not in config


def test_metrics_have_a_line_a_step_and_a_summary(plain: Job) -> None:
    *lines, last = plain.metrics
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert all(line["train/loss"] > 0 for line in lines)
    summary = last["summary"]
    assert summary["eval"] == {"held_out": lines[-1]["eval/held_out/loss"]}
    assert summary["train_loss"] == lines[-1]["train/loss"] < lines[0]["train/loss"]
    assert summary["resumed_from"] is None
    seconds = summary["seconds"]
    assert seconds["tool"] - seconds["main"] - seconds["imports"] < 3


def test_what_bears_no_identity_changes_no_bytes(trainings: Trainings, plain: Job) -> None:
    other = trainings.job(
        order=("web", "code"),  # no validation set, and the components in another order
        settings={"steps_per_eval": 7, "max_eval_batches": 1, "checkpoint_every_steps": 4},
    )
    other.run("taskset", "-c", "0")
    assert other.bytes_of(*HF) == plain.bytes_of(*HF)


def test_a_killed_training_goes_on_and_ends_with_the_same_bytes(trainings: Trainings, plain: Job, killed: Path) -> None:
    resumed = trainings.job(earlier=(killed,))
    before = sorted(path.relative_to(killed) for path in killed.rglob("*"))
    resumed.run()
    assert "going on from the checkpoint of step 15 of 20" in resumed.log
    assert resumed.bytes_of(*HF) == plain.bytes_of(*HF)
    assert [line.get("step") for line in resumed.metrics] == [*range(1, STEPS + 1), None]
    assert resumed.metrics[-1]["summary"]["resumed_from"] == 15
    assert sorted(path.relative_to(killed) for path in killed.rglob("*")) == before


def test_a_torn_newest_checkpoint_falls_back_to_the_one_before(trainings: Trainings, plain: Job, killed: Path) -> None:
    torn = copied(killed, "torn")
    data = next((torn / "checkpoints" / "1" / "step-14" / "d").iterdir())
    data.write_bytes(data.read_bytes()[:-1])
    resumed = trainings.job(earlier=(torn,))
    resumed.run()
    assert "the rolling checkpoint of step 15 is unreadable" in resumed.log
    assert "going on from the checkpoint of step 10 of 20" in resumed.log
    assert resumed.bytes_of(*HF) == plain.bytes_of(*HF)


def test_only_torn_checkpoints_fail_and_do_not_start_again(trainings: Trainings, killed: Path) -> None:
    torn = copied(killed, "all-torn")
    for folder in (torn / "checkpoints" / "1").glob("step-*/"):
        (folder / "metadata.json").unlink()
    message = trainings.job(earlier=(torn,)).refusal()
    assert message.startswith("no rolling checkpoint can be read, and the run was at step 15")


def test_no_steps_give_the_model_as_a_longer_run_begins(trainings: Trainings) -> None:
    none = trainings.job(num_train_steps=0, export_every=0)
    none.run()
    still = trainings.job(num_train_steps=1, export_every=0, optimizer=adam(learning_rate=0.0))
    still.run()
    assert none.bytes_of("hf") == still.bytes_of("hf")
    assert [line.get("step") for line in none.metrics] == [0, None]
    assert none.metrics[-1]["summary"]["eval"] == still.metrics[-1]["summary"]["eval"]


def test_a_loss_that_is_no_number_is_a_clear_failure(trainings: Trainings) -> None:
    optimizer = adam(learning_rate=1e30, max_grad_norm=None, warmup=0.0)
    message = trainings.job(export_every=0, optimizer=optimizer).refusal()
    assert re.match(r"the loss became (NaN|infinite) after step \d+ of 20", message)


def test_a_training_starts_from_another(trainings: Trainings, plain: Job) -> None:
    job = trainings.job(num_train_steps=1, export_every=0, optimizer=adam(learning_rate=0.0))
    job.inputs = {**job.inputs, "init": plain.folder / "out" / "native"}
    job.run()
    assert job.bytes_of("hf") == plain.bytes_of("hf")
