"""Trains each named architecture or optimizer for one step and exports it, through the code of the tool.

Run with names such as `model:llama` and `optimizer:lion`; a JSON line for each says how it went. A model that analysis
refuses is made straight from Levanter's class, so that Levanter's own reason is seen.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from marin_cas.analysis.lock import Lock
from marin_cas.analysis.schema import expand

LOCK = Lock({"marin-levanter": "0.2.227.dev40316220070"})
SIZES = {
    "max_seq_len": 32,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "shared_expert_intermediate_dim": 16,
    "num_layers": 2,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 8,
    "num_experts": 2,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "num_experts_per_token": 1,
    "moe_intermediate_dim": 16,
}
STEPS = 1


def expanded(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return expand(name, fields, lock=LOCK, where=None, what=name)


def tiny(kind: str) -> dict[str, Any]:
    """The smallest model of a type, as a key holds it."""
    from levanter.models.lm_model import LmConfig

    from marin_cas.tools import levanter_schema

    cls = levanter_schema.choices_of(LmConfig)[kind]
    stated = {name: value for name, value in SIZES.items() if name in levanter_schema.field_hints(cls)}
    if kind in levanter_schema.REFUSED_MODELS:
        return levanter_schema.expand_instance(cls(**stated), LmConfig)
    return expanded(levanter_schema.MODELS, {"type": kind, **stated})


def train(model: dict[str, Any], optimizer: dict[str, Any], corpus: Path, folder: Path) -> dict[str, Any]:
    """What the export's config says, and the loss of the step."""
    from marin_cas.tools import levanter_run
    from marin_cas.tools.levanter_inputs import read_components
    from marin_cas.tools.levanter_metrics import MetricsFile, MetricsTracker

    (folder / "checkpoints" / "1").mkdir(parents=True)
    metrics = MetricsFile(folder / "metrics", lambda step, values: None)
    web = {"name": "web", "input": "web", "weight": 1.0, "validation": False}
    plan = levanter_run.Plan(
        params={
            "model": model,
            "optimizer": optimizer,
            "trainer": expanded("levanter.TrainerConfig", {}),
            "shuffle": True,
            "batch_size": 2,
            "seq_len": 32,
            "num_train_steps": STEPS,
            "z_loss_weight": 0.0,
            "mp": "params=float32,compute=float32,output=float32",
            "seed": 0,
            "data_seed": None,
        },
        components=tuple(read_components([web], {"web": corpus / "web"})),
        tokenizer=corpus / "tokenizer",
        scratch=folder,
        attempt=folder / "checkpoints" / "1",
        log_folder=folder / "log",
        exports=(),
        resume=None,
        start={},
        steps_per_eval=10,
        max_eval_batches=None,
        checkpoint_seconds=None,
        checkpoint_every=None,
        trackers=(MetricsTracker(metrics),),
    )
    levanter_run.train(plan)
    export = plan.export_folder(STEPS)
    config = json.loads((export / "config.json").read_text())
    return {
        "architectures": config.get("architectures"),
        "type": config["model_type"],
        "files": sorted(path.name for path in export.iterdir()),
        "loss": metrics.last.get("train/loss"),
    }


def attempt(name: str, corpus: Path, folder: Path) -> dict[str, Any]:
    what, _, kind = name.partition(":")
    started = time.perf_counter()
    told: dict[str, Any] = {"name": name}
    try:
        optimizer = {"type": kind} if what == "optimizer" else {"type": "adam", "learning_rate": 1e-3}
        model = tiny(kind if what == "model" else "llama")
        told |= train(model, expanded("levanter.OptimizerConfig", optimizer), corpus, folder / name.replace(":", "-"))
    except Exception as error:
        told["failed"] = f"{type(error).__name__}: {error}"
    return told | {"seconds": round(time.perf_counter() - started, 1)}


def main(arguments: list[str]) -> None:
    corpus, folder, *names = arguments
    os.environ["HF_HOME"] = str(Path(folder, "huggingface"))
    import levanter.config  # noqa: F401  (registers what a config may name)

    for name in names:
        print(json.dumps(attempt(name, Path(corpus), Path(folder))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
