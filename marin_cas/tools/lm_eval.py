"""Scores a checkpoint's `hf` export on lm-eval tasks through Levanter's harness.

`scores` is a small JSON of numbers and `samples` one JSON-lines file a task; neither holds a path, a date or a host.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marin_cas.tools.eval_data import Data, eval_environment
from marin_cas.tools.eval_tasks import load_tasks
from marin_cas.worker.context import ToolContext, ToolError

REVISION = 1

# Resamples behind a standard error that has no closed form.
_BOOTSTRAP = 1000
_MAX_GEN_TOKS = 256
_STEP = re.compile(r"step-(\d+)")
# Of a report, what is a dict by task.
_BY_TASK = ("results", "samples", "versions", "n-samples", "n-shot", "higher_is_better", "group_subtasks")


def run(ctx: ToolContext) -> None:
    params = ctx.params
    backend = params.get("backend", "levanter")
    if backend == "vllm":
        _require_vllm()
    unsafe = ctx.settings.get("unsafe_code") or []
    eval_environment(ctx.scratch, bool(unsafe))

    data = Data(
        {name: ctx.inputs[f"data.{name}"].resolve() for name in params["data"]},
        {repo: ctx.inputs[name].resolve() for repo, name in params.get("hub", {}).items()},
    )
    ctx.progress(0, None, "loading tasks")
    folder = model_folder(ctx.inputs["hf"].resolve(), discover=params.get("discover_latest_checkpoint", True))
    runs: list[tuple[bool, dict[Any, Any]]] = []
    for chat, wanted in _by_template(params):
        scratch = ctx.scratch.resolve() / ("chat" if chat else "plain")
        runs.append((chat, load_tasks(wanted, ctx.inputs.get("task_files"), data, scratch, unsafe)))
    ctx.progress(0, None, "loading the model")
    report = _vllm_report(ctx, folder, runs) if backend == "vllm" else _levanter_report(ctx, folder, runs)
    _write_samples(report.get("samples") or {}, ctx.outputs["samples"])
    text = json.dumps(scores(report), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    ctx.outputs["scores"].write_text(text + "\n", encoding="utf-8")


def _by_template(params: Mapping[str, Any]) -> list[tuple[bool, list[Mapping[str, Any]]]]:
    """The tasks that get the chat template, and those that do not."""
    if not params["apply_chat_template"]:
        return [(False, params["tasks"])]
    plain = [task for task in params["tasks"] if task.get("completion_only")]
    chat = [task for task in params["tasks"] if not task.get("completion_only")]
    return [(asked, tasks) for asked, tasks in ((True, chat), (False, plain)) if tasks]


def model_folder(folder: Path, *, discover: bool) -> Path:
    """The folder that holds a model: this one, or the `step-N` folder of the last step below it. ToolError for none."""
    if (folder / "config.json").is_file():
        return folder
    steps = [(int(found[1]), path.parent) for path in sorted(folder.rglob("config.json"))
             if (found := _STEP.fullmatch(path.parent.name))]  # fmt: skip
    if discover and steps:
        return max(steps)[1]
    hint = f"it has `step-{max(steps)[0]}`; leave `discover_latest_checkpoint` as it is" if steps else None
    raise ToolError("the checkpoint has no `config.json` of a Hugging Face model", where="hf", hint=hint)


def _levanter_report(ctx: ToolContext, folder: Path, runs: list[tuple[bool, dict[Any, Any]]]) -> dict[str, Any]:
    import haliax as hax
    import jmp
    import levanter.config  # noqa: F401  (registers what a config may name)
    from levanter.distributed import DistributedConfig
    from levanter.eval_harness import run_lm_eval_harness
    from levanter.model_loading import load_hf_checkpoint
    from levanter.tokenizers import load_tokenizer
    from levanter.tracker import NoopConfig
    from levanter.trainer import TrainerConfig
    from levanter.utils.tree_utils import inference_mode

    from marin_cas.tools.levanter_harness import Harness
    from marin_cas.tools.levanter_model import from_hf

    params = ctx.params
    config = from_hf(folder)
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
    with trainer.use_device_mesh():
        model = load_hf_checkpoint(
            config,
            str(folder),
            axis_mapping=trainer.parameter_axis_mapping,
            tokenizer=tokenizer,
            compute_dtype=trainer.mp.compute_dtype,
        )
        model = inference_mode(model, True)
        _check_generation(model, [tasks for _, tasks in runs])
        ctx.progress(0, None, "scoring")

        def scored(chat: bool, tasks: dict[Any, Any]) -> dict[str, Any]:
            harness = Harness(
                tasks,
                max_examples=params["limit"],
                max_length=params["max_seq_len"],
                log_samples=True,
                bootstrap_iters=_BOOTSTRAP,
                apply_chat_template=chat,
                generation_kwargs={
                    "max_gen_toks": params.get("max_gen_toks") or _MAX_GEN_TOKS,
                    "temperature": 0.0,
                    "n": 1,
                    "seed": None,
                },
            )
            report = run_lm_eval_harness(
                harness,
                model,
                tokenizer,
                hax.Axis("batch", params["batch_size"]),
                axis_resources=trainer.compute_axis_mapping,
                mp=trainer.mp,
            )
            if report is None:
                raise ToolError("another process than the first ran the evaluation")
            return report

        return _merged(runs, scored)


def _check_generation(model: Any, runs: list[dict[Any, Any]]) -> None:
    from marin_cas.tools.eval_tasks import leaves

    if hasattr(model, "initial_cache") and hasattr(model, "decode"):
        return
    for tasks in runs:
        for leaf in leaves(tasks):
            if leaf.OUTPUT_TYPE == "generate_until":
                raise ToolError(
                    f"`{leaf.task_name}` has the model write text, which Levanter cannot with a {type(model).__name__}",
                    hint='leave the task out, or take `backend = "vllm"`',
                )


def _merged(
    runs: list[tuple[bool, dict[Any, Any]]], scored: Callable[[bool, dict[Any, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """The report of all runs, with averages over all of their tasks."""
    reports = [scored(chat, tasks) for chat, tasks in runs]
    if len(reports) == 1:
        return reports[0]
    from levanter.eval_harness import _compute_averages

    merged: dict[str, Any] = {key: {} for key in _BY_TASK}
    for report in reports:
        for key in _BY_TASK:
            merged[key] |= report.get(key) or {}
    return merged | {"averages": _compute_averages(merged)}


def _require_vllm() -> None:
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        raise ToolError(
            "the backend `vllm` needs the package `vllm`, which is not installed here",
            hint='install it, or take `backend = "levanter"`',
            environment=True,
        )


def _vllm_report(ctx: ToolContext, folder: Path, runs: list[tuple[bool, dict[Any, Any]]]) -> dict[str, Any]:
    from levanter.eval_harness import _compute_averages
    from lm_eval import evaluator
    from lm_eval.models import vllm_causallms

    params = ctx.params
    dtype = re.search(r"compute=(\w+)", params["mp"])
    options = {"dtype": dtype[1] if dtype else "auto", **params["engine_kwargs"]}
    if params["max_seq_len"] is not None:
        options["max_model_len"] = params["max_seq_len"]
    if params.get("max_gen_toks") is not None:
        options["max_gen_toks"] = params["max_gen_toks"]
    engine: Any = vllm_causallms.VLLM
    model = engine(pretrained=str(folder), batch_size=params["batch_size"], **options)
    ctx.progress(0, None, "scoring")

    def scored(chat: bool, tasks: dict[Any, Any]) -> dict[str, Any]:
        report = evaluator.evaluate(
            model,
            tasks,
            limit=params["limit"],
            log_samples=True,
            bootstrap_iters=_BOOTSTRAP,
            apply_chat_template=chat,
            confirm_run_unsafe_code=True,
        )
        if report is None:
            raise ToolError("another process than the first ran the evaluation")
        return {**report, "averages": _compute_averages(report)}

    return _merged(runs, scored)


def scores(report: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a report: `tasks`, `averages`, `versions`, `n_samples`, `n_shot`, `higher_is_better`.

    Where there are groups of tasks they are among the `tasks`, and `groups` has the members of each.
    """
    members = {name: list(found) for name, found in (report.get("group_subtasks") or {}).items() if found}
    groups = {name: found for name, found in members.items() if name in report["results"]}
    return {
        "tasks": {task: _numbers(found) for task, found in report["results"].items()},
        "averages": _numbers(report.get("averages") or {}),
        "versions": {task: version for task, version in report["versions"].items() if _is_number(version)},
        "n_samples": {task: dict(counts) for task, counts in report["n-samples"].items()},
        "n_shot": dict(report["n-shot"]),
        "higher_is_better": {task: dict(metrics) for task, metrics in report["higher_is_better"].items()},
    } | ({"groups": groups} if groups else {})


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
