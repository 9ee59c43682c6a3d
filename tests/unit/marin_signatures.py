"""What Marin's two pages (default pipeline steps; training a language model) say that its builders take.

Each argument has its default as it is written there; None: it has none and must be given.
"""

from __future__ import annotations

from collections.abc import Mapping

SIGNATURES: Mapping[str, Mapping[str, str | None]] = {
    "hf_download": {
        "name": None,
        "hf_id": None,
        "revision": None,
        "version": None,
        "urls_glob": "()",
        "pin": "None",
        "resources": "None",
    },
    "raw_download": {
        "name": None,
        "fn": None,
        "build_config": None,
        "version": None,
        "pin": "None",
        "resources": "None",
    },
    "tokenized": {
        "name": None,
        "tokenizer": None,
        "version": None,
        "source": "None",
        "paths": "None",
        "raw": "None",
        "glob": "None",
        "validation": "False",
        "pin": "None",
        "text_key": '"text"',
        "sample_count": "None",
        "tags": "()",
        "resources": "None",
    },
    "pretokenized": {
        "name": None,
        "repo_id": None,
        "tokenizer": None,
        "version": None,
        "revision": "None",
        "pin": "None",
        "tags": "()",
        "resources": "None",
    },
    "mixture": {
        "ctx": None,
        "train": None,
        "validation": "()",
        "shuffle": "DEFAULT_LM_DATA_SHUFFLE",
    },
    "train_lm": {
        "name": None,
        "model": None,
        "optimizer": None,
        "datasets": None,
        "batch_size": None,
        "seq_len": None,
        "num_train_steps": None,
        "z_loss_weight": None,
        "evals": None,
        "resources": None,
        "version": None,
        "validation": "()",
        "init_from": "None",
        "mp": "MARIN_PRECISION",
        "tensor_parallel_size": "1",
        "steps_per_eval": "1000",
        "wandb_project": '"marin"',
        "wandb_group": "None",
        "run_id": "None",
        "tags": "()",
        "env_vars": "None",
    },
    "default_eval": {
        "step": None,
        "resource_config": 'ResourceConfig.with_tpu("v4-8")',
        "evals": "None",
        "max_eval_instances": "None",
        "apply_chat_template": "False",
        "discover_latest_checkpoint": "True",
    },
    "default_key_evals": {
        "step": None,
        "resource_config": None,
        "model_name": "None",
        "max_eval_instances": "None",
        "engine_kwargs": "DEFAULT_LM_EVAL_MODEL_KWARGS",
    },
    "EvalTaskConfig": {
        "name": None,
        "num_fewshot": None,
        "task_alias": "None",
        "task_kwargs": "None",
    },
    "EvalSuite": {"tasks": None, "every": None},
    "core_tasks": {"every": "10000"},
    "ResourceConfig.with_tpu": {"tpu_type": None, "slice_count": "1"},
    "ResourceConfig.with_gpu": {"gpu_type": None, "count": "1"},
    "ResourceConfig.with_cpu": {"cpu": "1", "ram": '"4g"', "disk": '"64g"', "preemptible": "True", "regions": "None"},
    "dclm_datasets": {"tokenizer": "llama3_tokenizer"},
    "paloma_datasets": {"tokenizer": "llama3_tokenizer"},
    "uncheatable_datasets": {"tokenizer": "llama3_tokenizer"},
}

# What the pages import or mention besides.
NAMES = frozenset(
    {
        *("AdamConfig", "Artifact", "ArtifactStep", "BlockShuffleConfig", "CORE_TASKS", "DCLM_MIXTURE_WEIGHTS"),
        *("DEFAULT_LM_DATA_SHUFFLE", "DEFAULT_LM_EVAL_MODEL_KWARGS", "DEFAULT_VLLM_ENGINE_KWARGS"),
        *("KEY_GENERATION_TASKS", "KEY_MULTIPLE_CHOICE_TASKS", "LevanterCheckpoint", "LevanterEvalResult"),
        *("LlamaConfig", "MARIN_PRECISION", "StepContext", "StepRunner", "TokenizedCache", "apply", "lower", "resolve"),
        *("ANY_REGION", "llama3_tokenizer", "marin_tokenizer"),
    }
)
