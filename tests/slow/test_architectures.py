"""Every architecture and every optimizer that Levanter registers: a tiny init, one step and an export, or the reason.

Two processes share them; nothing here is about bits, so XLA does not optimise what it compiles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin_cas.analysis.schema import SCHEMAS
from tests.slow.training import ROOT, write_corpus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SCHEMA = json.loads(max(SCHEMAS.glob("levanter-*.json")).read_text())["roots"]
MODELS, OPTIMIZERS = SCHEMA["levanter.LmConfig"], SCHEMA["levanter.OptimizerConfig"]
# What Hugging Face calls a model that Levanter exports.
TYPES = {"qwen": "qwen2", "gemma3": "gemma3_text"}
# Those that are refused, and what Levanter says when one tries.
FAILS = {
    "mixtral": "IO callbacks do not support JVP",
    "snowball": "PartitionSpec passed to reshard cannot contain axis names that are of type Auto",
}
# Those that are refused for what they are: seen without a training.
UNFIT = {
    "gpt2_hyena": "not hasattr(config, 'hf_checkpoint_converter')",
    "modernbert": "'modernbert' not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "whisper": "not issubclass(config().model_type, LmHeadModel)",
}
PROBE = """
import json, sys
import levanter.config
from levanter.models.lm_model import LmConfig, LmHeadModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
choices = LmConfig.get_known_choices()
print(json.dumps([name for name, test in json.loads(sys.argv[1]).items() if eval(test, globals() | {"config": choices[name]})]))
print(json.dumps(sorted(choices)))
"""  # noqa: E501
NAMES = [
    *(f"model:{name}" for name in MODELS["choices"]),
    *(f"model:{name}" for name in FAILS),
    *(f"optimizer:{name}" for name in OPTIMIZERS["choices"]),
]


def environ(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "NPROC": "1",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "TQDM_DISABLE": "1",
        # Shared by both: what another optimizer leaves as it is, is compiled once.
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    }


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What came of each name."""
    folder = tmp_path_factory.mktemp("architectures")
    corpus = write_corpus(folder / "corpus")
    processes = []
    for number in range(2):
        runs = folder / f"{number}"
        runs.mkdir()
        command = [sys.executable, str(Path(__file__).with_name("architectures.py")), str(corpus), str(runs)]
        with (runs / "log").open("w") as log:
            process = subprocess.Popen(
                ["nice", *command, *NAMES[number::2]], env=environ(runs), stdout=subprocess.PIPE, stderr=log, text=True
            )
        processes.append((process, runs))
    found: dict[str, dict[str, Any]] = {}
    for process, runs in processes:
        out, _ = process.communicate()
        assert process.returncode == 0, (runs / "log").read_text()[-4000:]
        found |= {line["name"]: line for line in map(json.loads, out.splitlines())}
    return found


@pytest.mark.parametrize("name", MODELS["choices"])
def test_a_model_trains_and_has_a_hugging_face_form(told: dict[str, dict[str, Any]], name: str) -> None:
    found = told[f"model:{name}"]
    assert "failed" not in found, found["failed"]
    assert found["files"] == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert found["type"] == TYPES.get(name, name)
    (architecture,) = found["architectures"]
    assert architecture.endswith(("ForCausalLM", "LMHeadModel"))
    assert 4 < found["loss"] < 8


@pytest.mark.parametrize("name", OPTIMIZERS["choices"])
def test_an_optimizer_takes_a_step(told: dict[str, dict[str, Any]], name: str) -> None:
    found = told[f"optimizer:{name}"]
    assert "failed" not in found, found["failed"]
    assert 4 < found["loss"] < 8


def test_what_is_refused_cannot_and_levanter_says_why(told: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(UNFIT)], env=environ(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    unfit, registered = map(json.loads, done.stdout.splitlines())
    assert sorted(unfit) == sorted(UNFIT)
    assert registered == sorted([*MODELS["choices"], *MODELS["refused"]])
    assert sorted(MODELS["refused"]) == sorted([*FAILS, *UNFIT])
    for name, reason in FAILS.items():
        print(f"{name}: {MODELS['refused'][name]}: {told[f'model:{name}'].get('failed')}")
        assert reason in told[f"model:{name}"]["failed"]
