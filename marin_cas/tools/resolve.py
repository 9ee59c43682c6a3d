"""Answers what `marin.lock` lacks: the one program that asks the outside world what a name means now.

`python -m marin_cas.tools.resolve` reads one JSON list of `[kind, name]` and writes a line `{"kind", "name", "answer"}`
or `{"kind", "name", "error", "hint"}` for each, in that order. It runs with the environment of whoever locks.
"""

from __future__ import annotations

import json
import sys

from marin_cas.tools.hub import Hub, Repo
from marin_cas.tools.patience import Patience
from marin_cas.worker.context import ToolError

# Somebody sits in front of it, and nothing is lost by an early end.
_TRIES = 4


def main() -> None:
    patience = Patience(_TRIES)
    hub = Hub(patience)
    for kind, name in json.load(sys.stdin):
        told: dict[str, str | None] = {"kind": kind, "name": name}
        try:
            told["answer"] = answer(hub, kind, name)
        except ToolError as error:
            told |= {"error": error.message, "hint": error.hint}
        print(json.dumps(told), flush=True)  # noqa: T201


def answer(hub: Hub, kind: str, name: str) -> str:
    """What the lock shall say. ToolError when it cannot be found out."""
    if kind == "hub":
        repo_type, _, rest = name.partition(" ")
        repo_id, _, revision = rest.partition("@")
        return hub.commit(Repo(repo_type, repo_id), revision)
    raise ToolError(f"there is no way to find out `{name}`")


if __name__ == "__main__":
    main()
