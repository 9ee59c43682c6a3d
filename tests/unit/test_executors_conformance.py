"""What every executor promises (`executors.base`), held against each one there is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_cas.action import Resources
from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.holder import Holder
from marin_cas.errors import BuildError, EnvironmentProblem
from marin_cas.executors.base import Executor, Job
from marin_cas.executors.local import LocalExecutor
from marin_cas.recipe import TREE, Recipe
from marin_cas.tree.ingest import ingest
from marin_cas.worker.attempt import Progress, Started, Status
from marin_cas.worker.request import Request

# Another executor joins by a line here.
EXECUTORS: dict[str, Callable[[Cache, Path], Executor]] = {
    "local": lambda cache, root: LocalExecutor(cache, root, environ={}, grace=0.5),
}

CODE = """
import time
def go(ctx):
    ctx.progress(1, 2, "steps")
    if ctx.params.get("fail"):
        raise ValueError("asked to")
    time.sleep(ctx.params.get("sleep", 0))
    (ctx.output_path / "a").write_text(str(ctx.params))
"""


class Bench:
    def __init__(self, base: Path, make: Callable[[Cache, Path], Executor]) -> None:
        self.cache = open_cache(base / "cache")
        self.executor = make(self.cache, base)
        (base / "code/exp").mkdir(parents=True)
        (base / "code/exp/f.py").write_text(CODE)
        self.code = ingest(self.cache.store, base / "code", move=False).digest

    def submit(self, listener=None, recheck=None, publish=None, **params) -> tuple[Job, Request]:
        recipe = Recipe("function", 1, {"function": "exp/f.py:go", "params": params}, {}, {"files": TREE})
        lease = self.cache.actions.acquire(recipe.key(), Holder.here(), force=True)
        request = Request(key=recipe.key(), label="//exp:x", fence=lease.fence, record=recipe.record(), code=self.code)
        job = self.executor.submit(request, lease, listener, recheck=recheck, publish=publish)
        return job, request


@pytest.fixture(params=sorted(EXECUTORS))
def bench(request, tmp_path):
    made = Bench(tmp_path, EXECUTORS[request.param])
    yield made
    made.executor.close()


def test_it_is_an_executor(bench):
    assert isinstance(bench.executor, Executor)
    job, _ = bench.submit()
    assert isinstance(job, Job) and bench.executor.name


def test_a_success_is_published_and_told(bench):
    said = []
    job, request = bench.submit(said.append)
    attempt = job.wait(60)
    assert attempt.status == Status.SUCCEEDED and attempt.error is None
    assert bench.cache.actions.result(request.key) == attempt.result
    assert bench.cache.store.contains(request.key), "the recipe is in the store before the result"
    assert [type(each) for each in said] == [Started, Progress]
    assert job.wait(0) is attempt


def test_a_failure_comes_to_an_end_too(bench):
    job, request = bench.submit(fail=True)
    attempt = job.wait(60)
    assert attempt.status == Status.FAILED and "asked to" in attempt.error.message
    assert bench.cache.actions.result(request.key) is None
    assert bench.cache.actions.state(request.key).state == "leased", "whoever submits releases the lease"


def test_wait_does_not_wait_for_ever(bench):
    job, _ = bench.submit(sleep=60)
    began = time.monotonic()
    assert job.wait(0.05) is None
    job.cancel(kill=True)
    job.cancel()
    assert job.wait(30).status == Status.CANCELLED
    assert time.monotonic() - began < 20
    job.cancel()
    assert job.wait().status == Status.CANCELLED


def test_several_wait_for_one_job(bench):
    job, _ = bench.submit(sleep=0.1)
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(job.wait(60))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4 and all(each is seen[0] for each in seen)


def test_what_recheck_forbids_is_not_published(bench):
    def recheck():
        raise BuildError("changed")

    job, request = bench.submit(recheck=recheck)
    attempt = job.wait(60)
    assert (attempt.status, attempt.error.message) == (Status.FAILED, "changed")
    assert bench.cache.actions.result(request.key) is None


def test_publish_stands_in_for_the_lease(bench):
    first, request = bench.submit()
    chosen = first.wait(60).result
    seen = []

    def keep(made):
        seen.append(made)
        return chosen

    second, _ = bench.submit(publish=keep)
    attempt = second.wait(60)
    assert attempt.result is chosen and attempt.made is seen[0] and attempt.made.fence != chosen.fence
    assert bench.cache.actions.result(request.key) == chosen


def test_a_listener_that_raises_does_not_hang_the_job(bench):
    def listener(said):
        raise RuntimeError("a bug")

    job, _ = bench.submit(listener)
    attempt = job.wait(60)
    assert attempt.status == Status.INFRA and "a bug" in attempt.error.message


def test_close_ends_what_runs(bench):
    job, _ = bench.submit(sleep=60)
    began = time.monotonic()
    bench.executor.close()
    assert job.wait(0).status == Status.CANCELLED
    assert time.monotonic() - began < 20


def test_resources_that_are_not_here(tmp_path):
    executor = EXECUTORS["local"](open_cache(tmp_path), tmp_path)
    assert executor.check(Resources()) is None
    problem = executor.check(Resources(device="tpu", variant="v4-128"))
    assert type(problem) is EnvironmentProblem
    assert problem.message == 'this machine runs actions on its CPUs only, and `tpu("v4-128")` is asked for'
    assert executor.check(Resources(device="gpu")).hint
