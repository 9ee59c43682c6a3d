"""An evaluation whose model and whose tasks' data come from a Hub, as a user declares it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CHECKOUT
from tests.hub.conftest import Beside
from tests.hub.test_tokenized import folder, lines, trained

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

MODEL = """
import sys
import jax, haliax as hax
from levanter.models.llama import LlamaConfig
from levanter.tokenizers import load_tokenizer
from levanter.trainer import TrainerConfig
folder, out = sys.argv[1:]
tokenizer = load_tokenizer(folder)
config = LlamaConfig(
    max_seq_len=256, hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, num_kv_heads=2,
    gradient_checkpointing=False, tokenizer=folder,
)
with TrainerConfig(require_accelerator=False).use_device_mesh():
    model = config.build(hax.Axis("vocab", len(tokenizer)), key=jax.random.PRNGKey(0))
    converter = config.hf_checkpoint_converter().replaced(tokenizer=tokenizer)
    converter.save_pretrained(model, out, save_reference_code=False)
"""
BUILD = """
load("@marin//rules:eval.bzl", "lm_eval", "eval_task")
load("@marin//rules:resources.bzl", "cpu")

hf_download(name = "model", hf_id = "me/tiny", repo_type = "model", revision = "main")

[
    lm_eval(
        name = name,
        checkpoint = ":model",
        tasks = [eval_task("leaderboard_musr", 0, task_alias = "musr_0shot")],
        resources = cpu(ram = "2g"),
        **attrs
    )
    for name, attrs in {
        "score": {},
        "other": {"limit": 1},
        "elsewhere": {"backend": "vllm", "engine_kwargs": {"max_model_len": 256}},
    }.items()
]
"""
SPLITS = ("murder_mysteries", "object_placements", "team_allocation")


def musr() -> dict[str, bytes]:
    """A dataset repo with a split for each task, as the real one has."""
    row = {"narrative": "It was the cat.", "question": "Who?", "choices": "['a cat', 'a dog']", "answer_index": 0}
    rows = (json.dumps({**row, "answer_choice": "a cat", "n": n}) + "\n" for n in range(3))
    text = "".join(rows).encode()
    readme = "---\nconfigs:\n- config_name: default\n  data_files:\n" + "".join(
        f"  - split: {split}\n    path: {split}.jsonl\n" for split in SPLITS
    )
    return {"README.md": f"{readme}---\n".encode()} | {f"{split}.jsonl": text for split in SPLITS}


def tiny(base: Path) -> dict[str, bytes]:
    base.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "JAX_", "XLA_"))}
    env |= {"PYTHONPATH": str(CHECKOUT), "HF_HUB_OFFLINE": "1", "HOME": str(base), "JAX_PLATFORMS": "cpu"}
    (base / "t").mkdir()
    tokenizer = trained(base / "t", lines(0, 300))
    done = subprocess.run(
        [sys.executable, "-c", MODEL, str(tokenizer), str(base / "model")], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder(base / "model")


def test_a_group_of_tasks_is_scored_on_what_the_hub_has(beside: Beside, tmp_path: Path) -> None:
    beside.hub.repo("me/tiny", tiny(tmp_path / "made"), type="model")
    repo = beside.hub.repo("TAUR-Lab/MuSR")
    commit = repo.commit(musr())
    beside.declare(BUILD)
    beside.mini.write({"marin.lock": (CHECKOUT / "marin.lock").read_text()})
    assert "dataset TAUR-Lab/MuSR@main" in beside.run("build", "//exp:score", "--locked", code=2).err
    beside.ok("lock")
    assert f'"dataset TAUR-Lab/MuSR@main" = "{commit}"' in (beside.mini.root / "marin.lock").read_text()

    beside.ok("build", "//exp:score", "--locked", "-q")
    out = beside.mini.root / "cache/out/exp/score"
    scores = json.loads((out / "scores").read_text())
    leaves = [f"musr_0shot_{split}" for split in SPLITS]
    assert scores["groups"] == {"musr_0shot": leaves}
    assert {name: scores["n_samples"][name]["effective"] for name in leaves} == dict.fromkeys(leaves, 3)
    each = [scores["tasks"][name]["acc_norm"] for name in leaves]
    assert scores["averages"]["macro_avg_acc_norm"] == pytest.approx(sum(each) / 3)
    assert scores["averages"]["micro_avg_acc_norm"] == pytest.approx(sum(each) / 3)
    assert sorted(path.name for path in (out / "samples").iterdir()) == [f"{name}.jsonl" for name in leaves]

    # Two evaluations of one model: two keys, what they download is downloaded once.
    planned = {line["action"]: line for line in beside.ok("build", "-n", "//exp:other", "--output", "json").json}
    assert planned["//exp:other"]["status"] == "miss"
    assert all(line["status"] == "hit" for action, line in planned.items() if action != "//exp:other")

    # A backend that is not there may be declared.
    ran = beside.run("build", "//exp:elsewhere", code=3)
    assert "the backend `vllm` needs the package `vllm`, which is not installed here" in ran.err

    # A moved branch changes nothing until the lock does.
    repo.commit({**musr(), "murder_mysteries.jsonl": musr()["murder_mysteries.jsonl"] * 2})
    assert beside.ok("build", "//exp:score", "--locked", "--output", "json").json["counts"]["executed"] == 0
