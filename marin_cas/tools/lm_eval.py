"""Scores a checkpoint's `hf` export on lm-eval tasks through Levanter's harness.

`scores` is a small JSON of numbers and `samples` one JSON-lines file a task; neither holds a path, a date or a host.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marin_cas.tools.eval_tasks import load_tasks
from marin_cas.worker.context import ToolContext, ToolError

REVISION = 1

# Resamples behind a standard error that has no closed form.
_BOOTSTRAP = 1000


def run(ctx: ToolContext) -> None:
    # All of these are read when the libraries are imported.
    os.environ["HF_DATASETS_CACHE"] = str(ctx.scratch.resolve() / "datasets")
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["DISABLE_MULTIPROC"] = "1"  # a bootstrap that forks would fork jax

    data = {name: ctx.inputs[f"data.{name}"].resolve() for name in ctx.params["data"]}
    ctx.progress(0, None, "loading tasks")
    tasks = load_tasks(ctx.params["tasks"], ctx.inputs.get("task_files"), data, ctx.scratch.resolve())
    ctx.progress(0, None, "loading the model")
    report = _evaluate(ctx, tasks)
    _write_samples(report.get("samples") or {}, ctx.outputs["samples"])
    text = json.dumps(scores(report), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    ctx.outputs["scores"].write_text(text + "\n", encoding="utf-8")


def _evaluate(ctx: ToolContext, tasks: Mapping[str, Any]) -> dict[str, Any]:
    import dataclasses

    import haliax as hax
    import jmp
    from levanter.distributed import DistributedConfig
    from levanter.eval_harness import LmEvalHarnessConfig, run_lm_eval_harness
    from levanter.model_loading import load_hf_checkpoint
    from levanter.tokenizers import load_tokenizer
    from levanter.tracker import NoopConfig
    from levanter.trainer import TrainerConfig
    from levanter.utils.tree_utils import inference_mode

    @dataclasses.dataclass(frozen=True)
    class Prepared(LmEvalHarnessConfig):
        """Levanter's own way to tasks indexes all of lm-eval's and downloads with retries for minutes."""

        def to_task_dict(self) -> dict:
            return dict(tasks)

    params = ctx.params
    folder = ctx.inputs["hf"].resolve()
    config = model_config(folder)
    trainer = TrainerConfig(
        id="eval",
        log_dir=ctx.scratch / "logs",
        mp=jmp.get_policy(params["mp"]),
        require_accelerator=False,
        distributed=DistributedConfig(initialize_jax_distributed=False),
        log_jaxprs=False,
        log_xla_hlo=False,
        tracker=NoopConfig(),
    )
    trainer.initialize()
    tokenizer = load_tokenizer(str(folder))
    harness = Prepared(
        task_spec=[],
        max_examples=params["limit"],
        max_length=params["max_seq_len"],
        log_samples=True,
        bootstrap_iters=_BOOTSTRAP,
        apply_chat_template=params["apply_chat_template"],
    )
    with trainer.use_device_mesh():
        model = load_hf_checkpoint(
            config,
            str(folder),
            axis_mapping=trainer.parameter_axis_mapping,
            tokenizer=tokenizer,
            compute_dtype=trainer.mp.compute_dtype,
        )
        ctx.progress(0, None, "scoring")
        report = run_lm_eval_harness(
            harness,
            inference_mode(model, True),
            tokenizer,
            hax.Axis("batch", params["batch_size"]),
            axis_resources=trainer.compute_axis_mapping,
            mp=trainer.mp,
        )
    if report is None:
        raise ToolError("another process than the first ran the evaluation")
    return report


def model_config(folder: Path):
    """Levanter's config of the model in a Hugging Face folder. ToolError when the folder does not hold one."""
    import dataclasses

    import levanter.config  # noqa: F401  (registers what a config may name)
    from levanter.models.lm_model import LmConfig
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise ToolError("the checkpoint's `hf` output has no `config.json`", where="hf")
    hf_config = AutoConfig.from_pretrained(str(folder))
    name = "qwen" if hf_config.model_type == "qwen2" else hf_config.model_type
    choices = LmConfig.get_known_choices()
    if name not in choices:
        raise ToolError(f"Levanter has no model of the type `{hf_config.model_type}`", where="hf/config.json")
    config = choices[name].from_hf_config(hf_config)
    # Without these Levanter asks a hub for the reference model's.
    local = {key: str(folder) for key in ("tokenizer", "reference_checkpoint") if hasattr(config, key)}
    return dataclasses.replace(config, **local)


def scores(report: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a report: `tasks`, `averages`, `versions`, `n_samples`, `n_shot`, `higher_is_better`."""
    return {
        "tasks": {task: _numbers(found) for task, found in report["results"].items()},
        "averages": _numbers(report.get("averages") or {}),
        "versions": {task: version for task, version in report["versions"].items() if _is_number(version)},
        "n_samples": {task: dict(counts) for task, counts in report["n-samples"].items()},
        "n_shot": dict(report["n-shot"]),
        "higher_is_better": {task: dict(metrics) for task, metrics in report["higher_is_better"].items()},
    }


def _numbers(found: Mapping[str, Any]) -> dict[str, float | int]:
    """Only the finite numbers, with lm-eval's `,none` (no filter) taken off their names."""
    numbers: dict[str, float | int] = {}
    for name, value in sorted(found.items()):
        value = value.item() if hasattr(value, "item") else value
        if _is_number(value) and math.isfinite(value) and name != "sample_len":
            numbers[name.removesuffix(",none")] = value
    return numbers


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _write_samples(samples: Mapping[str, Any], folder: Path) -> None:
    for task, entries in samples.items():
        with open(folder / f"{task.replace('/', '__')}.jsonl", "w", encoding="utf-8") as file:
            for entry in entries:
                file.write(json.dumps(entry, sort_keys=True, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    # Never repr: an address or a path could be in it.
    return value.item() if hasattr(value, "item") else f"<{type(value).__name__}>"
