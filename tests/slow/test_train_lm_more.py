"""Where a training starts, how it mixes, and who is told: all by the tool itself, on tiny models."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from marin_cas.tools.train_lm import check_exported, out_of_memory
from marin_cas.worker.context import ToolError
from tests.slow.training import Job, Trainings, adam, expand_optimizer, llama, write_corpus

pytestmark = pytest.mark.slow
STILL = {"num_train_steps": 1, "export_every": 0, "optimizer": adam(learning_rate=0.0)}


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    folder = tmp_path_factory.mktemp("trainings")
    return Trainings(write_corpus(folder / "corpus"), folder)


def from_start(job: Job, name: str, path: Path) -> Job:
    return dataclasses.replace(job, inputs={**job.inputs, name: path})


@pytest.fixture(scope="module")
def start(trainings: Trainings) -> Job:
    """Told to W&B offline, in the second of two ways to shuffle."""
    settings = {"wandb_group": "tiny group", "tags": ["a", "b"], "env_vars": {"WANDB_MODE": "offline"}}
    job = trainings.job(num_train_steps=3, export_every=0, shuffle=True, settings=settings)
    job.run()
    return job


def test_wandb_has_one_run_with_the_keys_id_and_the_metrics(start: Job) -> None:
    """The real library, offline: what it would send is in the attempt's scratch folder and nowhere else."""
    (folder,) = (start.folder / "scratch" / "wandb").glob("wandb/offline-run-*")
    assert folder.name.endswith("-0123456789abcdef")
    record = next(folder.glob("run-*.wandb")).read_bytes()
    for text in (b"tiny group", b"marin", b"train/loss"):
        assert text in record, text
    assert "train/loss" in start.metrics[0]
    assert not list(start.folder.glob("out/**/*wandb*"))


def test_wandb_that_cannot_be_reached_costs_no_run(trainings: Trainings) -> None:
    job = trainings.job(**STILL)
    env = {"WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "2"}
    job = dataclasses.replace(job, env=env)
    job.run()
    assert "Weights & Biases is not told of this run" in job.log
    assert job.metrics[-1]["summary"]["steps"] == 1


def test_the_weights_alone_start_a_training_with_another_optimizer(trainings: Trainings, start: Job) -> None:
    lion = expand_optimizer(type="lion", learning_rate=0.0)
    native = start.folder / "out" / "native"
    job = from_start(trainings.job(**{**STILL, "optimizer": lion}), "init_weights", native)
    job.run()
    assert job.bytes_of("hf") == start.bytes_of("hf")


def test_a_hugging_face_folder_starts_a_training(trainings: Trainings, start: Job) -> None:
    job = from_start(trainings.job(**STILL), "init_hf", start.folder / "out" / "hf")
    job.run()
    assert job.bytes_of("hf")["hf/model.safetensors"] == start.bytes_of("hf")["hf/model.safetensors"]


@pytest.mark.parametrize(
    ("change", "params", "message"),
    [
        ({}, {"model": llama(num_layers=3)}, "`num_layers` of the model in `init_from` is 2, and that of `model` is 3"),
        ({"model_type": "mistral", "architectures": ["MistralForCausalLM"]}, {}, "holds a `mistral`, and `model` is a"),
        ({"vocab_size": 200}, {}, "the tokenizer has 300 tokens, and the model in `init_from` only 200"),
        ({"model_type": "bert"}, {}, "Levanter has no model of the type `bert`"),
        (None, {}, "there is no `config.json` of a Hugging Face model"),
    ],
)
def test_a_hugging_face_folder_that_does_not_fit(
    trainings: Trainings, start: Job, change: dict[str, Any] | None, params: dict[str, Any], message: str
) -> None:
    job = trainings.job(**{**STILL, **params})
    folder = job.folder.with_name(f"{job.folder.name}-hf")
    shutil.copytree(start.folder / "out" / "hf", folder)
    config = json.loads((folder / "config.json").read_text())
    if change is None:
        (folder / "config.json").unlink()
    else:
        (folder / "config.json").write_text(json.dumps(config | change))
    assert message in from_start(job, "init_hf", folder).refusal()


def test_a_model_with_more_rows_than_tokens_is_taken_as_it_is(trainings: Trainings, start: Job) -> None:
    """Some models have their vocabulary rounded up."""
    import numpy as np
    from safetensors.numpy import load_file, save_file

    job = trainings.job(**STILL)
    folder = job.folder.with_name(f"{job.folder.name}-hf")
    shutil.copytree(start.folder / "out" / "hf", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 304}))
    tensors = load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = np.concatenate([tensors[name], np.zeros((4, tensors[name].shape[1]), np.float32)])
    save_file(tensors, folder / "model.safetensors")
    from_start(job, "init_hf", folder).run()
    made = load_file(job.folder / "out" / "hf" / "model.safetensors")
    assert made["lm_head.weight"].shape == (304, 32)
    assert json.loads((job.folder / "out" / "hf" / "config.json").read_text())["vocab_size"] == 304


