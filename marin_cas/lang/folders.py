"""What lies in a workspace's folders, as loading sees it; each folder is listed once and is then on the watch list.

Never seen: what `.marinignore` names, the cache, and other workspaces below this one. Links to folders are
not entered on the way down, so that a walk always ends; a path that names such a link is followed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from marin_cas.errors import EnvironmentProblem
from marin_cas.lang import ignore

BUILD_FILE = "BUILD.marin"
_WORKSPACE_FILE = "marin.toml"


@dataclass(frozen=True, slots=True)
class Listing:
    """Names in one folder, sorted by their bytes; `links` are links to folders. All else counts as a file."""

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @property
    def package(self) -> bool:
        return BUILD_FILE in self.files


class Folders:
    """Listings by path relative to the root (empty for the root itself)."""

    def __init__(self, root: Path, watched: set[Path], cache: Path | None = None) -> None:
        self.root = root
        cache = cache or root / "cache"
        self._cache = cache.relative_to(root).as_posix() if cache.is_relative_to(root) else None
        self._watched = watched
        self._listings: dict[str, Listing] = {}
        self._ignore = ignore.read_ignore(root)
        watched.add(root / ignore.FILE)

    def listing(self, folder: str) -> Listing:
        """What is in `folder`; nothing where there is no such folder, or where it is hidden from loading."""
        found = self._listings.get(folder)
        if found is None:
            found = self._listings[folder] = self._read(folder)
        return found

    def hidden(self, folder: str) -> bool:
        """True for a folder that loading never sees."""
        if self._cache and (folder == self._cache or folder.startswith(self._cache + "/")):
            return True
        return folder != "" and self._ignore.covers(folder)

    def is_package(self, folder: str) -> bool:
        """Asks for the one file instead of listing the folder, which may hold a whole data set."""
        found = self._listings.get(folder)
        if found is not None:
            return found.package
        if self.hidden(folder):
            return False
        path = self.root / folder / BUILD_FILE
        self._watched.add(path)
        return path.is_file()

    def packages(self, below: str = "") -> list[str]:
        """The packages at and below a folder, sorted. Folders whose name starts with a dot are not entered."""
        found, todo = [], [below]
        while todo:
            folder = todo.pop()
            listing = self.listing(folder)
            if listing.package:
                found.append(folder)
            prefix = f"{folder}/" if folder else ""
            todo += [prefix + name for name in listing.folders if not name.startswith(".")]
        return sorted(found, key=os.fsencode)

    def _read(self, folder: str) -> Listing:
        if self.hidden(folder):
            return Listing()
        path = self.root / folder
        self._watched.add(path)
        files, folders, links = [], [], []
        prefix = f"{folder}/" if folder else ""
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    is_link = entry.is_symlink()
                    is_folder = entry.is_dir()
                    if prefix + entry.name == self._cache or self._ignore.matches(
                        prefix + entry.name, folder=is_folder
                    ):
                        continue
                    if is_folder:
                        (links if is_link else folders).append(entry.name)
                    else:
                        files.append(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return Listing()
        except OSError as error:
            raise EnvironmentProblem(f"cannot list the folder `{path}`: {error.strerror}") from None
        if folder and _WORKSPACE_FILE in files:
            return Listing()
        if path.is_symlink():
            self._watched.add(path.resolve())
        return Listing(*(tuple(sorted(names, key=os.fsencode)) for names in (files, folders, links)))
