"""Tasks of lm-eval made ready to run: found by name, their data taken from the action's inputs and nowhere else.

Building lm-eval's own index of bundled tasks takes 15 to 60 seconds; here a task is found by its file, and loaded by
a generated YAML that includes the real one. A dataset that nothing pins is refused.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marin_cas.errors import did_you_mean
from marin_cas.worker.context import ToolError

# Builders of `datasets` that read the files they are given.
FILE_BUILDERS = ("json", "csv", "parquet", "text", "arrow")
_SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")
_NAMED = re.compile(rb"""^(task|group):[ \t]*["']?([^\s"'#\[\]]+)""", re.MULTILINE)


def load_tasks(
    wanted: Sequence[Mapping[str, Any]], definitions: Path | None, data: Mapping[str, Path], scratch: Path
) -> dict[str, Any]:
    """lm-eval's task objects by the name they are stored under. ToolError for whatever is wrong with one."""
    local = _local_definitions(definitions) if definitions else {}
    loaded: dict[str, Any] = {}
    for task in wanted:
        name, shown = task["name"], task["task_alias"] or task["name"]
        kind, path = local.get(name) or _bundled_definition(name, local)
        if kind == "group":
            raise ToolError(f"`{name}` is a group of tasks", hint="name the tasks in it, each with its data")
        loaded[shown] = _load(task, shown, path, data, scratch)
    return loaded


def _local_definitions(folder: Path) -> dict[str, tuple[str, Path]]:
    import yaml

    found: dict[str, tuple[str, Path]] = {}
    for path in sorted(folder.rglob("*.y*ml"), key=os.fsencode):
        shown = path.relative_to(folder).as_posix()
        try:
            config = _load_yaml(path)
        except (yaml.YAMLError, ValueError, OSError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{shown}:{mark.line + 1}" if mark else shown
            raise ToolError(f"not a task definition: {getattr(error, 'problem', None) or error}", where=where) from None
        for kind in ("group", "task"):
            name = config.get(kind)
            if isinstance(name, str):
                if name in found:
                    raise ToolError(f"task `{name}` is defined twice", where=shown)
                found[name] = (kind, path)
                break
    if not found:
        raise ToolError("no file of `task_files` defines a task", hint="a task definition is a YAML file with a `task`")
    return found


def _bundled_definition(name: str, local: Mapping[str, Any]) -> tuple[str, Path]:
    """The file of lm-eval that defines `name`: the one called so, else whichever of 14,000 says so."""
    files = bundled_files()
    for path in files:
        if path.stem == name and (found := _definition(path)) and found[1] == name:
            return found[0], path
    defined = {found[1]: (found[0], path) for path in reversed(files) if (found := _definition(path))}
    if name in defined:
        return defined[name]
    raise ToolError(
        f"there is no task `{name}`",
        hint=did_you_mean(name, [*local, *defined]) or "name a task of lm-eval, or one defined in `task_files`",
    )


@functools.cache
def bundled_files() -> tuple[Path, ...]:
    """The definitions of all tasks that come with lm-eval, sorted."""
    import lm_eval.tasks

    return tuple(sorted(Path(lm_eval.tasks.__file__).parent.rglob("*.yaml"), key=lambda path: path.as_posix()))


def _definition(path: Path) -> tuple[str, str] | None:
    """What a YAML file defines, without parsing it: `task` or `group`, and its name."""
    names = {kind.decode(): name.decode() for kind, name in _NAMED.findall(path.read_bytes())}
    kind = "group" if "group" in names else "task"
    return (kind, names[kind]) if names else None


def _load_yaml(path: Path) -> dict[str, Any]:
    from lm_eval.tasks._yaml_loader import load_yaml

    return load_yaml(path, resolve_func=False)


def _load(task: Mapping[str, Any], shown: str, path: Path, data: Mapping[str, Path], scratch: Path) -> Any:
    import yaml
    from lm_eval.tasks import TaskManager

    config = _load_yaml(path) | task["task_kwargs"]
    overrides = {**task["task_kwargs"], **_dataset(task["name"], config, data)}
    if task["num_fewshot"] is not None:
        overrides["num_fewshot"] = task["num_fewshot"]
    generated = scratch / "tasks" / f"{len(list(scratch.glob('tasks/*')))}.yaml"
    generated.parent.mkdir(parents=True, exist_ok=True)
    # Named in the file and not afterwards: lm-eval takes the name for its samples and its results from there.
    text = yaml.safe_dump({"include": str(path.resolve()), **overrides, "task": shown}, sort_keys=True)
    generated.write_text(text, encoding="utf-8")
    try:
        loaded = TaskManager(include_defaults=False).load([str(generated)])["tasks"][shown]
    except Exception as error:  # anything may come out of a task's own code and of `datasets`
        logging.getLogger(__name__).exception("task %s", shown)
        cause = error.__cause__ or error
        hint = None
        if isinstance(cause, KeyError) and cause.args[0] in {config.get(key) for key in _SPLITS}:
            hint = (
                f"its data has no split `{cause.args[0]}`: a folder gets one from a file such as {cause.args[0]}.jsonl"
            )
        raise ToolError(f"cannot load the task `{task['name']}`: {type(cause).__name__}: {cause}", hint=hint) from None
    if loaded.OUTPUT_TYPE == "loglikelihood_rolling":
        raise ToolError(
            f"`{task['name']}` scores whole documents (`loglikelihood_rolling`), which Levanter's harness cannot",
            hint="write it as `loglikelihood` of a text after a context",
        )
    return loaded


def _dataset(name: str, config: Mapping[str, Any], data: Mapping[str, Path]) -> dict[str, Any]:
    """What to override in a task's definition so that it reads its data from the inputs."""
    path = config.get("dataset_path")
    if name in data:
        return {"dataset_path": str(data[name]), "dataset_name": None, "dataset_kwargs": None}
    if path in FILE_BUILDERS:
        options = dict(config.get("dataset_kwargs") or {})
        if not options.get("data_files"):
            raise ToolError(f"`{name}` reads `{path}` files but says not which", hint="give it `data_files`")
        options["data_files"] = _resolved(options["data_files"], name, data)
        return {"dataset_kwargs": options}
    if config.get("custom_dataset") or config.get("class"):
        return {}
    if isinstance(path, str) and path.split("/")[0] in data:
        return {"dataset_path": str(_input_path(path, name, data)), "dataset_name": None}
    raise ToolError(
        f"`{name}` reads the dataset `{path}` from a hub, where nothing pins it",
        hint=f'give it as an input: data = {{"{name}": "//some:target"}}, a folder with files such as test.jsonl',
    )


def _resolved(files: Any, name: str, data: Mapping[str, Path]) -> Any:
    if isinstance(files, Mapping):
        return {split: _resolved(entry, name, data) for split, entry in files.items()}
    if isinstance(files, list):
        return [_resolved(entry, name, data) for entry in files]
    return str(_input_path(files, name, data))


def _input_path(file: Any, name: str, data: Mapping[str, Path]) -> Path:
    top, _, rest = str(file).partition("/")
    if top not in data or ".." in rest.split("/"):
        raise ToolError(
            f"the file `{file}` of task `{name}` does not start with a name in `data`",
            hint=did_you_mean(top, data)
            or (f"`data` has {', '.join(f'`{d}`' for d in data)}" if data else "add `data`"),
        )
    path = data[top] / rest if rest else data[top]
    if not path.exists() and not any(char in rest for char in "*?["):
        there = sorted(p.relative_to(data[top]).as_posix() for p in data[top].rglob("*") if p.is_file())
        raise ToolError(
            f"task `{name}` reads `{file}`, which is not in `{top}`",
            hint=did_you_mean(rest, there) or f"`{top}` has {', '.join(f'`{p}`' for p in there[:5])}",
        )
    return path
