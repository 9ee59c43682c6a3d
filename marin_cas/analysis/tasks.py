"""The tasks of the locked lm-eval, from a committed table: what data each reads, and how it is scored.

lm-eval itself is never imported here. `python -m marin_cas.tools.eval_table` writes the table.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_cas.analysis.lock import Lock
from marin_cas.errors import Location, RequestError, did_you_mean

SCHEMAS = Path(__file__).parent / "schemas"
DISTRIBUTION = "lm-eval"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _Table:
    datasets: Sequence[str]
    tasks: Mapping[str, Sequence[Any]]
    groups: Mapping[str, Sequence[int | str]]
    names: Sequence[str]  # of the tasks, by index

    def leaves(self, name: str) -> list[str]:
        """The tasks in a task or group, each once, in order."""
        found: dict[str, None] = {}
        waiting, seen = [name], set()
        while waiting:
            name = waiting.pop(0)
            if name in seen:
                continue
            seen.add(name)
            if name in self.tasks:
                found[name] = None
            members = self.groups.get(name, ())
            waiting = [*(self.names[m] if isinstance(m, int) else m for m in members), *waiting]
        return list(found)


def describe(names: Any, *, lock: Lock, where: Location | None, what: str) -> dict[str, Any]:
    """By name, what is known of bundled tasks and groups: `tasks` in it, their `datasets`, `kinds`, and `unsafe` ones.

    What the table does not have is left out: a task of the workspace may have any name. `known` has what may have been
    meant by each of those.
    """
    if not isinstance(names, list):
        raise RequestError(f"{what}: the names of tasks are a list", where=where)
    version = lock.version(DISTRIBUTION, where=where)
    table = _read(version)
    if table is None:
        known = sorted(path.stem.removeprefix("lm_eval-") for path in SCHEMAS.glob("lm_eval-*.json"))
        raise RequestError(
            f"no table of the tasks of `{DISTRIBUTION}` {version}, which marin.lock pins: this marin-cas knows "
            f"{', '.join(known)}",
            where=where,
            hint="lock one of these, or run `python -m marin_cas.tools.eval_table` where that version is installed",
        )
    described: dict[str, Any] = {}
    for name in names:
        if name not in table.tasks and name not in table.groups:
            near = did_you_mean(name, [*table.tasks, *table.groups])
            described[name] = {"tasks": [], "near": near or ""}
            continue
        leaves = table.leaves(name)
        rows = {leaf: table.tasks[leaf] for leaf in leaves}
        described[name] = {
            "tasks": leaves,
            "datasets": {leaf: None if row[0] is None else table.datasets[row[0]] for leaf, row in rows.items()},
            "kinds": {leaf: row[1] for leaf, row in rows.items()},
            "unsafe": [leaf for leaf, row in rows.items() if row[2:]],
            "group": name in table.groups and name not in table.tasks,
        }
    return described


@functools.lru_cache(maxsize=4)
def _read(version: str) -> _Table | None:
    path = SCHEMAS / f"lm_eval-{version}.json"
    if not path.exists():
        return None
    document = json.loads(path.read_bytes())
    if document["format"] != _FORMAT:
        return None
    return _Table(document["datasets"], document["tasks"], document["groups"], list(document["tasks"]))
