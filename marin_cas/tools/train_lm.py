"""Trains a language model with Levanter: outputs `native`, `hf`, `hf.<step>` and `metrics`.

The same recipe gives the same `hf` bytes on the same kind of machine, also when the training was killed and went on.
`native` is Levanter's own checkpoint and opaque (its file names are random). With no steps it holds the model as a
longer run with the same seed would begin.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_cas.tools import levanter_rolling as rolling
from marin_cas.tools.eval_data import eval_environment
from marin_cas.tools.levanter_inputs import check_components, check_limits, read_components
from marin_cas.tools.tokenizer_folder import tokenizer_identity
from marin_cas.worker.context import ToolContext, ToolError

if TYPE_CHECKING:
    from marin_cas.tools.levanter_metrics import MetricsFile
    from marin_cas.tools.levanter_run import Plan, Trained

REVISION = 1

_STARTS = ("init", "init_weights", "init_hf")

_log = logging.getLogger("marin_cas.train_lm")


def run(ctx: ToolContext) -> None:
    started = time.perf_counter()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    params = ctx.params
    components = read_components(params["components"], ctx.inputs)
    tokenizer = ctx.inputs["tokenizer"]
    check_components(components, tokenizer=tokenizer_identity(tokenizer), seq_len=params["seq_len"])
    check_limits(components, params)
    exports = planned_exports(params)
    roots = (ctx.scratch, *ctx.earlier)
    resume = rolling.choose(roots, exports)
    _set_environment(ctx, params)
    live = ctx.settings.get("live")
    if live:
        eval_environment(ctx.scratch, bool(live["unsafe_code"]))

    importing = time.perf_counter()
    from marin_cas.tools import levanter_harness, levanter_run, levanter_wandb
    from marin_cas.tools.levanter_metrics import MetricsFile, MetricsTracker

    imports = time.perf_counter() - importing
    metrics_path = ctx.scratch / rolling.METRICS
    _carry_over(ctx, resume, exports, metrics_path)

    def on_step(step: int, values: Mapping[str, float]) -> None:
        ctx.progress(step, params["num_train_steps"], "steps", **values)

    metrics = MetricsFile(metrics_path, on_step)
    harness = levanter_harness.live_harness(live, ctx.inputs, ctx.scratch) if live else None
    told = levanter_wandb.config(ctx.settings, ctx.run_id, os.environ)
    plan = levanter_run.Plan(
        params=params,
        components=tuple(components),
        tokenizer=tokenizer,
        scratch=ctx.scratch,
        attempt=_next_folder(ctx.scratch / rolling.CHECKPOINTS),
        log_folder=ctx.scratch / "log",
        exports=exports,
        resume=resume.folder if resume else None,
        start={name: ctx.inputs[name] for name in _STARTS if name in ctx.inputs},
        steps_per_eval=ctx.settings["steps_per_eval"],
        max_eval_batches=ctx.settings["max_eval_batches"],
        checkpoint_seconds=(ctx.settings["checkpoint_minutes"] or 0) * 60 or None,
        checkpoint_every=ctx.settings["checkpoint_every_steps"],
        tensor_parallel=ctx.settings["tensor_parallel_size"],
        trackers=(MetricsTracker(metrics), *([told] if told else ())),
        harness=harness,
        harness_every=live["every"] if live else 1,
    )
    if resume:
        _log.info("going on from the checkpoint of step %d of %d", resume.step, plan.steps)
    if plan.steps:
        ctx.progress(resume.step if resume else 0, plan.steps, "steps")  # the first one compiles for long
    try:
        trained = _train(plan, metrics)
    finally:
        if told:
            levanter_wandb.end()
    summary = _summary(plan, metrics, trained.steps)
    summary["resumed_from"] = resume.step if resume else None
    summary["seconds"] = {
        "imports": round(imports, 3),
        "main": round(trained.seconds, 3),
        "tool": round(time.perf_counter() - started, 3),
    }
    metrics.close(summary)
    _publish(ctx, plan, trained.steps, metrics_path)
    seconds = imports, trained.seconds, time.perf_counter() - started
    _log.info("imports took %.1f s, training %.1f s, the tool %.1f s", *seconds)


def planned_exports(params: Mapping[str, Any]) -> tuple[int, ...]:
    """The steps exported before the last one."""
    every, last = params["export_every"], params["num_train_steps"]
    return tuple(range(every, last, every)) if every else ()


def _set_environment(ctx: ToolContext, params: Mapping[str, Any]) -> None:
    """What the libraries read when they are imported or first used."""
    os.environ.update(ctx.settings["env_vars"])
    os.environ["NPROC"] = str(params["nproc"])
    os.environ["HF_HUB_OFFLINE"] = "1"
    # A reference config that this machine happens to have cached would get into the export.
    os.environ["HF_HOME"] = str((ctx.scratch / "huggingface").absolute())
    wandb = ctx.scratch.absolute() / "wandb"
    for name, folder in (("DIR", wandb), ("CACHE_DIR", wandb / "cache"), ("DATA_DIR", wandb / "data")):
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault(f"WANDB_{name}", str(folder))
    os.environ.setdefault("WANDB_CONSOLE", "off")
    os.environ["TQDM_DISABLE"] = "1"
    os.environ.pop("RUN_ID", None)


def _carry_over(ctx: ToolContext, resume: rolling.Kept | None, exports: tuple[int, ...], metrics: Path) -> None:
    """Brings what an earlier attempt made before the checkpoint into this one's scratch folder."""
    if resume is None:
        metrics.write_text("", encoding="utf-8")
        return
    rolling.copy_metrics(resume.root / rolling.METRICS, metrics, resume.step)
    for step in exports:
        if step > resume.step:
            continue
        export = rolling.find_export((ctx.scratch, *ctx.earlier), step)
        if export is not None and export.root != ctx.scratch:
            folder = ctx.scratch / rolling.EXPORTS / str(step)
            rolling.discard(folder)
            rolling.copy(export.folder, folder)
            rolling.seal(folder, step)


