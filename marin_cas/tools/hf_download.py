"""Files of a Hugging Face Hub repo at one commit, each checked against the hash that the commit has for it.

What belongs to a download follows from its parameters and the commit alone: patterns, or the split of a dataset.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from marin_cas.errors import did_you_mean
from marin_cas.tools.documents import pattern_to_regex
from marin_cas.tools.fetching import Remote, fetch
from marin_cas.tools.hub import Hub, HubFile, Repo
from marin_cas.tools.hub_layout import README, README_MAX, choose_split
from marin_cas.worker.context import ToolContext, ToolError

REVISION = 1


def run(ctx: ToolContext) -> None:
    (out,) = ctx.outputs.values()
    download(ctx, Hub(), out)


def download(ctx: ToolContext, hub: Hub, out: Path) -> list[HubFile]:
    """What `ctx.params` ask for, below `out`."""
    params = ctx.params
    repo, commit = Repo(params["repo_type"], params["repo_id"]), params["commit"]
    files = hub.files(repo, commit)
    if params["split"] is not None:
        chosen = _of_split(hub, repo, commit, files, params["subset"], params["split"])
    else:
        chosen = choose(files, params["globs"], params["optional"], str(repo))
    remotes = [
        Remote(
            file.path,
            file.size,
            file.algorithm,
            file.digest,
            lambda offset, file=file: hub.open(repo, commit, file, offset),
        )
        for file in chosen
    ]
    fetch(ctx, remotes, out, f"the {repo}", hub.patience)
    return chosen


def _of_split(hub: Hub, repo: Repo, commit: str, files: Sequence[HubFile], subset: str, split: str) -> list[HubFile]:
    by_path = {file.path: file for file in files}
    chosen = choose_split(
        list(by_path), lambda: hub.read(repo, commit, by_path[README], README_MAX), subset, split, str(repo)
    )
    return [by_path[path] for path in chosen]


def choose(files: Sequence[HubFile], globs: Sequence[str], optional: Sequence[str], where: str) -> list[HubFile]:
    """The files that match, each once, in order; all of them without a pattern. Each of `globs` must match."""
    if not files:
        raise ToolError(f"the {where} has no files at this commit")
    if not globs:
        return list(files)
    chosen: dict[str, HubFile] = {}
    for pattern in (*globs, *optional):
        matches = pattern_to_regex(pattern).fullmatch
        found = [file for file in files if matches(file.path)]
        if not found and pattern in globs:
            names = [file.path for file in files]
            shown = ", ".join(f"`{name}`" for name in names[:5]) + (", ..." if len(names) > 5 else "")
            raise ToolError(
                f"no file of the {where} matches `{pattern}`",
                hint=did_you_mean(pattern, names) or f"it has {shown}",
            )
        chosen.update((file.path, file) for file in found)
    return sorted(chosen.values(), key=lambda file: os.fsencode(file.path))
