"""What the benchmarks of the store run of ours, each in a Python of its own and timed without its start."""

from __future__ import annotations

from pathlib import Path

from measure import MARIN, Inside, Taken, inside, run

_CACHE = """
from pathlib import Path
from marin_cas.cache.cache import open_cache
from marin_cas.digest import Digest
from marin_cas.recipe import TREE
"""


def ingest(cache: Path, what: Path) -> Inside:
    """Takes the folder `what` in, its files moved; prints the digest of its tree."""
    return inside(
        f"{_CACHE}from marin_cas.tree.ingest import ingest\ncache = open_cache(sys.argv[1])",
        "print(ingest(cache.store, sys.argv[2], move=True).digest)",
        cache,
        what,
    )


def materialise(cache: Path, digest: str, where: Path) -> Inside:
    return inside(
        f"{_CACHE}from marin_cas.tree.materialise import materialise\ncache = open_cache(sys.argv[1])",
        "materialise(cache.store, TREE, Digest.parse(sys.argv[2]), sys.argv[3], disk=cache.disk)",
        cache,
        digest,
        where,
    )


def complete(cache: Path, digest: str) -> Inside:
    """Looks whether all of a tree is there."""
    return inside(
        f"{_CACHE}from marin_cas.tree.walk import first_missing\ncache = open_cache(sys.argv[1])",
        "assert first_missing(cache.store, TREE, Digest.parse(sys.argv[2])) is None",
        cache,
        digest,
    )


_SOURCES = """
import os
from marin_cas.action import Source
from marin_cas.tree.sources import put_source, tree_of
"""
_RESCAN = """
cache = open_cache(sys.argv[1])
paths, pending = [], [""]
while pending:
    at = pending.pop()
    with os.scandir(f"{sys.argv[2]}/{at}") as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{at}{entry.name}/")
            else:
                paths.append(at + entry.name)
paths.sort()
digest = tree_of(sys.argv[2], paths, paths, cache.stats)
put_source(cache.store, sys.argv[2], Source(TREE, digest, tuple(paths), tuple(paths)), cache.stats)
cache.close()
"""


def rescan(cache: Path, what: Path) -> Inside:
    """Workspace files as an input: found, hashed where the stat cache does not know them, kept where they are not."""
    return inside(
        _CACHE + _SOURCES,
        _RESCAN,
        cache,
        what,
    )


def verify(cache: Path) -> Taken:
    """The whole command, interpreter's start included."""
    (cache.parent / "marin.toml").write_text("")
    return run([MARIN, "cache", "verify", "--restart"], cache.parent, {"MARIN_CACHE": str(cache)})
