"""Levanter's evaluation harness with tasks that are loaded already: its own way to them asks a hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from levanter.eval_harness import LmEvalHarnessConfig

from marin_cas.tools.eval_data import Data
from marin_cas.tools.eval_tasks import load_tasks


class Harness(LmEvalHarnessConfig):
    """Levanter would index all of lm-eval's tasks, and download with retries for minutes.

    Not a dataclass of its own: Levanter copies the fields of those, and task objects hold whole datasets.
    """

    def __init__(self, tasks: Mapping[Any, Any], **fields: Any) -> None:
        super().__init__(task_spec=[], **fields)
        object.__setattr__(self, "_tasks", tasks)

    def to_task_dict(self) -> dict:
        return dict(self._tasks)  # type: ignore[attr-defined]


def live_harness(live: Mapping[str, Any], inputs: Mapping[str, Path], scratch: Path) -> Harness:
    """The harness that a training calls, from what the rule says of it. ToolError for what is wrong with a task."""
    data = Data(
        {name: inputs[f"live.data.{name}"].resolve() for name in live["data"]},
        {repo: inputs[f"live.{name}"].resolve() for repo, name in live["hub"].items()},
    )
    tasks = load_tasks(live["tasks"], inputs.get("live.task_files"), data, scratch.resolve(), live["unsafe_code"])
    return Harness(tasks, max_examples=live["limit"])
