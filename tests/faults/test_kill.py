"""`kill -9` at every call on the disk of a command: before it, in its middle and after it.

A recording run lists the points. Whether each was reached is told by the process that is about to be killed, so a
point that is listed and not fired fails the test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_cas.digest import hash_file
from marin_cas.errors import EXIT_OK
from marin_cas.store.trace import DIVISIBLE
from tests.conftest import CAMPAIGN
from tests.faults.conftest import TARGETS, Driver, Ended, Totals, assert_recovers, fresh

pytestmark = pytest.mark.campaign

BUILD_ONE_BY_ONE = ("build", "-j", "1", "--progress", "plain", *TARGETS)
TAINT = ("cache", "taint", "//:words", "--because", "the crawl was cut short")
COLLECT = ("cache", "gc", "--grace", "0s", "--max-age", "0s")

type Point = tuple[str, int, str, str, str]  # role of the thread, number there, call, kind of path, phase


def points(recorded: Ended) -> list[Point]:
    """All points of a campaign; otherwise one of each kind, in its middle where it has one, from all over the run."""
    every = [
        (role, n, name, kind, phase)
        for role, n, name, kind in recorded.calls
        for phase in ("before", "half", "after")
        if phase != "half" or name in DIVISIBLE
    ]
    if CAMPAIGN:
        return every
    kinds: dict[tuple[str, str], list[Point]] = {}
    for point in every:
        if point[4] == "half" or point[2] not in DIVISIBLE:
            kinds.setdefault((point[2], point[3].split("/")[1] if point[3] else ""), []).append(point)
    # Not always the first of a kind, and the same ones in every run.
    return [of_kind[len("".join(kind)) % len(of_kind)] for kind, of_kind in kinds.items()]


class Base:
    """A cache that each point starts from, laid aside."""

    def __init__(self, root: Path) -> None:
        self.root, self.aside = root, root.parent / "base"

    def keep(self) -> None:
        os.rename(self.root / "cache", self.aside)
        # A use is noted once a second: all that is used from here on is.
        for entry in self.aside.glob("ac/*/*/*"):
            os.utime(entry, (entry.stat().st_mtime - 3600,) * 2)

    def restore(self) -> None:
        fresh(self.root)
        if self.aside.exists():
            # Hard links and times as they are, which a copy in Python would not keep.
            subprocess.run(["cp", "-a", self.aside, self.root / "cache"], check=True)


def kill_everywhere(
    driver: Driver, base: Base, args: tuple[str, ...], recovered: Callable[[], None], totals: Totals
) -> None:
    base.restore()
    recorded = driver.ok(base.root, *args)
    recovered()
    base.restore()
    again = driver.ok(base.root, *args)
    assert sorted(again.calls) == sorted(recorded.calls), "two runs differ, so points cannot be numbered"
    listed = points(recorded)
    fired: set[Point] = set()
    for role, n, name, kind, phase in listed:
        base.restore()
        killed = driver.run(base.root, *args, fault={"what": "kill", "at": [role, n], "phase": phase})
        assert killed.status == -9, (role, n, name, kind, phase, killed)
        ((was, where),) = killed.fired
        fired.add((role, n, was, where, phase))
        try:
            recovered()
        except BaseException:
            totals.add("kill -9", listed=len(listed), fired=len(fired), losses=1)
            print(f"killed {phase} call {n} of {role}: {name} {kind}")
            raise
    assert fired == set(listed)
    totals.add("kill -9", listed=len(listed), fired=len(fired))


def test_a_build_from_nothing(driver: Driver, root: Path, totals: Totals) -> None:
    kill_everywhere(driver, Base(root), BUILD_ONE_BY_ONE, lambda: assert_recovers(driver, root), totals)
    assert not list((root / "cache/work").iterdir())


@pytest.mark.slow
def test_a_build_after_an_edit(driver: Driver, root: Path, totals: Totals) -> None:
    """New results beside old ones: links in `out/` move, refs and fingerprints are replaced, blobs are there."""
    title = (root / "title.txt").read_text()
    (root / "title.txt").write_text("Another\n")
    driver.ok(root, *BUILD_ONE_BY_ONE)
    (root / "title.txt").write_text(title)
    base = Base(root)
    base.keep()
    kill_everywhere(driver, base, BUILD_ONE_BY_ONE, lambda: assert_recovers(driver, root), totals)
    shutil.rmtree(base.aside, ignore_errors=True)


def built(driver: Driver, root: Path) -> Base:
    driver.ok(root, *BUILD_ONE_BY_ONE)
    base = Base(root)
    base.keep()
    return base


@pytest.mark.slow
def test_a_taint_of_a_result(driver: Driver, root: Path, totals: Totals) -> None:
    """Repeating the command completes it: what is tainted is made again."""
    base = built(driver, root)

    def recovered() -> None:
        again = driver.run(root, *TAINT)
        assert again.status == EXIT_OK or "is tainted already" in again.err, again.err
        assert json.loads(driver.ok(root, "build", "-n", *TARGETS, "--output", "json").out)[0]["status"] == "miss"
        assert_recovers(driver, root)

    kill_everywhere(driver, base, TAINT, recovered, totals)


@pytest.mark.slow
def test_a_taint_of_a_digest(driver: Driver, root: Path, totals: Totals) -> None:
    """What reads it does not run until it is taken back."""
    base = built(driver, root)
    digest = hash_file(root / "title.txt").hex
    taint = ("cache", "taint", digest, "--because", "holds personal data")

    def recovered() -> None:
        again = driver.run(root, *taint)
        assert again.status == EXIT_OK or "is tainted already" in again.err, again.err
        refused = driver.run(root, "build", "//:joined")
        assert refused.status != EXIT_OK and "holds personal data" in refused.err, refused
        driver.ok(root, "cache", "untaint", digest, "--because", "it does not")
        assert_recovers(driver, root)

    kill_everywhere(driver, base, taint, recovered, totals)


@pytest.mark.slow
def test_a_collection(driver: Driver, root: Path, totals: Totals) -> None:
    """All results are given up: what is left after a kill is whole, or made again."""
    driver.ok(root, *BUILD_ONE_BY_ONE)
    shutil.rmtree(root / "cache/roots")
    base = Base(root)
    base.keep()

    def recovered() -> None:
        assert_recovers(driver, root)
        driver.ok(root, *COLLECT)
        assert_recovers(driver, root)

    kill_everywhere(driver, base, COLLECT, recovered, totals)
    base.restore()
    driver.ok(root, *COLLECT)
    assert not list((root / "cache/cas").glob("*/*.x")), "nothing was given up, so this tests nothing"
