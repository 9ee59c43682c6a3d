"""Tiny trainings by the tool itself: same bytes again, after a kill, and whatever does not bear identity."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from marin_cas.analysis.lock import Lock
from marin_cas.analysis.schema import expand

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STEPS, EXPORT_EVERY = 20, 8
LOCK = Lock({"marin-levanter": "0.2.227.dev40316220070"})
SETTINGS = {"steps_per_eval": 10, "max_eval_batches": None, "checkpoint_minutes": 10.0, "checkpoint_every_steps": None}

# What the worker does around a tool: its folder as the working directory, relative paths, a clean failure shown.
DRIVER = """
import json, sys
from pathlib import Path
from marin_cas.worker.context import ToolContext, ToolError

job = json.loads(Path("job.json").read_text())
for name, kind in job["outputs"].items():
    (Path("out", name) if kind == "tree" else Path("out")).mkdir(parents=True, exist_ok=True)
Path("scratch").mkdir(exist_ok=True)
from importlib import import_module
try:
    import_module("marin_cas.tools." + job["tool"]).run(ToolContext(
        params=job["params"], settings=job["settings"],
        inputs={name: Path("in", name) for name in job["inputs"]},
        outputs={name: Path("out", name) for name in job["outputs"]},
        scratch=Path("scratch"), earlier=tuple(Path("earlier", str(i)) for i in range(job["earlier"])),
    ))
except ToolError as error:
    print(json.dumps({"refused": error.message, "hint": error.hint}))
    sys.exit(7)
"""


def llama(**fields: Any) -> dict[str, Any]:
    sizes = {"max_seq_len": 64, "hidden_dim": 32, "intermediate_dim": 64, "num_layers": 2, "num_heads": 2}
    literal = {"type": "llama", "num_kv_heads": 1} | sizes | fields
    return expand("levanter.LmConfig", literal, lock=LOCK, where=None, what="model")


def adam(**fields: Any) -> dict[str, Any]:
    literal = {"learning_rate": 3e-3, "warmup": 0.1} | fields
    return expand("levanter.OptimizerConfig", literal, lock=LOCK, where=None, what="optimizer")


@dataclass
class Job:
    """One run of a tool in a folder of its own."""

    folder: Path
    tool: str
    params: Mapping[str, Any]
    inputs: Mapping[str, Path]
    outputs: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    earlier: tuple[Path, ...] = ()

    def start(self, *prefix: str) -> subprocess.Popen[str]:
        (self.folder / "in").mkdir(parents=True)
        (self.folder / "earlier").mkdir()
        for name, path in self.inputs.items():
            (self.folder / "in" / name).symlink_to(path)
        for index, path in enumerate(self.earlier):
            (self.folder / "earlier" / str(index)).symlink_to(path)
        job = {
            "tool": self.tool,
            "params": self.params,
            "settings": self.settings,
            "inputs": list(self.inputs),
            "outputs": self.outputs,
            "earlier": len(self.earlier),
        }
        (self.folder / "job.json").write_text(json.dumps(job))
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", str(self.folder.parent / "jax")),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        with (self.folder / "log").open("w") as log:
            return subprocess.Popen(
                [*prefix, sys.executable, "-c", DRIVER], cwd=self.folder, env=env, stdout=log, stderr=log, text=True
            )

    def run(self, *prefix: str) -> None:
        process = self.start(*prefix)
        assert process.wait(timeout=600) == 0, self.log[-4000:]

    def refusal(self) -> str:
        assert self.start().wait(timeout=600) == 7, self.log[-4000:]
        return json.loads(self.log.splitlines()[-1])["refused"]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "out" / "metrics").read_text().splitlines()]

    def bytes_of(self, *outputs: str) -> dict[str, str]:
        return {
            f"{output}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
            for output in outputs
            for path in sorted((self.folder / "out" / output).iterdir())
        }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer and three tokenized sets: `web` and `code` to train on, `held_out` to evaluate."""
    import pydoc_data.topics

    root = tmp_path_factory.mktemp("corpus")
    texts = [text for _, text in sorted(pydoc_data.topics.topics.items())]
    for name, part in (("web", texts[:20]), ("code", texts[20:40]), ("held_out", texts[40:46])):
        (root / "documents" / name).mkdir(parents=True)
        lines = "".join(json.dumps({"text": text}) + "\n" for text in part)
        (root / "documents" / name / "a.jsonl").write_text(lines)
    source = {"text_key": "text", "glob": "**"}
    tokens = {"vocab_size": 300, "min_frequency": 2, "eos": "<|endoftext|>", "bos": "", "special_tokens": []}
    documents = root / "documents"
    Job(root / "t", "trained_tokenizer", source | tokens, {"documents": documents / "web"}, {"tokenizer": "tree"}).run()
    (root / "tokenizer").symlink_to(root / "t" / "out" / "tokenizer")
    for name, split in (("web", "train"), ("code", "train"), ("held_out", "validation")):
        inputs = {"documents": documents / name, "tokenizer": root / "tokenizer"}
        params = source | {"split": split, "sample_count": None}
        Job(root / f"c.{name}", "tokenize", params, inputs, {"cache": "tree"}).run()
        (root / name).symlink_to(root / f"c.{name}" / "out" / "cache")
    return root


class Trainings:
    def __init__(self, corpus: Path, folder: Path) -> None:
        self.corpus, self.folder, self.count = corpus, folder, 0

    def job(
        self,
        *,
        order: tuple[str, ...] = ("code", "web", "held_out"),
        settings: Mapping[str, Any] | None = None,
        earlier: tuple[Path, ...] = (),
        **params: Any,
    ) -> Job:
        self.count += 1
        weights = {"code": 0.3, "web": 0.7, "held_out": 0.0}
        components = [
            {"name": n, "input": f"data.{i}", "weight": weights[n], "validation": n == "held_out"}
            for i, n in enumerate(order)
        ]
        whole = {
            "model": llama(),
            "optimizer": adam(),
            "trainer": expand("levanter.TrainerConfig", {}, lock=LOCK, where=None, what="trainer"),
            "components": components,
            "shuffle": {"io_block_size": 16, "window_blocks": 16, "perm_type": "feistel"},
            "batch_size": 4,
            "seq_len": 64,
            "num_train_steps": STEPS,
            "z_loss_weight": 0.0,
            "mp": "params=float32,compute=float32,output=float32",
            "seed": 0,
            "data_seed": None,
            "nproc": 1,
            "export_every": EXPORT_EVERY,
        } | params
        outputs = {"native": "tree", "hf": "tree", "metrics": "file"}
        if whole["export_every"]:
            steps = range(whole["export_every"], whole["num_train_steps"], whole["export_every"])
            outputs |= {f"hf.{step}": "tree" for step in steps}
        inputs = {f"data.{i}": self.corpus / n for i, n in enumerate(order)} | {"tokenizer": self.corpus / "tokenizer"}
        folder = self.folder / f"{self.count}"
        return Job(folder, "train_lm", whole, inputs, outputs, SETTINGS | dict(settings or {}), earlier)


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
