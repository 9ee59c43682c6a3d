"""The Python front end: Marin's scripts with only their imports changed. A step declared here is the call of the very
rule that a BUILD file calls, so both have the same fingerprints and results.

Names are found when they are asked for: a command that reads no script pays for none of them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marin_cas.api.artifacts import Artifact, LevanterCheckpoint, LevanterEvalResult, TokenizedCache
    from marin_cas.api.builders import (
        BlockShuffleConfig,
        hf_download,
        lm_eval,
        mixture,
        pretokenized,
        tokenized,
        tokenizer,
        train_lm,
        trained_tokenizer,
    )
    from marin_cas.api.datasets import dclm_datasets, paloma_datasets, uncheatable_datasets
    from marin_cas.api.evals import EvalSuite, EvalTaskConfig, core_tasks, default_eval, default_key_evals
    from marin_cas.api.functions import OUT, StepContext, apply, py_action, raw_download
    from marin_cas.api.lowering import StepSpec, lower
    from marin_cas.api.resources import ANY_REGION, ResourceConfig
    from marin_cas.api.running import StepRunner, resolve, run
    from marin_cas.api.step import ArtifactStep

_HOMES = {
    "ANY_REGION": "resources",
    "Artifact": "artifacts",
    "ArtifactStep": "step",
    "BlockShuffleConfig": "builders",
    "EvalSuite": "evals",
    "EvalTaskConfig": "evals",
    "LevanterCheckpoint": "artifacts",
    "LevanterEvalResult": "artifacts",
    "OUT": "functions",
    "ResourceConfig": "resources",
    "StepContext": "functions",
    "StepRunner": "running",
    "StepSpec": "lowering",
    "TokenizedCache": "artifacts",
    "apply": "functions",
    "core_tasks": "evals",
    "dclm_datasets": "datasets",
    "default_eval": "evals",
    "default_key_evals": "evals",
    "hf_download": "builders",
    "lm_eval": "builders",
    "lower": "lowering",
    "mixture": "builders",
    "paloma_datasets": "datasets",
    "pretokenized": "builders",
    "py_action": "functions",
    "raw_download": "functions",
    "resolve": "running",
    "run": "running",
    "tokenized": "builders",
    "tokenizer": "builders",
    "train_lm": "builders",
    "trained_tokenizer": "builders",
    "uncheatable_datasets": "datasets",
}

__all__ = [
    "ANY_REGION",
    "OUT",
    "Artifact",
    "ArtifactStep",
    "BlockShuffleConfig",
    "EvalSuite",
    "EvalTaskConfig",
    "LevanterCheckpoint",
    "LevanterEvalResult",
    "ResourceConfig",
    "StepContext",
    "StepRunner",
    "StepSpec",
    "TokenizedCache",
    "apply",
    "core_tasks",
    "dclm_datasets",
    "default_eval",
    "default_key_evals",
    "hf_download",
    "lm_eval",
    "lower",
    "mixture",
    "paloma_datasets",
    "pretokenized",
    "py_action",
    "raw_download",
    "resolve",
    "run",
    "tokenized",
    "tokenizer",
    "train_lm",
    "trained_tokenizer",
    "uncheatable_datasets",
]


def __getattr__(name: str) -> Any:
    """Besides what is defined here: twins of Levanter's configs (`LlamaConfig`, `AdamConfig`, ...), and constants of
    the rule files."""
    if home := _HOMES.get(name):
        return getattr(import_module(f"{__name__}.{home}"), name)
    # An import of a module of this package asks for it as a name first.
    if name.startswith("__") or (name.islower() and find_spec(f"{__name__}.{name}")):
        raise AttributeError(name)
    from marin_cas.api.configs import config_class
    from marin_cas.api.constants import constant

    return config_class(name) or constant(name)


def __dir__() -> list[str]:
    from marin_cas.api import configs, constants

    return sorted([*_HOMES, *configs.names(), *constants.names()])
