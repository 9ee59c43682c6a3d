"""One training inside Levanter: its config from the expanded one, exports and checkpoints of ours, then its main.

Imports everything heavy: load it after the inputs are checked and the environment is set.
"""

from __future__ import annotations

import datetime
import gc
import json
import logging
import queue
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jmp
import levanter.main.train_lm as levanter_train
from levanter.callbacks.watch import WatchConfig
from levanter.checkpoint import Checkpointer, CheckpointerConfig
from levanter.data.text.datasets import BlockShuffleConfig, DatasetComponent, LmDataConfig, UrlDatasetSourceConfig
from levanter.distributed import DistributedConfig
from levanter.optim.config import OptimizerConfig
from levanter.utils.background_iterable import BackgroundIterator

from marin_cas.tools import levanter_rolling as rolling
from marin_cas.tools import levanter_schema
from marin_cas.tools.levanter_inputs import Component
from marin_cas.tools.levanter_metrics import MetricsTracker

_log = logging.getLogger("marin_cas.train_lm")

# Checkpoints of one attempt that stay: the newest may be damaged by what killed the attempt.
_KEEP = 2
_JOIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a training is to do. `exports` are the steps exported before the last one; steps count completed ones."""

    params: Mapping[str, Any]
    components: tuple[Component, ...]
    tokenizer: Path
    scratch: Path
    attempt: Path  # where this process puts its checkpoints
    log_folder: Path
    exports: tuple[int, ...]
    resume: Path | None
    init: Path | None
    steps_per_eval: int
    max_eval_batches: int | None
    checkpoint_seconds: float | None
    checkpoint_every: int | None

    @property
    def steps(self) -> int:
        return self.params["num_train_steps"]

    def export_folder(self, step: int) -> Path:
        return self.scratch / rolling.EXPORTS / str(step)

    def checkpoint_folder(self, step: int) -> Path:
        # Levanter counts steps from 0 and names a checkpoint by its last one.
        return self.attempt / f"step-{step - 1}"


def train(plan: Plan, tracker: MetricsTracker) -> float:
    """Runs the training; returns the seconds inside Levanter's main."""
    config = train_config(plan, tracker)
    started = time.perf_counter()
    try:
        levanter_train.main(config)
        return time.perf_counter() - started
    finally:
        _stop_loaders()


def _stop_loaders() -> None:
    """Ends the threads that fetch batches nobody will take: at the interpreter's end they would crash inside jax."""
    # By type and not by isinstance, which would ask dead weak proxies for their class.
    loaders = [found for found in gc.get_objects() if issubclass(type(found), BackgroundIterator)]
    for loader in loaders:
        loader.stop(wait=False)
        if loader.thread is not None:
            with suppress(queue.Empty):
                loader.q.get_nowait()  # wakes a producer that waits for room
    for loader in loaders:
        if loader.thread is not None:
            loader.thread.join(timeout=_JOIN_S)


def train_config(plan: Plan, tracker: MetricsTracker) -> levanter_train.TrainLmConfig:
    params = plan.params
    model = levanter_schema.build(params["model"], tokenizer=str(plan.tokenizer))
    optimizer = levanter_schema.build(params["optimizer"])
    exporter = Exporter(plan, model)
    return levanter_train.TrainLmConfig(
        data=_data(plan),
        model=model,
        optimizer=optimizer if plan.steps else _Unused(optimizer),
        train_seq_len=params["seq_len"],
        z_loss_weight=params["z_loss_weight"],
        data_seed=params["data_seed"],
        initialize_from_checkpoint_path=str(plan.init) if plan.init else None,
        hf_save_path=None,
        trainer=levanter_schema.build(
            params["trainer"],
            seed=params["seed"],
            mp=jmp.get_policy(params["mp"]),
            id="train",
            tracker=tracker,
            watch=WatchConfig(watch_targets=[]),  # a second compilation of the step for norms that nobody asked for
            log_dir=plan.log_folder,
            log_jaxprs=False,
            log_xla_hlo=False,
            train_batch_size=params["batch_size"],
            allow_nondivisible_batch_size=True,
            num_train_steps=plan.steps,
            steps_per_eval=plan.steps_per_eval,
            max_eval_batches=plan.max_eval_batches,
            checkpointer=_CheckpointerConfig(plan, exporter),
            load_checkpoint=plan.resume is not None,
            load_checkpoint_path=str(plan.resume) if plan.resume else None,
            require_accelerator=False,
            distributed=DistributedConfig(initialize_jax_distributed=False),
        ),
    )


