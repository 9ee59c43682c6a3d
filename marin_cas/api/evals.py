"""Evaluations: tasks and suites, and Marin's default sets of them, as eval.bzl has them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from marin_cas.api.artifacts import LevanterEvalResult
from marin_cas.api.literal import plain
from marin_cas.api.step import ArtifactStep, call

_BZL = "eval.bzl"
_BY_LEVANTER, _BY_HARNESS = "evaluation/lm_evaluation_harness_levanter", "evaluation/lm_evaluation_harness"


@dataclass(frozen=True, slots=True)
class EvalTaskConfig:
    """A task or a group of tasks of lm-eval; the fields are those of `eval_task` of eval.bzl."""

    name: str
    num_fewshot: int | None = None
    task_alias: str | None = None
    task_kwargs: Mapping[str, Any] | None = None
    generation: bool = False
    unsafe_code: bool = False
    completion_only: bool = False

    def plain(self) -> dict[str, Any]:
        return call(_BZL, "eval_task", asdict(self)).value


class EvalSuite:
    """Tasks to score a training's exports on, every `every` steps; `attrs` are further attributes of the `lm_eval`."""

    def __init__(self, tasks: Sequence[Any], every: int, **attrs: Any) -> None:
        self.tasks, self.every, self.attrs = tuple(tasks), every, attrs

    def plain(self) -> dict[str, Any]:
        return {**self.attrs, "tasks": self.tasks, "every": self.every}


def core_tasks(*, every: int = 10000, **attrs: Any) -> EvalSuite:
    """Marin's core tasks, every `every` steps."""
    made = call(_BZL, "core_tasks", {"every": every}).value
    return EvalSuite(task_configs(made["tasks"]), made["every"], **attrs)


def task_configs(tasks: Sequence[Mapping[str, Any]]) -> tuple[EvalTaskConfig, ...]:
    """Tasks as eval.bzl writes them."""
    return tuple(EvalTaskConfig(**task) for task in tasks)


def default_eval(
    step: ArtifactStep[Any],
    resource_config: Any = None,
    evals: Sequence[Any] | None = None,
    max_eval_instances: int | None = None,
    apply_chat_template: bool = False,
    discover_latest_checkpoint: bool = True,
    *,
    name: str | None = None,
    version: str | None = None,
    **attrs: Any,
) -> ArtifactStep[LevanterEvalResult]:
    """The scores of `step` on `evals`, by default Marin's core tasks, through Levanter.

    What differs from the default is in the name, so that two evaluations of one checkpoint never collide.
    """
    choices = {"evals": evals, "max_eval_instances": max_eval_instances, "apply_chat_template": apply_chat_template}
    given = {"step": step, "resource_config": resource_config, **choices}
    given |= {"discover_latest_checkpoint": discover_latest_checkpoint, "version": version or step.version}
    name = name or f"{_BY_LEVANTER}/{step.name}{_differing({**choices, **attrs})}"
    return call(_BZL, "default_eval", {"name": name, **given, **attrs}).steps[name]


def default_key_evals(
    step: ArtifactStep[Any],
    resource_config: Any,
    model_name: str | None = None,
    max_eval_instances: int | None = None,
    engine_kwargs: Mapping[str, Any] | None = None,
    *,
    version: str | None = None,
) -> list[ArtifactStep[LevanterEvalResult]]:
    """Two steps: key generation tasks, with vLLM, and key tasks of multiple choice, through Levanter."""
    choices = {"max_eval_instances": max_eval_instances, "engine_kwargs": engine_kwargs}
    name = f"{_BY_HARNESS}/{model_name or step.name}{_differing(choices)}"
    given = {"step": step, "resource_config": resource_config, "model_name": model_name or step.name, **choices}
    made = call(_BZL, "default_key_evals", {"name": name, **given, "version": version or step.version})
    return list(made.steps.values())


def _differing(choices: Mapping[str, Any]) -> str:
    """A suffix that is equal for equal choices, empty where nothing was chosen."""
    chosen = {name: plain(value, {}, name) for name, value in choices.items() if value not in (None, False)}
    if not chosen:
        return ""
    return f"-{hashlib.blake2b(json.dumps(chosen, sort_keys=True).encode(), digest_size=4).hexdigest()}"