def test_a_training_ends_where_its_mixture_says_that_the_data_does(trainings: Trainings) -> None:
    options = {"stop_strategy": "first_exhausted", "max_train_batches": {"code": 1}, "mixture_block_size": 16}
    job = trainings.job(num_train_steps=12, export_every=0, mixture=options)
    job.run()
    summary = job.metrics[-1]["summary"]
    assert 0 < summary["steps"] < 12
    assert "the data was used up after step" in job.log
    with pytest.raises(ToolError, match="before the export of step 11"):
        check_exported((3, 11), summary["steps"])


def test_too_few_sequences_for_max_train_batches(trainings: Trainings) -> None:
    message = trainings.job(**STILL, mixture={"max_train_batches": {"web": 100000}}).refusal()
    assert "`max_train_batches` takes 100000 batches of 4" in message


def test_out_of_memory_names_what_helps() -> None:
    params = {"trainer": {"per_device_parallelism": -1}, "batch_size": 64, "model": llama()}
    error = RuntimeError("INTERNAL: x\nRESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.\nmore")
    problem = out_of_memory(error, params)
    assert problem is not None and problem.message == "out of memory: Out of memory allocating 123 bytes"
    assert problem.hint is not None
    for text in ('{"per_device_parallelism": 32}', '`gradient_checkpointing = "offload"`', "`tensor_parallel_size`"):
        assert text in problem.hint
    plain = out_of_memory(MemoryError(), {**params, "model": llama(gradient_checkpointing=False)})
    assert plain is not None and plain.hint is not None and "`gradient_checkpointing = True`" in plain.hint
    assert out_of_memory(RuntimeError("no such thing"), params) is None


def test_devices_that_share_layers_give_the_same_model_to_a_tolerance(trainings: Trainings) -> None:
    """The one exception to "what bears no identity changes no bytes": the order of sums depends on the devices.

    And an export is whole however its tensors are spread: Levanter's own would hold the first device's part of each.
    """
    import numpy as np
    from safetensors.numpy import load_file

    env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    found = []
    for size in (1, 2):
        job = trainings.job(num_train_steps=5, export_every=0, settings={"tensor_parallel_size": size})
        dataclasses.replace(job, env=env).run()
        found.append(load_file(job.folder / "out" / "hf" / "model.safetensors"))
    assert found[0]["model.layers.0.mlp.down_proj.weight"].shape == (32, 64)
    for name, tensor in found[0].items():
        np.testing.assert_allclose(tensor, found[1][name], atol=2e-4, err_msg=name)
    assert "and there are 1 devices" in trainings.job(settings={"tensor_parallel_size": 2}).refusal()


CHOICE = """
task: choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: questions/test.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
"""


def test_scores_during_a_training_are_metrics_and_change_no_weight(trainings: Trainings, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "t.yaml").write_text(CHOICE)
    (tmp_path / "questions").mkdir()
    rows = [{"context": f"question {n}", "choices": ["yes", "no"], "answer": n % 2} for n in range(4)]
    (tmp_path / "questions" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"name": "choice", "num_fewshot": None, "task_alias": "", "task_kwargs": {}}
    live = {"tasks": [task], "data": ["questions"], "hub": {}, "unsafe_code": [], "every": 2, "limit": None}
    plain = trainings.job(num_train_steps=4, export_every=0)
    plain.run()
    job = trainings.job(num_train_steps=4, export_every=0, settings={"live": live})
    more = {"live.task_files": tmp_path / "tasks", "live.data.questions": tmp_path / "questions"}
    dataclasses.replace(job, inputs={**job.inputs, **more}).run()
    assert [line["step"] for line in job.metrics[:-1] if "lm_eval/choice/acc" in line] == [2, 4]
    assert job.bytes_of("hf") == plain.bytes_of("hf")
