"""A million small files: memory of taking them in and laying them out, and what a garbage collection plans then."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import ours
from measure import PYTHON, Inside, inside, row, verdict

_RESULTS = 1_000

# A result's folder holds 100 files, and 9 folders of 100: 10 trees a result.
_WRITE = """
import os, sys
root, first, step, results = sys.argv[1], *map(int, sys.argv[2:])
for result in range(first, results, step):
    top = f"{root}/{result:04}"
    for folder in (top, *(f"{top}/{part}" for part in range(9))):
        os.makedirs(folder)
        for n in range(100):
            with open(f"{folder}/part-{n:05}.txt", "w") as file:
                file.write(f"{folder[len(root):]} {n}")
"""

_PREPARE = """
from marin_cas.cache.cache import open_cache
from marin_cas.cache.holder import Holder
from marin_cas.digest import Digest
from marin_cas.recipe import TREE, Recipe
from marin_cas.result import Cost, Output, Producer, Result
from marin_cas.tree.walk import read_tree
cache = open_cache(sys.argv[1])
"""

# Each folder below the root becomes the output of a result; a workspace's labels keep half of them.
_PUBLISH = """
for n, entry in enumerate(read_tree(cache.store, Digest.parse(sys.argv[2])).entries):
    recipe = Recipe("make", 1, {"n": n}, outputs={"out": TREE})
    key = cache.store.put(recipe.record())
    result = Result(
        key, recipe.fingerprint(), "exact", {"out": Output(TREE, entry.digest)}, Producer("bench", "here"),
        1.0, 2.0 + n, Cost(wall_s=1.0 + n % 97, cpu_s=1.0 + n % 97), label=f"//bench:{n}",
    )
    cache.actions.acquire(key, Holder.here()).publish(result)
    if n % 2:
        cache.roots.register(sys.argv[1], f"//bench:{n}", [key])
"""

_PLAN = """
from marin_cas.cache.gc import Wanted, plan
planned = plan(cache, Wanted(max_size=8 << 20), time.time() + 7 * 86400)
print(f"{len(planned.items)} items, {planned.freed:,} of {planned.size:,} bytes")
"""


def plan(cache: Path) -> Inside:
    return inside(_PREPARE, _PLAN, cache)


def run(base: Path) -> None:
    tree, cache = base / "tree", base / "cache"
    tree.mkdir()
    command = [PYTHON, "-c", _WRITE, str(tree)]
    writers = [subprocess.Popen([*command, str(first), "2", str(_RESULTS)]) for first in (0, 1)]
    if any(code != 0 for code in [writer.wait() for writer in writers]):
        sys.exit("the files could not be written")
    took = ours.ingest(cache, tree)
    digest = took.printed
    row("ingest of 1,000,000 files", took.taken)
    verdict("anonymous memory", took.anonymous, 600, "MB")
    shutil.rmtree(tree)
    looked = ours.complete(cache, digest)
    row("is all of it there?", looked.taken)
    verdict("anonymous memory", looked.anonymous, 600, "MB")
    laid = ours.materialise(cache, digest, base / "laid")
    row("checkout of it by links", laid.taken)
    verdict("anonymous memory", laid.anonymous, 600, "MB")
    shutil.rmtree(base / "laid")

    published = inside(_PREPARE, _PUBLISH, cache, digest)
    row("1,000 results published", published.taken)
    (cache / "state.db").unlink(missing_ok=True)
    absent, present = plan(cache), plan(cache)
    row("GC plan, state.db absent", absent.taken, absent.printed)
    verdict("time", absent.taken.wall, 30)
    verdict("anonymous memory", absent.anonymous, 500, "MB")
    row("GC plan, state.db present", present.taken, present.printed)
    verdict("time", present.taken.wall, 10)
    verdict("anonymous memory", present.anonymous, 500, "MB")
    if absent.printed != present.printed:
        sys.exit("the plans differ")
