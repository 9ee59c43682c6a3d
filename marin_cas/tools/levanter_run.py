"""One training inside Levanter: its config from the expanded one, then its main.

Imports everything heavy: load it after the inputs are checked and the environment is set.
"""

from __future__ import annotations

import gc
import queue
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jmp
import levanter.main.train_lm as levanter_train
from levanter.callbacks.watch import WatchConfig
from levanter.data.text.datasets import BlockShuffleConfig, DatasetComponent, LmDataConfig, UrlDatasetSourceConfig
from levanter.distributed import DistributedConfig
from levanter.eval_harness import LmEvalHarnessConfig
from levanter.optim.config import OptimizerConfig
from levanter.tracker import TrackerConfig
from levanter.utils.background_iterable import BackgroundIterator
from levanter.utils.mesh import MeshConfig

from marin_cas.tools import levanter_model, levanter_schema
from marin_cas.tools import levanter_rolling as rolling
from marin_cas.tools.levanter_checkpointer import Cadence, RollingConfig
from marin_cas.tools.levanter_export import Exporter
from marin_cas.tools.levanter_inputs import Component
from marin_cas.worker.context import ToolError

_JOIN_S = 10.0
# Where a training starts: the name of the input says what is taken of it.
INIT, INIT_WEIGHTS, INIT_HF = "init", "init_weights", "init_hf"
_BATCH_AXES = ["replica_dcn", "replica", "data"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a training is to do. `exports` are the steps exported before the last one; steps count completed ones.

    `start` maps one of the names above to what it is.
    """

    params: Mapping[str, Any]
    components: tuple[Component, ...]
    tokenizer: Path
    scratch: Path
    attempt: Path  # where this process puts its checkpoints
    log_folder: Path
    exports: tuple[int, ...]
    resume: Path | None
    start: Mapping[str, Path]
    steps_per_eval: int
    max_eval_batches: int | None
    checkpoint_seconds: float | None
    checkpoint_every: int | None
    tensor_parallel: int = 1
    trackers: tuple[TrackerConfig, ...] = field(default=())
    harness: LmEvalHarnessConfig | None = None  # scores tasks during the training
    harness_every: int = 1

    @property
    def steps(self) -> int:
        return self.params["num_train_steps"]

    @property
    def cadence(self) -> Cadence:
        return Cadence(
            self.steps, self.exports, self.checkpoint_seconds, self.checkpoint_every, self.scratch, self.attempt
        )

    def export_folder(self, step: int) -> Path:
        return self.scratch / rolling.EXPORTS / str(step)


@dataclass(frozen=True, slots=True)
class Trained:
    """`seconds` inside Levanter's main; `steps` that were done, fewer than planned where the data ended."""

    seconds: float
    steps: int


def train(plan: Plan) -> Trained:
    """Runs the training."""
    model = levanter_model.build_model(plan.params["model"], plan.tokenizer)
    # Levanter's mars, rmsprop and scion call it by a name that jax no longer has.
    if not hasattr(jax, "tree_map"):
        jax.tree_map = jax.tree.map  # pyright: ignore[reportAttributeAccessIssue]
    checkpointer = RollingConfig(plan.cadence, Exporter(plan.export_folder, plan.tokenizer, model))
    config = train_config(plan, model, checkpointer)
    started = time.perf_counter()
    try:
        levanter_train.main(config)
        ended = plan.steps if checkpointer.ended is None else checkpointer.ended
        return Trained(time.perf_counter() - started, ended)
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


def train_config(plan: Plan, model: Any, checkpointer: RollingConfig) -> levanter_train.TrainLmConfig:
    params = plan.params
    optimizer = levanter_schema.build(params["optimizer"])
    start = {name: str(path) for name, path in plan.start.items()}
    data = _data(plan)
    if INIT_HF in plan.start:
        size = levanter_model.check_start(plan.start[INIT_HF], params["model"], len(data.the_tokenizer))
        data.__dict__["the_tokenizer"] = levanter_model.padded(data.the_tokenizer, size)
    return levanter_train.TrainLmConfig(
        data=data,
        model=model,
        optimizer=optimizer if plan.steps else _Unused(optimizer),
        train_seq_len=params["seq_len"],
        z_loss_weight=params["z_loss_weight"],
        data_seed=params["data_seed"],
        initialize_from_checkpoint_path=start.get(INIT),
        initialize_model_from_checkpoint_path=start.get(INIT_WEIGHTS),
        initialize_from_hf=start.get(INIT_HF, False),
        hf_save_path=None,
        eval_harness=plan.harness,
        eval_harness_steps=plan.harness_every,
        trainer=levanter_schema.build(
            params["trainer"],
            seed=params["seed"],
            mp=jmp.get_policy(params["mp"]),
            id="train",
            tracker=plan.trackers,
            watch=WatchConfig(watch_targets=[]),  # a second compilation of the step for norms that nobody asked for
            log_dir=plan.log_folder,
            log_jaxprs=False,
            log_xla_hlo=False,
            mesh=_mesh(plan),
            train_batch_size=params["batch_size"],
            allow_nondivisible_batch_size=True,
            num_train_steps=plan.steps,
            steps_per_eval=plan.steps_per_eval,
            max_eval_batches=plan.max_eval_batches,
            checkpointer=checkpointer,
            load_checkpoint=plan.resume is not None,
            load_checkpoint_path=str(plan.resume) if plan.resume else None,
            require_accelerator=False,
            distributed=DistributedConfig(initialize_jax_distributed=False),
        ),
    )


def _mesh(plan: Plan) -> MeshConfig:
    """How the devices share the work: `tensor_parallel` of them each layer, the others the batch."""
    devices = jax.device_count()
    if devices % plan.tensor_parallel:
        raise ToolError(
            f"`tensor_parallel_size` is {plan.tensor_parallel}, and there are {devices} devices",
            hint="it divides the number of devices",
        )
    return MeshConfig(
        axes={"replica": 1, "data": -1, "model": plan.tensor_parallel},
        compute_mapping={"token": _BATCH_AXES, "token_repeat": _BATCH_AXES},
    )


def _data(plan: Plan) -> LmDataConfig:
    shuffle, options = plan.params["shuffle"], plan.params.get("mixture") or {}
    block = isinstance(shuffle, Mapping)
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
        shuffle=BlockShuffleConfig(**shuffle) if block else shuffle,
        permutation_type=shuffle["perm_type"] if block else "feistel",
        **options,
    )


@OptimizerConfig.register_subclass("unused")
@dataclass(frozen=True, init=False)
class _Unused(OptimizerConfig):
    """An optimizer for no steps: Levanter cannot lay a schedule over none, and no step will ask for it."""

    def __init__(self, inner: OptimizerConfig) -> None:
        object.__setattr__(self, "_inner", inner)

    def build(self, num_train_steps: int) -> Any:
        return self._inner.build(max(num_train_steps, 1))  # type: ignore[attr-defined]