def _data(plan: Plan) -> LmDataConfig:
    shuffle = plan.params["shuffle"]
    return LmDataConfig(
        tokenizer=str(plan.tokenizer),
        cache_dir=None,
        auto_build_caches=False,
        # A source without files: Levanter then takes the splits that are there, and asks for no other.
        components={
            component.name: DatasetComponent(source=UrlDatasetSourceConfig(), cache_dir=str(component.folder))
            for component in plan.components
        },
        train_weights={component.name: component.weight for component in plan.components},
        shuffle=BlockShuffleConfig(**shuffle),
        permutation_type=shuffle["perm_type"],
    )


@OptimizerConfig.register_subclass("unused")
@dataclass(frozen=True, init=False)
class _Unused(OptimizerConfig):
    """An optimizer for no steps: Levanter cannot lay a schedule over none, and no step will ask for it."""

    def __init__(self, inner: OptimizerConfig) -> None:
        object.__setattr__(self, "_inner", inner)

    def build(self, num_train_steps: int) -> Any:
        return self._inner.build(max(num_train_steps, 1))  # type: ignore[attr-defined]


class Exporter:
    """Writes Hugging Face folders, byte for byte the same for the same weights."""

    def __init__(self, plan: Plan, model: Any) -> None:
        self._plan = plan
        self._model = model
        self._converter: Any = None

    def export(self, weights: Any, step: int) -> None:
        from levanter.tokenizers import load_tokenizer

        folder = self._plan.export_folder(step)
        rolling.discard(folder)
        if self._converter is None:
            tokenizer = load_tokenizer(str(self._plan.tokenizer))
            self._converter = self._model.hf_checkpoint_converter().replaced(tokenizer=tokenizer)
        self._converter.save_pretrained(weights, str(folder), save_reference_code=False)
        if jax.process_index() == 0:
            _settle(folder)
            rolling.seal(folder, step)


def _settle(folder: Path) -> None:
    """Takes out of an export what does not come from its weights: the version of a library that read them."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("transformers_version", None)
    config.pop("_name_or_path", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


class _CheckpointerConfig(CheckpointerConfig):
    """Not a dataclass of its own: Levanter copies and prints the fields of those."""

    def __init__(self, plan: Plan, exporter: Exporter) -> None:
        super().__init__(base_path=str(plan.attempt), append_run_id_to_base_path=False)
        self._plan = plan
        self._exporter = exporter

    def create(self, run_id: str) -> Checkpointer:
        return _RollingCheckpointer(self._plan, self._exporter)


class _RollingCheckpointer(Checkpointer):
    """Exports a due step, then checkpoints by time or steps; the last step always, kept for the output."""

    def __init__(self, plan: Plan, exporter: Exporter, now: Callable[[], float] = time.monotonic) -> None:
        interval = plan.checkpoint_seconds
        super().__init__(
            str(plan.attempt),
            None if interval is None else datetime.timedelta(seconds=interval),
            [],
            delete_old_temp_checkpoints=False,
        )
        self._plan = plan
        self._exporter = exporter
        self._now = now
        self._last: float | None = None
        self._exported: set[int] = set()

    def on_step(self, *, tree: Any, step: int, force: bool = False) -> None:
        completed = int(step) + 1
        if self._last is None:
            self._last = self._now()  # the first step compiles, which is no progress to keep
        if completed in self._plan.exports and completed not in self._exported:
            # Before the checkpoint of the same step: whoever goes on from that will not make this export again.
            self._exporter.export(tree.eval_model, completed)
            self._exported.add(completed)
        if force:
            self._exporter.export(tree.eval_model, completed)
            self._save(tree, completed, last=True)
        elif completed < self._plan.steps and self._is_due(completed):
            self._save(tree, completed, last=False)

    def _is_due(self, completed: int) -> bool:
        seconds, every = self._plan.checkpoint_seconds, self._plan.checkpoint_every
        due = bool(every and completed % every == 0)
        return due or bool(seconds and self._last is not None and self._now() - self._last >= seconds)

    def _save(self, tree: Any, completed: int, last: bool) -> None:
        folder = self._plan.checkpoint_folder(completed)

        def committed() -> None:
            rolling.seal(folder, completed)
            self._prune()
            _log.info("checkpoint of step %d is complete", completed)

        self.save_checkpoint(tree, completed - 1, folder.name, committed, is_temporary=not last)
        self._last = self._now()

    def _prune(self) -> None:
        """Removes all but the newest checkpoints of this scratch folder; those of earlier attempts are not ours."""
        found = sorted(rolling.kept(self._plan.scratch, rolling.CHECKPOINTS), key=lambda kept: kept.step)
        for checkpoint in found[:-_KEEP]:
            rolling.discard(checkpoint.folder)
