"""The no-op build: the same request as before, and nothing that it saw has changed. Imports nothing heavy."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from marin_cas.config import Config
from marin_cas.errors import EXIT_OK
from marin_cas.scheduler import snapshot
from marin_cas.ui import out
from marin_cas.workspace import Workspace, open_workspace

SNAPSHOT = "snapshot"


def request(patterns: Sequence[str], package: str, config: Config) -> dict[str, object]:
    """All that a build's report depends on besides the files that it watches."""
    return {
        "patterns": list(patterns),
        "package": package,
        "cache": config.cache,
        "define": dict(config.define),
        "profile": config.profile,
    }


def plain(args: Sequence[str]) -> bool:
    """Whether a command line is `build` with nothing but patterns, so that it needs no parser."""
    return len(args) > 1 and args[0] == "build" and all(arg and not arg.startswith("-") for arg in args[1:])


def find(patterns: Sequence[str], workspace: Workspace, package: str) -> snapshot.Report | None:
    if workspace.config.locked:
        return None  # what is installed here is compared with the lock, and no file that is watched tells of it
    path = workspace.cache / SNAPSHOT
    return snapshot.check(path, workspace.root, request(patterns, package, workspace.config))


def fast(patterns: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """The exit code of an unchanged build, whose report was printed again; None when it must be looked at."""
    began = time.monotonic()
    cwd = Path(os.getcwd())
    workspace = open_workspace(cwd, {}, environ)
    found = find(patterns, workspace, workspace.package_of(cwd))
    if found is None:
        return None
    tell(found, time.monotonic() - began, quiet=False, json_wanted=False)
    return EXIT_OK


def tell(found: snapshot.Report, seconds: float, *, quiet: bool, json_wanted: bool) -> None:
    if json_wanted:
        import json

        data = {**found.data, "seconds": round(seconds, 3)}
        out.data(json.dumps(data, indent=2, ensure_ascii=False))
        return
    if not quiet:
        for line in found.lines:
            out.data(line)
        total = found.data["counts"]["up_to_date"]
        out.note(f"up to date: nothing changed, {total:,} served ({seconds:.1f} s)")
