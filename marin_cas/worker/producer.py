"""Who made a result: user, host, commit and installed versions, asked for once a process."""

from __future__ import annotations

import functools
import getpass
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from marin_cas import __version__
from marin_cas.result import Producer
from marin_cas.worker.environment import installed_version

if TYPE_CHECKING:
    from marin_cas.digest import Digest
    from marin_cas.store.base import Store

_GIT_PATIENCE_S = 10


@functools.cache
def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return str(os.getuid())


@functools.cache
def host() -> str:
    return platform.node() or "unknown"


@functools.cache
def commit(root: str) -> tuple[str | None, bool | None]:
    """The workspace's commit and whether tracked files differ from it; (None, None) outside git."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"],
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None, None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    oid = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), None)
    if oid is None or oid == "(initial)":
        return None, None
    return oid, any(not line.startswith("#") for line in lines)


@functools.cache
def environment_list() -> bytes:
    """Every installed distribution as `name==version`, a line each, sorted."""
    # The folders' names say it all; reading 250 metadata files takes a third of a second.
    found = {f"python=={platform.python_version()}"}
    for entry in sys.path:
        try:
            names = os.listdir(entry)
        except OSError:
            continue
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            if dot and suffix in ("dist-info", "egg-info") and "-" in stem:
                distribution, _, version = stem.partition("-")
                found.add(f"{distribution.replace('_', '-').lower()}=={version.split('-')[0]}")
    return "\n".join(sorted(found)).encode() + b"\n"


def producer(root: Path, toolchain: Mapping[str, str], environment: Digest | None) -> Producer:
    """The producer of one result; `toolchain` is the recipe's, checked against what is installed."""
    oid, dirty = commit(str(root))
    versions = {"marin-cas": __version__, "python": platform.python_version(), "platform": _platform()}
    versions |= {name: installed_version(name) or version for name, version in toolchain.items()}
    return Producer(user(), host(), oid, dirty, versions, environment)


@functools.cache
def _platform() -> str:
    return f"{sys.platform}-{platform.machine()}"


class Environments:
    """The blob that lists this environment, put into each store once, at the first result."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._digest: Digest | None = None

    def digest(self) -> Digest:
        if self._digest is None or not self._store.contains(self._digest):
            self._digest = self._store.put(environment_list())
        return self._digest
