"""Source files: labels that name no target but a file or folder of the package's part of the workspace."""

from __future__ import annotations

import os
import stat

from marin_cas.errors import RequestError
from marin_cas.graph.loading import PackageLoader
from marin_cas.graph.target import SourceFile
from marin_cas.label import Label


class SourceFinder:
    """Finds source files; asks once a folder whether it is a package of its own."""

    def __init__(self, loader: PackageLoader) -> None:
        self._loader = loader
        self._root = os.fspath(loader.root)
        self._owners: dict[str, str] = {}

    def find(self, label: Label) -> SourceFile | None:
        """The source that the label names, or None when nothing is there.

        Raises RequestError when what is there belongs to another package, or is neither file nor folder.
        """
        try:
            mode = os.stat(f"{self._root}/{label.path}").st_mode
        except (OSError, ValueError):
            return None
        if stat.S_ISREG(mode):
            kind, folder = "file", label.path.rpartition("/")[0]
        elif stat.S_ISDIR(mode):
            kind, folder = "tree", label.path
        else:
            raise RequestError(f"`{label}` names `{label.path}`, which is neither a file nor a folder")
        owner = self._owner(folder)
        if owner != label.package:
            inside = label.path[len(owner) + 1 :]
            raise RequestError(
                f"`{label}` reaches into `//{owner}`, which is a package of its own",
                hint=f"write `//{owner}:{inside}`" if inside else f"name a target of `//{owner}`",
            )
        return SourceFile(label, kind)

    def _owner(self, folder: str) -> str:
        """The innermost package at or above `folder`; the root where there is none."""
        owner = self._owners.get(folder)
        if owner is None:
            owner = folder
            while owner and not self._loader.has_package(owner):
                owner = owner.rpartition("/")[0]
            self._owners[folder] = owner
        return owner
