"""The file `request.json` in an action's folder: all that the tool's process is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin_cas.disk import DISK
from marin_cas.worker import plain

NAME = "request.json"


@dataclass(frozen=True, slots=True)
class Job:
    """`inputs` are names, `outputs` name -> kind. `workspace` is a folder of which no module may be imported."""

    tool: str
    revision: int
    params: Mapping[str, Any]
    settings: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    earlier: int = 0
    code: bool = False
    writable: tuple[str, ...] = ()
    confine: bool = True
    workspace: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)  # for people and for `marin shell`; tools get its key only

    def write(self, folder: Path) -> None:
        fields = {name: plain.to_json(getattr(self, name)) for name in self.__slots__ if name != "request"}
        fields["request"] = dict(self.request)
        DISK.write(folder / NAME, f"{json.dumps(fields)}\n".encode())

    @classmethod
    def read(cls, folder: Path) -> Job:
        fields = json.loads((folder / NAME).read_text(encoding="utf-8"))
        request = fields.pop("request")
        fields = {name: plain.from_json(value) for name, value in fields.items()}
        for name in ("inputs", "writable"):
            fields[name] = tuple(fields[name])
        return cls(request=request, **fields)
