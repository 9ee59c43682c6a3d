"""This machine as a place to build on: what runs actions here, from the start of a build to its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from marin_cas.cache.cache import Cache
from marin_cas.disk import disk_problems
from marin_cas.executors.local import LocalExecutor
from marin_cas.scheduler.local import LocalCache
from marin_cas.scheduler.runner import LocalRunner


@contextmanager
def local_runner(
    root: Path, cache: Cache, local: LocalCache, compiled: Path, pass_env: Iterable[str]
) -> Iterator[LocalRunner]:
    """Runs actions of the workspace at `root`, until the block ends. `compiled` is where JAX keeps programs."""
    # A second run of a training compiles nothing, and its bits are the same: outside every key, shared by all.
    with disk_problems(compiled):
        compiled.mkdir(parents=True, exist_ok=True)
    machine = {"JAX_COMPILATION_CACHE_DIR": str(compiled), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    executor = LocalExecutor(cache, root)
    runner = LocalRunner(
        root, cache, local, executor, pass_env=tuple(pass_env), machine_env=machine, writable=(str(compiled),)
    )
    try:
        yield runner
    finally:
        executor.close()
