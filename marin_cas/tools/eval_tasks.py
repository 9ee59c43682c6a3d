"""Tasks and groups of lm-eval made ready to run, their data taken from the action's inputs and nowhere else.

Each is loaded by a generated YAML that includes the real one and is called as it is to be stored: lm-eval takes the
name for its samples and results from there. Two copies of one group go by two names, as Levanter's harness has them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin_cas.tools.eval_data import Data
from marin_cas.tools.eval_definitions import GROUP, TAG, TASK, Definition, find, local_definitions
from marin_cas.worker.context import ToolError

_SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")
# What a group's definition says of itself; all else in it changes its tasks.
_OF_A_GROUP = ("group", "group_alias", "task", "aggregate_metric_list", "metadata", "tag")


def load_tasks(
    wanted: Sequence[Mapping[str, Any]], definitions: Path | None, data: Data, scratch: Path, unsafe: Sequence[str] = ()
) -> dict[Any, Any]:
    """lm-eval's task objects by the name they are stored under; a group as lm-eval has it, with a dict of its tasks.

    `unsafe` are the tasks asked for that may run code which the model wrote. ToolError for whatever is wrong.
    """
    folder = scratch / "tasks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    local = local_definitions(definitions) if definitions else {}
    loaded: dict[Any, Any] = {}
    for task in wanted:
        name, shown = task["name"], task["task_alias"] or task["name"]
        writer = _Writer(folder, local, data, name, shown)
        tops = writer.write(name, _overrides(task))
        for item in _load(task, tops, folder, writer):
            for leaf in leaves(item):
                _check(leaf, name, unsafe)
            loaded |= item
    return loaded


def leaves(tasks: Mapping[Any, Any]) -> Iterator[Any]:
    """The task objects in what `load_tasks` gives."""
    for item in tasks.values():
        if isinstance(item, Mapping):
            yield from leaves(item)
        else:
            yield item


def _overrides(task: Mapping[str, Any]) -> dict[str, Any]:
    shots = {} if task["num_fewshot"] is None else {"num_fewshot": task["num_fewshot"]}
    return {**task["task_kwargs"], **shots}


def renamed(name: str, asked: str, shown: str) -> str:
    """The name of task `name` when the group `asked` is stored as `shown`, as Levanter's harness gives it."""
    prefix, suffix = (asked, shown[len(asked) :]) if shown.startswith(asked) else (shown, "")
    return name.replace(asked, prefix) + suffix if asked in name else f"{prefix}_{name}{suffix}"


@dataclass(slots=True)
class _Writer:
    """Writes the definitions of one task or group that was asked for."""

    folder: Path
    local: Mapping[str, Definition]
    data: Data
    asked: str
    shown: str
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the tasks written, by name

    def write(self, name: str, overrides: Mapping[str, Any]) -> list[str]:
        """The names to load: one, or for a tag those of its tasks."""
        definition = find(name, self.local)
        if definition.kind == TAG:
            return [new for member in definition.members for new in self.write(member, overrides)]
        if definition.kind == GROUP:
            return [self._group(name, definition.config(), overrides)]
        return [self._task(name, definition, overrides)]

    def _group(self, name: str, config: Mapping[str, Any], overrides: Mapping[str, Any]) -> str:
        new = renamed(name, self.asked, self.shown)
        inherited = {key: value for key, value in config.items() if key not in _OF_A_GROUP}
        members: list[str] = []
        for member in config.get("task") or []:
            members += self._member(member, {**inherited, **overrides})
        kept = {key: config[key] for key in ("aggregate_metric_list", "metadata") if key in config}
        self._save({"group": new, "task": members, **kept})
        return new

    def _member(self, member: Any, overrides: Mapping[str, Any]) -> list[str]:
        if isinstance(member, str):
            return self.write(member, overrides)
        inner = member.get("task")
        if isinstance(inner, list):
            return [self._group(member.get("group") or f"{self.asked}_part", member, overrides)]
        if not isinstance(inner, str):
            raise ToolError(f"the group `{self.asked}` has a member that is neither a task nor a group")
        own = {key: value for key, value in member.items() if key not in ("task", "task_alias", "group_alias")}
        return self.write(inner, {**own, **overrides})

    def _task(self, name: str, definition: Definition, overrides: Mapping[str, Any]) -> str:
        new = self.shown if name == self.asked else renamed(name, self.asked, self.shown)
        config = {**definition.config(), **overrides}
        from_data = self.data.overrides(name, self.asked, config)
        self.configs[new] = config
        self._save({"include": str(definition.path and definition.path.resolve()), **overrides, **from_data, TASK: new})
        return new

    def _save(self, definition: Mapping[str, Any]) -> None:
        import yaml

        path = self.folder / f"{len(list(self.folder.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump(dict(definition), sort_keys=True), encoding="utf-8")


def _load(task: Mapping[str, Any], names: Sequence[str], folder: Path, writer: _Writer) -> list[dict[Any, Any]]:
    from lm_eval.tasks import TaskManager

    try:
        manager = TaskManager(include_path=str(folder), include_defaults=False)
        return [manager.load_task_or_group(name) for name in names]
    except Exception as error:  # anything may come out of a task's own code and of `datasets`
        logging.getLogger(__name__).exception("task %s", task["name"])
        cause = error.__cause__ or error
        hint = None
        splits = {config.get(key) for config in writer.configs.values() for key in _SPLITS}
        if isinstance(cause, KeyError) and cause.args[0] in splits:
            hint = (
                f"its data has no split `{cause.args[0]}`: a folder gets one from a file such as {cause.args[0]}.jsonl"
            )
        if "scripts are no longer supported" in str(cause):
            hint = 'give its data from the Hub\'s Parquet form: hf_download(revision = "refs/convert/parquet", ...)'
        raise ToolError(f"cannot load the task `{task['name']}`: {type(cause).__name__}: {cause}", hint=hint) from None


def _check(leaf: Any, asked: str, unsafe: Sequence[str]) -> None:
    if leaf.OUTPUT_TYPE == "loglikelihood_rolling":
        raise ToolError(
            f"`{leaf.task_name}` scores whole documents (`loglikelihood_rolling`), which Levanter's harness cannot",
            hint="write it as `loglikelihood` of a text after a context",
        )
    if getattr(leaf, "UNSAFE_CODE", False) and asked not in unsafe:
        raise ToolError(
            f"`{leaf.task_name}` runs code that the model writes",
            hint=f'allow it with `eval_task("{asked}", unsafe_code = True)`',
        )
