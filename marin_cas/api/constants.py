"""Constants of the rule files, under the names of Marin's scripts: read from there when they are asked for."""

from __future__ import annotations

import functools
from typing import Any

from marin_cas.api import configs, evals, workshop
from marin_cas.api.step import rule_file
from marin_cas.errors import Location

# Name here to file and name there.
_PLACES = {
    "DCLM_MIXTURE_WEIGHTS": ("datasets/dclm.bzl", "DCLM_MIXTURE_WEIGHTS"),
    "PALOMA_SUBSETS": ("datasets/paloma.bzl", "PALOMA_SUBSETS"),
    "UNCHEATABLE_SUBSETS": ("datasets/uncheatable.bzl", "UNCHEATABLE_SUBSETS"),
    "DEFAULT_LM_DATA_SHUFFLE": ("mixture.bzl", "DEFAULT_SHUFFLE"),
    "llama3_tokenizer": ("models.bzl", "llama3_tokenizer"),
    "marin_tokenizer": ("models.bzl", "marin_tokenizer"),
    **{
        name: ("eval.bzl", name)
        for name in (
            "BASE_GENERATION_TASKS",
            "CORE_TASKS",
            "CORE_TASKS_PLUS_LEADERBOARD",
            "DEFAULT_LM_EVAL_MODEL_KWARGS",
            "DEFAULT_VLLM_ENGINE_KWARGS",
            "KEY_GENERATION_TASKS",
            "KEY_MULTIPLE_CHOICE_TASKS",
            "MMLU_0_SHOT",
            "MMLU_5_SHOT",
            "MMLU_PRO_5_SHOT",
            "OPEN_LM_LEADERBOARD_GEN",
            "OPEN_LM_LEADERBOARD_MCQ",
        )
    },
}
_SIZES = "models.bzl"


@functools.cache
def constant(name: str) -> Any:
    """The value of a constant. Raises AttributeError for a name that is none."""
    if name == "MARIN_PRECISION":
        return _default("train.bzl", "train_lm", "mp")
    if name in _PLACES:
        value = _value(*_PLACES[name])
        if _PLACES[name][0] != "eval.bzl" or name.startswith("DEFAULT_"):
            return value
        return evals.task_configs(value) if isinstance(value, list) else evals.EvalTaskConfig(**value)
    if name.startswith("llama_"):
        fields = dict(_value(_SIZES, name))
        twin = configs.config_class("LlamaConfig")
        if fields.pop("type", None) == "llama" and twin is not None:
            return twin(**fields)
    raise AttributeError(f"`marin_cas.api` has no `{name}`")


def _value(bzl: str, name: str) -> Any:
    loader = workshop.current().loader
    return loader.call(rule_file(bzl), name, None, Location(bzl, 1))[1]


def _default(bzl: str, rule: str, attr: str) -> Any:
    loader = workshop.current().loader
    loader.load_bzl(rule_file(bzl))
    return loader.rules()[rule].attrs[attr].default


def names() -> list[str]:
    """The constants with a name of their own; sizes of models are those of models.bzl."""
    return sorted([*_PLACES, "MARIN_PRECISION"])
