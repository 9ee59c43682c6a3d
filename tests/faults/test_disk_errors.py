"""A disk that is full, or fails, at the n-th call of a build, for every n: once, or from then on.

The build ends right, or says in one line what is wrong with which file; and once the disk is well, it completes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from marin_cas.errors import EXIT_ENVIRONMENT, EXIT_OK
from tests.conftest import CAMPAIGN
from tests.faults.conftest import Driver, Totals, assert_recovers, fresh
from tests.faults.test_kill import BUILD_ONE_BY_ONE

pytestmark = pytest.mark.campaign

SAID = {"ENOSPC": "the disk is full", "EIO": "the disk reported an input/output error"}
STEP = 1 if CAMPAIGN else 11


@pytest.mark.parametrize("lasts", [None, 1], ids=["from then on", "once"])
@pytest.mark.parametrize("what", SAID)
def test_at_every_call(driver: Driver, root: Path, totals: Totals, what: str, lasts: int | None) -> None:
    unharmed = driver.ok(root, *BUILD_ONE_BY_ONE)
    n = fired = refused = 0
    while True:
        fresh(root)
        ended = driver.run(root, *BUILD_ONE_BY_ONE, fault={"what": what, "n": n, "lasts": lasts})
        if not ended.fired:
            break
        fired += 1
        assert ended.status in (EXIT_OK, EXIT_ENVIRONMENT), (n, ended.status, ended.fired, ended.err)
        if ended.status == EXIT_ENVIRONMENT:
            refused += 1
            told = f"\n{ended.err}"
            assert SAID[what] in told and f"`{root}/cache" in told and "\nerror: " in told, f"{n}: {ended.fired}{told}"
        try:
            assert_recovers(driver, root)
        except BaseException:
            print(f"{what} at {n}: {ended.fired}\n{ended.err}")
            raise
        n += STEP
    assert refused > fired // 3
    assert n >= len(unharmed.calls) // 2
    totals.add(what, listed=-(-n // STEP), fired=fired)