def _next_folder(parent: Path) -> Path:
    """A new folder for this process: a checkpoint of an earlier one is never written over."""
    parent.mkdir(parents=True, exist_ok=True)
    taken = [int(path.name) for path in parent.iterdir() if path.name.isdecimal()]
    folder = parent / str(max(taken, default=0) + 1)
    folder.mkdir()
    return folder


def _train(plan: Plan, metrics: MetricsFile) -> Trained:
    from marin_cas.tools import levanter_run

    try:
        return levanter_run.train(plan)
    except (RuntimeError, ValueError, MemoryError) as error:
        if str(error) in ("Loss is NaN", "Loss is Inf"):
            what = "NaN" if "NaN" in str(error) else "infinite"
            raise ToolError(
                f"the loss became {what} after step {int(metrics.last_step or 0)} of {plan.steps}",
                hint="try a smaller `learning_rate`, a longer `warmup`, or a `max_grad_norm` of at most 1.0",
            ) from error
        if (problem := out_of_memory(error, plan.params)) is not None:
            raise problem from error
        raise


def out_of_memory(error: BaseException, params: Mapping[str, Any]) -> ToolError | None:
    """What to tell when a device, or the machine, has too little memory; None for another error."""
    text = str(error)
    if "RESOURCE_EXHAUSTED" not in text and not isinstance(error, MemoryError):
        return None
    said = re.search(r"RESOURCE_EXHAUSTED: ([^\n]{1,300})", text)
    parallel, batch = params["trainer"]["per_device_parallelism"], params["batch_size"]
    helps = [f'`trainer = {{"per_device_parallelism": {max(1, (batch if parallel < 0 else parallel) // 2)}}}`']
    checkpointing = params["model"].get("gradient_checkpointing")
    if checkpointing is False:
        helps.append("`gradient_checkpointing = True` in `model`")
    elif not isinstance(checkpointing, Mapping):
        helps.append('`gradient_checkpointing = "offload"` in `model`')
    helps += ["a shorter `seq_len`", "more devices in `resources`", "`tensor_parallel_size` where a layer is too large"]
    return ToolError(
        f"out of memory{': ' + said[1].rstrip('. ') if said else ''}",
        hint=f"what helps, the first ones first: {'; '.join(helps)} (docs/memory.md)",
    )


def _summary(plan: Plan, metrics: MetricsFile, steps: int) -> dict[str, Any]:
    """What people ask for first. `eval` has the held-out loss of each validation set, in nats a token."""
    names = [component.name for component in plan.components if component.validation]
    losses = {name: metrics.last.get(f"eval/{name}/loss") for name in names}
    return {
        "steps": steps,
        "tokens": steps * plan.params["batch_size"] * plan.params["seq_len"],
        "parameters": metrics.totals.get("parameter_count"),
        "train_loss": metrics.last.get("train/loss") if plan.steps else None,
        "eval_loss": metrics.last.get("eval/loss"),
        "eval": losses,
    }


def check_exported(exports: tuple[int, ...], steps: int) -> None:
    """ToolError when the data ended, after so many steps, before all exports were made."""
    for step in exports:
        if step > steps:
            raise ToolError(
                f"the data was used up after step {steps}, before the export of step {step}",
                hint="give the training more data or fewer steps, or let the mixture begin again (`stop_strategy`)",
            )


def _publish(ctx: ToolContext, plan: Plan, steps: int, metrics: Path) -> None:
    """From scratch into the outputs. A kill from here on costs what came after the rolling checkpoint before."""
    if steps < plan.steps:
        _log.warning("the data was used up after step %d of %d", steps, plan.steps)
    check_exported(plan.exports, steps)
    for step in plan.exports:
        # Copied: an older checkpoint is of use only as long as the exports before it are there.
        rolling.copy(plan.export_folder(step), ctx.outputs[f"hf.{step}"])
    for folder, output in (
        (plan.export_folder(steps), "hf"),
        (plan.cadence.checkpoint_folder(steps), "native"),
    ):
        rolling.manifest_path(folder).unlink()
        rolling.move(folder, ctx.outputs[output])
    ctx.outputs["metrics"].write_bytes(metrics.read_bytes())
