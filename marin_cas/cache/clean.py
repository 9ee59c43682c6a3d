"""Removing what can be made again from the store: `out/`, `trees/`, and the work and scratch that nobody is using.

Blobs, results, refs and histories stay: a build after a clean executes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from marin_cas.cache.cache import Cache
from marin_cas.cache.holder import Holder
from marin_cas.cache.usage import folder_bytes
from marin_cas.disk import disk_problems


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """`folders` go, `bytes` are in them (counting what shares its bytes with the store); `kept` are in use."""

    folders: tuple[Path, ...]
    bytes: int
    kept: tuple[tuple[Path, Holder], ...]


def plan_clean(cache: Cache) -> CleanPlan:
    """What `clean` would remove. Nothing is changed."""
    folders = [cache.root / name for name in ("out", "trees", "snapshot") if os.path.lexists(cache.root / name)]
    kept: list[tuple[Path, Holder]] = []
    for name in ("work", "scratch"):
        for path in _children(cache.root / name):
            holder = cache.actions.in_use(path.name)
            if holder is None:
                folders.append(path)
            else:
                kept.append((path, holder))
    return CleanPlan(tuple(folders), sum(folder_bytes(os.fspath(folder)) for folder in folders), tuple(kept))


def clean(cache: Cache, plan: CleanPlan) -> None:
    """Removes what the plan names; a folder that a build has begun to use meanwhile stays."""
    for folder in plan.folders:
        if folder.parent != cache.root and cache.actions.in_use(folder.name) is not None:
            continue
        with disk_problems(folder):
            cache.disk.remove_tree(folder)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
