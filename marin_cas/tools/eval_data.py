"""Where a task's data comes from: the action's inputs and nowhere else. A dataset that nothing pins is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_cas.errors import did_you_mean
from marin_cas.worker.context import ToolError

# Builders of `datasets` that read the files they are given.
FILE_BUILDERS = ("json", "csv", "parquet", "text", "arrow")
# Of a dataset's options, those that say how to fetch it.
_FETCHING = ("trust_remote_code", "revision")


def eval_environment(scratch: Path, unsafe: bool) -> None:
    """Before `datasets` is imported: it reads what it is given and nothing else."""
    os.environ["HF_DATASETS_CACHE"] = str(scratch.resolve() / "datasets")
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["DISABLE_MULTIPROC"] = "1"  # a bootstrap that forks would fork jax
    if unsafe:
        os.environ["HF_ALLOW_CODE_EVAL"] = "1"


@dataclass(frozen=True, slots=True)
class Data:
    """`named` are folders by the name that a target gave them; `hub` folders of Hub datasets, by id."""

    named: Mapping[str, Path]
    hub: Mapping[str, Path]

    def overrides(self, name: str, group: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """What to override in the definition of task `name`, asked for as `group`, so that it reads its inputs."""
        path = config.get("dataset_path")
        if name in self.named:
            return {"dataset_path": str(self.named[name]), "dataset_name": None, "dataset_kwargs": None}
        if group in self.named:
            return {"dataset_path": str(self.named[group]), "dataset_kwargs": _kept(config)}
        if isinstance(path, str) and path in self.hub:
            return {"dataset_path": str(self.hub[path]), "dataset_kwargs": _kept(config)}
        if path in FILE_BUILDERS:
            options = dict(config.get("dataset_kwargs") or {})
            if not options.get("data_files"):
                raise ToolError(f"`{name}` reads `{path}` files but says not which", hint="give it `data_files`")
            options["data_files"] = self._resolved(options["data_files"], name)
            return {"dataset_kwargs": options}
        if config.get("custom_dataset") or config.get("class"):
            return {}
        if isinstance(path, str) and path.split("/")[0] in self.named:
            return {"dataset_path": str(self._input_path(path, name)), "dataset_name": None}
        raise ToolError(
            f"`{name}` reads the dataset `{path}` from a hub, where nothing pins it",
            hint=f'give it as an input: data = {{"{name}": "//some:target"}}, a folder with files such as test.jsonl',
        )

    def _resolved(self, files: Any, name: str) -> Any:
        if isinstance(files, Mapping):
            return {split: self._resolved(entry, name) for split, entry in files.items()}
        if isinstance(files, list):
            return [self._resolved(entry, name) for entry in files]
        return str(self._input_path(files, name))

    def _input_path(self, file: Any, name: str) -> Path:
        top, _, rest = str(file).partition("/")
        if top not in self.named or ".." in rest.split("/"):
            raise ToolError(
                f"the file `{file}` of task `{name}` does not start with a name in `data`",
                hint=did_you_mean(top, self.named)
                or (f"`data` has {', '.join(f'`{d}`' for d in self.named)}" if self.named else "add `data`"),
            )
        folder = self.named[top]
        path = folder / rest if rest else folder
        if not path.exists() and not any(char in rest for char in "*?["):
            there = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
            raise ToolError(
                f"task `{name}` reads `{file}`, which is not in `{top}`",
                hint=did_you_mean(rest, there) or f"`{top}` has {', '.join(f'`{p}`' for p in there[:5])}",
            )
        return path


def _kept(config: Mapping[str, Any]) -> dict[str, Any] | None:
    options = config.get("dataset_kwargs") or {}
    return {name: value for name, value in options.items() if name not in _FETCHING} or None
