"""Writes the table of the installed lm-eval's tasks, by which analysis knows what data a task reads.

`python -m marin_cas.tools.eval_table [FOLDER]` writes `lm_eval-<version>.json`, the same bytes for the same lm-eval.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from marin_cas.tools.eval_data import FILE_BUILDERS
from marin_cas.tools.eval_definitions import bundled_files

FORMAT = 1
_KINDS = {
    "multiple_choice": "choice",
    "loglikelihood": "likelihood",
    "loglikelihood_rolling": "rolling",
    "generate_until": "generate",
}
# A task written in Python: what it reads, only its code knows.
_PYTHON = "python"


def generate() -> dict[str, Any]:
    """`datasets`; `tasks` as name to `[index in datasets or None, kind, runs code that the model wrote or not]`; and
    `groups` as name to members: the index of a task in `tasks`, or the name of another group.
    """
    found: dict[str, tuple[str | None, str, bool]] = {}
    groups: dict[str, list[str]] = {}
    tagged: dict[str, set[str]] = defaultdict(set)
    for path in bundled_files():
        config = _load(path)
        members = config.get("task")
        if isinstance(members, list):
            if isinstance(name := config.get("group"), str):
                groups[name] = list(dict.fromkeys(_members(members)))
        elif isinstance(members, str):
            found[members] = (_dataset(config), _kind(config), bool(config.get("unsafe_code")))
            tags = config.get("tag") or []
            for tag in [tags] if isinstance(tags, str) else tags:
                tagged[tag].add(members)
    for tag, tasks in tagged.items():
        groups.setdefault(tag, sorted(tasks))
    datasets = sorted({dataset for dataset, _, _ in found.values() if dataset})
    index = {dataset: number for number, dataset in enumerate(datasets)}
    places = {name: number for number, name in enumerate(sorted(found))}
    return {
        "format": FORMAT,
        "lm_eval": version("lm-eval"),
        "datasets": datasets,
        "tasks": {
            name: [index[dataset] if dataset else None, kind, *([True] if unsafe else [])]
            for name, (dataset, kind, unsafe) in sorted(found.items())
        },
        "groups": {
            name: [places.get(member, member) for member in members] for name, members in sorted(groups.items())
        },
    }


def _load(path: Path) -> dict[str, Any]:
    from lm_eval.tasks._yaml_loader import load_yaml

    return load_yaml(path, resolve_func=False)


def _members(members: list[Any]) -> Iterator[str]:
    for member in members:
        if isinstance(member, str):
            yield member
        elif isinstance(inner := member.get("task"), list):
            yield from _members(inner)
        elif isinstance(inner, str):
            yield inner


def _dataset(config: Mapping[str, Any]) -> str | None:
    path = config.get("dataset_path")
    if not isinstance(path, str) or path in FILE_BUILDERS or "class" in config or config.get("custom_dataset"):
        return None
    revision = (config.get("dataset_kwargs") or {}).get("revision")
    return f"{path}@{revision}" if revision else path


def _kind(config: Mapping[str, Any]) -> str:
    if "class" in config or config.get("custom_dataset"):
        return _PYTHON
    return _KINDS.get(config.get("output_type") or "generate_until", _PYTHON)


def text(table: Mapping[str, Any]) -> str:
    """The table with a line for each dataset, task and group."""
    parts = []
    for name, value in table.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in value.items())
            parts.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
        elif isinstance(value, list):
            lines = ",\n".join(f"  {json.dumps(item)}" for item in value)
            parts.append(f" {json.dumps(name)}: [\n{lines}\n ]")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) if arguments else Path(__file__).parent.parent / "analysis" / "schemas"
    table = generate()
    path = folder / f"lm_eval-{table['lm_eval']}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text(table), encoding="utf-8")
    print(path)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
