"""A disk that is full, or fails, at the n-th call of a command, for every n: once, or from then on.

The command ends right, or says in one line what is wrong with which file; and once the disk is well, it completes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_cas.errors import EXIT_ENVIRONMENT, EXIT_OK
from tests.conftest import CAMPAIGN
from tests.faults.conftest import Driver, Totals, assert_recovers
from tests.faults.test_kill import BUILD_ONE_BY_ONE, COLLECT, TAINT, Base, built

pytestmark = pytest.mark.campaign

SAID = {"ENOSPC": "the disk is full", "EIO": "the disk reported an input/output error"}
either = pytest.mark.parametrize(
    ("what", "lasts"),
    [(what, lasts) for what in SAID for lasts in (None, 1)],
    ids=[f"{what}, {lasts}" for what in SAID for lasts in ("from then on", "once")],
)


def fail_everywhere(
    driver: Driver,
    base: Base,
    args: tuple[str, ...],
    recovered: Callable[[], None],
    totals: Totals,
    what: str,
    lasts: int | None,
    step: int,
) -> None:
    root, step = base.root, 1 if CAMPAIGN else step
    n = fired = refused = 0
    while True:
        base.restore()
        ended = driver.run(root, *args, fault={"what": what, "n": n, "lasts": lasts})
        if not ended.fired:
            break
        fired += 1
        assert ended.status in (EXIT_OK, EXIT_ENVIRONMENT), (n, ended.status, ended.fired, ended.err)
        if ended.status == EXIT_ENVIRONMENT:
            refused += 1
            told = f"\n{ended.err}"
            assert SAID[what] in told and f"`{root}/cache" in told and "\nerror: " in told, f"{n}: {ended.fired}{told}"
        try:
            recovered()
        except BaseException:
            totals.add(what, listed=-(-n // step), fired=fired, losses=1)
            print(f"{what} at {n}: {ended.fired}\n{ended.err}")
            raise
        n += step
    assert refused > fired // 4
    # The last one that did not fire was not listed: the command makes no more calls.
    totals.add(what, listed=-(-n // step), fired=fired)


@either
def test_a_build(driver: Driver, root: Path, totals: Totals, what: str, lasts: int | None) -> None:
    fail_everywhere(
        driver, Base(root), BUILD_ONE_BY_ONE, lambda: assert_recovers(driver, root), totals, what, lasts, 37
    )


@pytest.mark.slow
@either
def test_a_taint(driver: Driver, root: Path, totals: Totals, what: str, lasts: int | None) -> None:
    fail_everywhere(driver, built(driver, root), TAINT, lambda: assert_recovers(driver, root), totals, what, lasts, 9)


@pytest.mark.slow
@either
def test_a_collection(driver: Driver, root: Path, totals: Totals, what: str, lasts: int | None) -> None:
    driver.ok(root, *BUILD_ONE_BY_ONE)
    shutil.rmtree(root / "cache/roots")
    base = Base(root)
    base.keep()
    fail_everywhere(driver, base, COLLECT, lambda: assert_recovers(driver, root), totals, what, lasts, 19)
