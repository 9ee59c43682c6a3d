"""Trains a language model with Levanter: outputs `native`, `hf`, `hf.<step>` and `metrics`.

The same recipe gives the same `hf` bytes on the same kind of machine, also when the training was killed and went on.
`native` is Levanter's own checkpoint and opaque (its file names are random). With no steps it holds the model as a
longer run with the same seed would begin.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_cas.tools import levanter_rolling as rolling
from marin_cas.tools.levanter_inputs import check_components, read_components
from marin_cas.tools.tokenize import tokenizer_identity
from marin_cas.worker.context import ToolContext, ToolError

if TYPE_CHECKING:
    from marin_cas.tools.levanter_metrics import MetricsFile
    from marin_cas.tools.levanter_run import Plan

REVISION = 1

_log = logging.getLogger("marin_cas.train_lm")


def run(ctx: ToolContext) -> None:
    started = time.perf_counter()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    params = ctx.params
    components = read_components(params["components"], ctx.inputs)
    tokenizer = ctx.inputs["tokenizer"]
    check_components(components, tokenizer=tokenizer_identity(tokenizer), seq_len=params["seq_len"])
    exports = planned_exports(params)
    roots = (ctx.scratch, *ctx.earlier)
    resume = rolling.choose(roots, exports)
    _set_environment(ctx, params)

    importing = time.perf_counter()
    from marin_cas.tools import levanter_run
    from marin_cas.tools.levanter_metrics import MetricsFile, MetricsTracker

    imports = time.perf_counter() - importing
    metrics_path = ctx.scratch / rolling.METRICS
    _carry_over(ctx, resume, exports, metrics_path)
    plan = levanter_run.Plan(
        params=params,
        components=tuple(components),
        tokenizer=tokenizer,
        scratch=ctx.scratch,
        attempt=_next_folder(ctx.scratch / rolling.CHECKPOINTS),
        log_folder=ctx.scratch / "log",
        exports=exports,
        resume=resume.folder if resume else None,
        init=ctx.inputs.get("init"),
        steps_per_eval=ctx.settings["steps_per_eval"],
        max_eval_batches=ctx.settings["max_eval_batches"],
        checkpoint_seconds=(ctx.settings["checkpoint_minutes"] or 0) * 60 or None,
        checkpoint_every=ctx.settings["checkpoint_every_steps"],
    )
    if resume:
        _log.info("going on from the checkpoint of step %d of %d", resume.step, plan.steps)

    def on_step(step: int, values: Mapping[str, float]) -> None:
        ctx.progress(step, plan.steps, "steps", **values)

    if plan.steps:
        ctx.progress(resume.step if resume else 0, plan.steps, "steps")  # the first one compiles for long
    metrics = MetricsFile(metrics_path, on_step)
    inside = _train(plan, metrics, MetricsTracker(metrics))
    summary = _summary(plan, metrics)
    summary["resumed_from"] = resume.step if resume else None
    summary["seconds"] = {
        "imports": round(imports, 3),
        "main": round(inside, 3),
        "tool": round(time.perf_counter() - started, 3),
    }
    metrics.close(summary)
    _publish(ctx, plan, metrics_path)
    _log.info("imports took %.1f s, training %.1f s, the tool %.1f s", imports, inside, time.perf_counter() - started)


def planned_exports(params: Mapping[str, Any]) -> tuple[int, ...]:
    """The steps exported before the last one."""
    every, last = params["export_every"], params["num_train_steps"]
    return tuple(range(every, last, every)) if every else ()


def _set_environment(ctx: ToolContext, params: Mapping[str, Any]) -> None:
    """What the libraries read when they are imported or first used."""
    os.environ["NPROC"] = str(params["nproc"])
    os.environ["HF_HUB_OFFLINE"] = "1"
    # A reference config that this machine happens to have cached would get into the export.
    os.environ["HF_HOME"] = str((ctx.scratch / "huggingface").absolute())
    os.environ["WANDB_MODE"] = "disabled"
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


def _train(plan: Plan, metrics: MetricsFile, tracker: Any) -> float:
    from marin_cas.tools import levanter_run

    try:
        return levanter_run.train(plan, tracker)
    except RuntimeError as error:
        if str(error) in ("Loss is NaN", "Loss is Inf"):
            what = "NaN" if "NaN" in str(error) else "infinite"
            raise ToolError(
                f"the loss became {what} after step {int(metrics.last_step or 0)} of {plan.steps}",
                hint="try a smaller `learning_rate`, a longer `warmup`, or a `max_grad_norm` of at most 1.0",
            ) from error
        raise


def _summary(plan: Plan, metrics: MetricsFile) -> dict[str, Any]:
    """What people ask for first. `eval` has the held-out loss of each validation set, in nats a token."""
    names = [component.name for component in plan.components if component.validation]
    losses = {name: metrics.last.get(f"eval/{name}/loss") for name in names}
    return {
        "steps": plan.steps,
        "tokens": plan.steps * plan.params["batch_size"] * plan.params["seq_len"],
        "parameters": metrics.totals.get("parameter_count"),
        "train_loss": metrics.last.get("train/loss") if plan.steps else None,
        "eval_loss": metrics.last.get("eval/loss"),
        "eval": losses,
    }


def _publish(ctx: ToolContext, plan: Plan, metrics: Path) -> None:
    """From scratch into the outputs. A kill from here on costs what came after the rolling checkpoint before."""
    for step in plan.exports:
        # Copied: an older checkpoint is of use only as long as the exports before it are there.
        rolling.copy(plan.export_folder(step), ctx.outputs[f"hf.{step}"])
    for folder, output in (
        (plan.export_folder(plan.steps), "hf"),
        (plan.checkpoint_folder(plan.steps), "native"),
    ):
        rolling.manifest_path(folder).unlink()
        rolling.move(folder, ctx.outputs[output])
    ctx.outputs["metrics"].write_bytes(metrics.read_bytes())
