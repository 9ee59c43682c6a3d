"""The tool that evaluates, on models small enough to know what must come out."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin_cas.tools import trained_tokenizer
from marin_cas.worker.context import ToolContext

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WORDS = (
    *("a", "tree", "holds", "named", "blobs", "and", "every", "key", "is", "the", "digest", "of", "what", "made", "it"),
    *("so", "nobody", "asks", "who", "built", "this", "first"),
)

MODELS = """
import sys
import jax, haliax as hax, equinox as eqx
from levanter.models.llama import LlamaConfig
from levanter.tokenizers import load_tokenizer
from levanter.trainer import TrainerConfig
folder, out = sys.argv[1:]
tokenizer = load_tokenizer(folder)
config = LlamaConfig(
    max_seq_len=64, hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, num_kv_heads=2,
    gradient_checkpointing=False, tokenizer=folder,
)
with TrainerConfig(require_accelerator=False).use_device_mesh():
    model = config.build(hax.Axis("vocab", len(tokenizer)), key=jax.random.PRNGKey(0))
    converter = config.hf_checkpoint_converter().replaced(tokenizer=tokenizer)
    converter.save_pretrained(model, out + "/random", save_reference_code=False)
    zeros = jax.tree.map(lambda x: x * 0 if eqx.is_array(x) else x, model)
    converter.save_pretrained(zeros, out + "/uniform", save_reference_code=False)
"""
TOOL = """
import json, sys
from pathlib import Path
from marin_cas.tools import lm_eval
from marin_cas.worker.context import ToolContext
job = json.loads(Path("job.json").read_text())
Path("out/samples").mkdir(parents=True)
Path("scratch").mkdir()
lm_eval.run(ToolContext(
    job["params"], {}, {n: Path("in") / n for n in job["inputs"]},
    {"scores": Path("out/scores"), "samples": Path("out/samples")}, Path("scratch"),
))
"""


def python(script: str, *args: str, cwd: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "JAX_", "XLA_"))}
    env |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "NPROC": "1", "HOME": str(cwd), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script, *args], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tokenizer/`, `models/{random,uniform}/`, `data/` and `tasks/`."""
    root = tmp_path_factory.mktemp("made")
    for name in ("documents", "tokenizer", "models", "data/questions", "data/windows", "tasks"):
        (root / name).mkdir(parents=True)
    chance = random.Random(1)
    texts = [" ".join(chance.choices(WORDS, k=40)) for _ in range(60)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (root / "documents/d.jsonl").write_text(lines)
    params = {"glob": "*", "text_key": "text", "vocab_size": 290, "min_frequency": 2}
    params |= {"eos": "<|end|>", "bos": "", "special_tokens": []}
    inputs, outputs = {"documents": root / "documents"}, {"tokenizer": root / "tokenizer"}
    trained_tokenizer.run(ToolContext(params, {}, inputs, outputs, root))
    questions, windows = [], []
    for number, text in enumerate(texts[:25]):
        words = text.split()
        choices = [" ".join(texts[(number + other) % 60].split()[20:25]) for other in range(4)]
        questions.append({"context": " ".join(words[:20]), "choices": choices, "answer": number % 4})
        windows.append(window(root / "tokenizer", " ".join(words[:3]), " " + " ".join(words[3:20])))
    for name, rows in (("questions", questions), ("windows", windows)):
        (root / "data" / name / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("continuation.yaml", "held_out_text.yaml", "measures.py"):
        (root / "tasks" / name).write_bytes((ROOT / "exp/tasks" / name).read_bytes())
    python(MODELS, str(root / "tokenizer"), str(root / "models"), cwd=root)
    return root


def window(tokenizer: Path, start: str, rest: str) -> dict[str, Any]:
    from tokenizers import Tokenizer

    encode = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).encode
    tokens = len(encode(start + rest).ids) - len(encode(start).ids)
    return {"context": start, "text": rest, "tokens": tokens, "unigram_entropy": 3.5}


def evaluate(base: Path, made: Path, model: str, tasks: list[dict[str, Any]], **params: Any) -> dict[str, bytes]:
    """What the tool wrote, by its path in the outputs; run in a folder of its own."""
    (base / "in").mkdir(parents=True)
    inputs = {
        "hf": made / "models" / model,
        "task_files": made / "tasks",
        "data.questions": made / "data/questions",
        "data.windows": made / "data/windows",
    }
    for name, path in inputs.items():
        (base / "in" / name).symlink_to(path)
    whole = {
        "tasks": [{"num_fewshot": None, "task_alias": "", "task_kwargs": {}} | task for task in tasks],
        "data": ["questions", "windows"],
        "limit": None,
        "batch_size": 4,
        "max_seq_len": None,
        "mp": "params=float32,compute=float32,output=float32",
        "nproc": 1,
        "apply_chat_template": False,
    } | params
    (base / "job.json").write_text(json.dumps({"params": whole, "inputs": list(inputs)}))
    python(TOOL, cwd=base)
    out = base / "out"
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


SHOTS = {"fewshot_split": "test"}
BOTH = [{"name": "continuation"}, {"name": "held_out_text"}]


def test_a_uniform_model_has_the_loss_of_a_uniform_model(made: Path, tmp_path: Path) -> None:
    found = json.loads(evaluate(tmp_path, made, "uniform", BOTH)["scores"])
    # Each token costs the logarithm of the vocabulary, so this also says that tokens are counted as they are scored.
    assert found["tasks"]["held_out_text"]["loss"] == pytest.approx(math.log(290), rel=1e-5)
    assert found["tasks"]["held_out_text"]["unigram_entropy"] == pytest.approx(3.5)
    assert found["n_samples"]["continuation"] == {"original": 25, "effective": 25}
    assert 0 < found["tasks"]["continuation"]["acc_stderr"] < 0.11


def test_scores_and_samples_are_the_same_bytes_again_without_a_path(made: Path, tmp_path: Path) -> None:
    tasks = [*BOTH, {"name": "continuation", "task_alias": "two_shot", "num_fewshot": 2, "task_kwargs": SHOTS}]
    one = evaluate(tmp_path / "one", made, "random", tasks, limit=12)
    two = evaluate(tmp_path / "another place", made, "random", tasks, limit=12)
    assert one == two
    assert sorted(one) == [
        "samples/continuation.jsonl",
        "samples/held_out_text.jsonl",
        "samples/two_shot.jsonl",
        "scores",
    ]
    everything = b"".join(one.values())
    for secret in (str(tmp_path), str(made), str(ROOT)):
        assert secret.encode() not in everything
    found = json.loads(one["scores"])
    assert found["n_shot"] == {"continuation": 0, "held_out_text": 0, "two_shot": 2}
    assert [counts["effective"] for counts in found["n_samples"].values()] == [12, 12, 12]
    samples = [json.loads(line) for line in one["samples/continuation.jsonl"].splitlines()]
    assert [sample["doc_id"] for sample in samples] == list(range(12))
    assert found["tasks"]["continuation"]["acc"] == sum(sample["acc"] for sample in samples) / 12
    # A model that gives each text its own odds: the loss is that of the scored texts, weighed by their tokens.
    texts = [json.loads(line) for line in one["samples/held_out_text.jsonl"].splitlines()]
    nats = -sum(float(sample["filtered_resps"][0][0]) for sample in texts)
    assert found["tasks"]["held_out_text"]["loss"] == pytest.approx(nats / sum(s["doc"]["tokens"] for s in texts))
