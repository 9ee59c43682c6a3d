"""Marin's builders: each declares a target by the rule of the same name, from the line that calls it.

Arguments are those of Marin's and of the rule; `attrs` are further attributes of the rule. Whatever the rule refuses is
a RequestError at that line, raised at once or when the step is first asked for anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from marin_cas.api.artifacts import Artifact, LevanterCheckpoint, LevanterEvalResult, TokenizedCache
from marin_cas.api.literal import FILE
from marin_cas.api.step import ArtifactStep, declare
from marin_cas.api.workshop import caller
from marin_cas.errors import RequestError

type Datasets = Mapping[ArtifactStep[TokenizedCache], float] | ArtifactStep[Any]
type Tokenizer = str | ArtifactStep[Any]


def hf_download(
    name: str, *, hf_id: str, revision: str, version: str | None = None, urls_glob: Sequence[str] = (), **attrs: Any
) -> ArtifactStep[Artifact]:
    """Files of a Hub repo at one commit."""
    given = {"hf_id": hf_id, "revision": revision, "version": version, "urls_glob": list(urls_glob)}
    return declare("data.bzl", "hf_download", name, given | attrs)


def tokenizer(name: str, files: Tokenizer, **attrs: Any) -> ArtifactStep[Artifact]:
    """A tokenizer folder, of a step or of a Hub repo, under a name."""
    return declare("data.bzl", "tokenizer", name, {"files": files, **attrs})


def trained_tokenizer(name: str, *, paths: Sequence[str] | None = None, **attrs: Any) -> ArtifactStep[Artifact]:
    """A byte-level BPE tokenizer trained on documents."""
    return declare("data.bzl", "trained_tokenizer", name, {"paths": files_of(paths), **attrs})


def tokenized(
    name: str,
    *,
    tokenizer: Tokenizer,
    version: str | None = None,
    source: str | None = None,
    paths: Sequence[str] | None = None,
    raw: ArtifactStep[Any] | str | None = None,
    glob: str | None = None,
    validation: bool = False,
    text_key: str = "text",
    sample_count: int | None = None,
    tags: Sequence[str] = (),
    **attrs: Any,
) -> ArtifactStep[TokenizedCache]:
    """A corpus as token ids, from exactly one of `source` (a Hub id, a URL), `paths` (files of the workspace) and
    `raw` with `glob`."""
    given = {"tokenizer": tokenizer, "version": version, "source": source, "paths": files_of(paths), "raw": raw}
    given |= {"glob": glob, "validation": validation, "text_key": text_key, "sample_count": sample_count}
    return declare("data.bzl", "tokenized", name, given | {"tags": list(tags)} | attrs)


def pretokenized(
    name: str,
    *,
    repo_id: str,
    tokenizer: Tokenizer,
    version: str | None = None,
    revision: str | None = None,
    tags: Sequence[str] = (),
    **attrs: Any,
) -> ArtifactStep[TokenizedCache]:
    """Token ids that a Hub repo holds."""
    given = {"repo_id": repo_id, "tokenizer": tokenizer, "version": version, "revision": revision, "tags": list(tags)}
    return declare("data.bzl", "pretokenized", name, given | attrs)


def mixture(
    train: Datasets,
    *,
    validation: Sequence[ArtifactStep[TokenizedCache]] = (),
    shuffle: Any = None,
    name: str | None = None,
    **attrs: Any,
) -> ArtifactStep[Artifact]:
    """Tokenized corpora with the weights at which a training draws from them; for `datasets` of `train_lm`."""
    given = {"train": train, "validation": list(validation), "shuffle": shuffle}
    return declare("mixture.bzl", "mixture", name or "mixture", given | attrs, auto=name is None)


@dataclass(frozen=True, slots=True)
class BlockShuffleConfig:
    """A shuffle for `shuffle` of `mixture`: `io_block_size` sequences a block, `window_blocks` blocks a window. What is
    left out is as in Marin's default."""

    io_block_size: int | None = None
    window_blocks: int | None = None
    perm_type: str | None = None

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def train_lm(
    *,
    name: str,
    model: Any,
    optimizer: Any,
    datasets: Datasets,
    batch_size: int,
    seq_len: int,
    num_train_steps: int,
    z_loss_weight: float | None,
    evals: Any,
    resources: Any,
    version: str | None = None,
    validation: Sequence[ArtifactStep[TokenizedCache]] = (),
    tags: Sequence[str] = (),
    env_vars: Mapping[str, str] | None = None,
    **attrs: Any,
) -> ArtifactStep[LevanterCheckpoint]:
    """A language model trained with Levanter. With `evals` its scores are `.evals` of the step.

    Execution arguments, with the rule's defaults: `mp`, `tensor_parallel_size`, `steps_per_eval`, `wandb_project`,
    `wandb_group`, `run_id`, `init_from` and all other attributes of the rule.
    """
    given = {"model": model, "optimizer": optimizer, "datasets": datasets, "validation": list(validation)}
    given |= {"batch_size": batch_size, "seq_len": seq_len, "num_train_steps": num_train_steps}
    given |= {"z_loss_weight": 0.0 if z_loss_weight is None else z_loss_weight, "evals": evals, "version": version}
    given |= {"resources": resources, "tags": list(tags), "env_vars": dict(env_vars or {})}
    return declare("train.bzl", "train_lm", name, given | attrs)


def lm_eval(
    name: str,
    *,
    checkpoint: ArtifactStep[Any] | str,
    tasks: Sequence[Any],
    version: str | None = None,
    task_files: Sequence[str] | None = None,
    **attrs: Any,
) -> ArtifactStep[LevanterEvalResult]:
    """The scores of a checkpoint on lm-eval tasks."""
    given = {"checkpoint": checkpoint, "tasks": list(tasks), "version": version, "task_files": files_of(task_files)}
    return declare("eval.bzl", "lm_eval", name, given | attrs)


def files_of(paths: Sequence[str] | None) -> list[str] | None:
    """Files of the workspace, relative to its root, as labels; what is a label already stays one."""
    if paths is None:
        return None
    if isinstance(paths, str):
        raise RequestError(
            f"`paths` is a list of files, not the text `{paths}`", where=caller(), hint=f'write `["{paths}"]`'
        )
    found = []
    for path in paths:
        if not isinstance(path, str) or path.startswith("//"):
            found.append(path)
        elif "://" in path or path.startswith("/"):
            message = f"`{path}` is no file of the workspace"
            raise RequestError(message, where=caller(), hint="give it as `source`")
        else:
            found.append(f"{FILE}{path}")
    return found
