"""Tiny trainings by the tools themselves, each in a folder of its own, as a worker would run them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin_cas.analysis.lock import Lock
from marin_cas.analysis.schema import expand

ROOT = Path(__file__).parents[2]
STEPS, EXPORT_EVERY = 20, 8
LOCK = Lock({"marin-levanter": "0.2.227.dev40316220070"})
SETTINGS = {
    "steps_per_eval": 10,
    "max_eval_batches": None,
    "checkpoint_minutes": 10.0,
    "checkpoint_every_steps": None,
    "tensor_parallel_size": 1,
    "wandb_project": "marin",
    "wandb_group": None,
    "run_id": "tiny",
    "tags": [],
    "env_vars": {},
}

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
        run_id="0123456789abcdef",
    ))
except ToolError as error:
    print(json.dumps({"refused": error.message, "hint": error.hint}))
    sys.exit(7)
"""


def llama(**fields: Any) -> dict[str, Any]:
    sizes = {"max_seq_len": 64, "hidden_dim": 32, "intermediate_dim": 64, "num_layers": 2, "num_heads": 2}
    literal = {"type": "llama", "num_kv_heads": 1} | sizes | fields
    return expand("levanter.LmConfig", literal, lock=LOCK, where=None, what="model")


def expand_optimizer(**fields: Any) -> dict[str, Any]:
    return expand("levanter.OptimizerConfig", fields, lock=LOCK, where=None, what="optimizer")


def adam(**fields: Any) -> dict[str, Any]:
    return expand_optimizer(**({"learning_rate": 3e-3, "warmup": 0.1} | fields))


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
    env: Mapping[str, str] = field(default_factory=dict)

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
            **self.env,
        }
        with (self.folder / "log").open("w") as log:
            return subprocess.Popen(
                [*prefix, sys.executable, "-c", DRIVER], cwd=self.folder, env=env, stdout=log, stderr=log, text=True
            )

    def run(self, *prefix: str) -> None:
        process = self.start(*prefix)
        assert process.wait(timeout=600) == 0, self.log[-4000:]

    def refusal(self) -> str:
        """The message of the clean failure that it ends with, and the hint on a line of its own."""
        assert self.start().wait(timeout=600) == 7, self.log[-4000:]
        told = json.loads(self.log.splitlines()[-1])
        return f"{told['refused']}\n{told['hint'] or ''}"

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


def write_corpus(root: Path) -> Path:
    """A tokenizer and three tokenized sets: `web` and `code` to train on, `held_out` to evaluate."""
    import pydoc_data.topics

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
