"""The peers of the store: each takes a file or a folder into a repository of its own, as its users would have it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from measure import BENCH, PYTHON, Taken, run

# Where Debian has them.
_PACKAGES = {
    "b3sum": "b3sum",
    "restic": "restic",
    "borg": "borgbackup",
    "nix-store": "nix-bin",
    "git": "git",
    "casync": "casync",
}


@functools.cache
def program(name: str) -> str | None:
    """The program, installed when missing where that is possible; None where it cannot be had."""
    found = shutil.which(name)
    if found is None and name == "dvc":
        found = _from_pypi(name, BENCH / "bench-peers" / name)
    elif found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", _PACKAGES[name]]
        if not _works(install):
            _works(["apt-get", "update", "-qq"])
            _works(install)
        found = shutil.which(name)
    return found


def _from_pypi(name: str, folder: Path) -> str | None:
    # Not into this environment, whose versions are pinned. It is kept for the next run.
    there = f"{folder}/bin/{name}"
    if not os.path.exists(there):
        made = _works([PYTHON, "-m", "venv", str(folder)]) and _works([f"{folder}/bin/pip", "install", "-q", name])
        return there if made else None
    return there


def _works(command: Sequence[str]) -> bool:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        return subprocess.run(command, env=environ, capture_output=True).returncode == 0
    except OSError:
        return False


class Peer:
    """`name` is its program, `verb` what takes something in; `base`, made here, a folder for its repository."""

    name = verb = ""

    def __init__(self, base: Path) -> None:
        base.mkdir(parents=True)
        self.base = base
        self.program = program(self.name) or ""

    @property
    def there(self) -> bool:
        return bool(self.program)

    def prepare(self) -> None:
        """Makes the repository."""

    def take(self, what: Path) -> Taken:
        """Takes `what` in; again when it was taken before."""
        raise NotImplementedError

    def lay(self, what: Path) -> Taken:
        """Lays out again what was taken last, at `what`, which is gone."""
        raise NotImplementedError

    def _env(self) -> dict[str, str]:
        # Their caches and settings go where their repositories are.
        return {
            "HOME": f"{self.base}",
            "XDG_CACHE_HOME": f"{self.base}/cache",
            "XDG_CONFIG_HOME": f"{self.base}/config",
        }

    def _run(self, *arguments: str | Path, cwd: Path | None = None) -> Taken:
        return run([self.program, *map(str, arguments)], cwd, self._env())


class Restic(Peer):
    name, verb = "restic", "backup"

    def _env(self) -> dict[str, str]:
        return {**super()._env(), "RESTIC_PASSWORD": "x", "RESTIC_REPOSITORY": f"{self.base}/repo"}

    def prepare(self) -> None:
        self._run("init", "-q")

    def take(self, what: Path) -> Taken:
        return self._run("backup", "-q", what)


class Borg(Peer):
    name, verb = "borg", "create"

    def _env(self) -> dict[str, str]:
        return {**super()._env(), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}

    def prepare(self) -> None:
        self._run("init", "-e", "none", self.base / "repo")

    def take(self, what: Path) -> Taken:
        return self._run("create", f"{self.base}/repo::{{now:%f}}", what)


class Nix(Peer):
    name, verb = "nix-store", "--add"

    def take(self, what: Path) -> Taken:
        return self._run("--store", f"local?root={self.base}/root", "--add", what)


class Git(Peer):
    name, verb = "git", "add"

    def prepare(self) -> None:
        self._run("init", "-q", "--bare", self.base / "repo")

    def take(self, what: Path) -> Taken:
        return self._run("--git-dir", self.base / "repo", "--work-tree", what, "add", ".", cwd=what)


class Casync(Peer):
    name, verb = "casync", "make"

    def take(self, what: Path) -> Taken:
        return self._run("make", f"--store={self.base}/chunks", self.base / "index.caidx", what)

    def lay(self, what: Path) -> Taken:
        return self._run("extract", f"--store={self.base}/chunks", self.base / "index.caidx", what)


class Dvc(Peer):
    """It takes only what lies in its workspace: `what` must be below `base`."""

    name, verb = "dvc", "add"

    def prepare(self) -> None:
        self._run("init", "--no-scm", "-q", cwd=self.base)
        for key, value in (("core.analytics", "false"), ("cache.type", "hardlink")):
            self._run("config", key, value, cwd=self.base)

    def take(self, what: Path) -> Taken:
        return self._run("add", "-q", what.name, cwd=self.base)

    def lay(self, what: Path) -> Taken:
        return self._run("checkout", "-q", f"{what.name}.dvc", cwd=self.base)


def taken(peer: Peer, what: Path) -> Taken | None:
    """What it took to take `what` into a fresh repository; None without the peer."""
    if not peer.there:
        return None
    peer.prepare()
    return peer.take(what)


def best(*times: Taken | None) -> Taken | None:
    """The quickest by wall of those that were measured."""
    measured = [each for each in times if each is not None]
    return min(measured, key=lambda each: each.wall) if measured else None
