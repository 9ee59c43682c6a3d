"""A workspace and its configuration: the tree whose root holds `marin.toml`, or `[tool.marin]` in `pyproject.toml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marin_cas.config import WORKSPACE_FILE, Config, cache_folder, load_config, workspace_file
from marin_cas.errors import RequestError


@dataclass(frozen=True, slots=True)
class Workspace:
    """`root` and `cache` are absolute paths; `root` is free of symbolic links."""

    root: Path
    cache: Path
    config: Config

    @property
    def compilation_cache(self) -> Path:
        """Where JAX keeps compiled programs."""
        given = self.config.compilation_cache
        return self.root / os.path.expanduser(given) if given else self.cache / "jax"

    def package_of(self, folder: Path) -> str:
        """The package path that `folder` (absolute, inside the workspace) would be."""
        relative = folder.resolve().relative_to(self.root).as_posix()
        return "" if relative == "." else relative


def rules_folder() -> Path:
    """The folder that `@marin//rules:...` names: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "rules"
    return installed if installed.is_dir() else package.parent / "rules"


def find_workspace(cwd: Path) -> Path:
    """The nearest folder at or above `cwd` that is a workspace's root. RequestError when there is none."""
    here = cwd.resolve()
    for folder in (here, *here.parents):
        # A file that is wrong still marks the root: the error in it is for load_config to tell.
        if (folder / WORKSPACE_FILE).is_file():
            return folder
        if (folder / "pyproject.toml").is_file() and workspace_file(folder) is not None:
            return folder
    raise RequestError(
        f"`{here}` is not inside a workspace: no `marin.toml`, and no `[tool.marin]` in a `pyproject.toml`, above it",
        hint="put an empty `marin.toml` at the root of your project",
    )


def open_workspace(cwd: Path, flags: Mapping[str, object], environ: Mapping[str, str]) -> Workspace:
    """The workspace around `cwd`, configured."""
    root = find_workspace(cwd)
    config = load_config(root, flags, environ)
    return Workspace(root, cache_folder(root, config), config)
