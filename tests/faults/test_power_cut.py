"""A power cut at any moment of a build, with any of what was not flushed lost: replayed from recorded traces.

After it, as after another boot: the check of what is young leaves nothing wrong, no result yields bytes that its
target never had, nothing that was flushed is lost, and the next build completes with the right bytes.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from marin_cas.cache.cache import open_cache
from marin_cas.cache.listing import results
from marin_cas.errors import EXIT_BUILD_FAILED
from tests.conftest import CAMPAIGN
from tests.faults.conftest import TARGETS, Driver, Totals, assert_right, fresh
from tests.faults.power import Cut, Name, Sync, Trace, disks, last_sync, lay_out, pairs, prefixes, random_cut, singles
from tests.faults.test_kill import COLLECT, TAINT

pytestmark = pytest.mark.campaign

BOOT = "another-boot"
BUILD = ("build", "-j", "1", *TARGETS)


class History:
    """Commands that were run in a workspace, as one trace; what each target's outputs were, and what was flushed."""

    def __init__(self, driver: Driver, root: Path) -> None:
        self.driver, self.root = driver, root
        self.trace = Trace(root / "cache")
        self.marks = [0]
        self.allowed: dict[str, list[str]] = {}
        self.kept: list[tuple[str, list[str]]] = []

    def run(self, *args: str) -> None:
        file = self.root.parent / "trace"
        self.driver.ok(self.root, *args, trace=os.fspath(file))
        self.trace.take(pickle.loads(file.read_bytes()))
        self.marks.append(len(self.trace.effects))
        for result in results(open_cache(self.root / "cache")):
            outputs = sorted(str(output.digest) for output in result.outputs.values())
            self.allowed[result.label] = [*self.allowed.get(result.label, []), *outputs]

    def keep(self) -> None:
        """All that is published now was flushed before what follows."""
        self.kept = [
            (str(result.key), sorted(str(output.digest) for output in result.outputs.values()))
            for result in results(open_cache(self.root / "cache"))
        ]

    def replay(self, cuts: Iterable[Cut], totals: Totals, after: Callable[[], None] = lambda: None) -> None:
        """Each cut that leaves something new: verify, a look at all results, a build, and then `after`."""
        seen: set[Any] = set()
        for cut in cuts:
            base, left = disks(self.trace, cut)
            # What lies there and since when: the check after a boot reads what is younger than the last sync.
            state = (left.essence(), last_sync(self.trace.effects, cut.end))
            if state in seen:
                continue
            seen.add(state)
            fresh(self.root)
            lay_out(base, left, self.root / "cache")
            try:
                look = {"allowed": self.allowed, "kept": self.kept if cut.end > self.marks[-2] else []}
                built = self.driver.run(self.root, *BUILD, boot=BOOT, look=look)
                assert not built.found, built.found
                if built.status == EXIT_BUILD_FAILED and "--accept-new" in built.err:
                    # Bytes of a result that came out differently are gone: that is a person's to decide.
                    built = self.driver.run(self.root, *BUILD, "--accept-new", boot=BOOT)
                assert built.status == 0, built.err
                after()
            except BaseException:
                totals.add("power cut", listed=len(seen), fired=len(seen), losses=1)
                self.explain(cut)
                raise
        totals.add("power cut", listed=len(seen), fired=len(seen))

    def explain(self, cut: Cut) -> None:
        for n in sorted({*cut.dropped, *cut.lost, *cut.torn}):
            print(n, cut.lost.get(n, "torn" if n in cut.torn else "dropped"), self.trace.effects[n])
        print(f"the end was at {cut.end}, the last sync at {last_sync(self.trace.effects, cut.end)}")
        print(self.trace.effects[cut.end - 1])


def sampled[T](cuts: Iterable[T], share: int) -> Iterable[T]:
    """All in a campaign, otherwise one in `share`."""
    return cuts if CAMPAIGN else itertools.islice(cuts, 0, None, share)


def some_random(history: History, start: int, n: int) -> Iterable[Cut]:
    return (random_cut(history.trace, start, random.Random(seed)) for seed in range(n))


def end_of(history: History) -> int:
    """The moment before the last sync, when most is at stake."""
    return max(n for n, effect in enumerate(history.trace.effects) if isinstance(effect, Sync))


def test_a_first_build(driver: Driver, root: Path, totals: Totals) -> None:
    history = History(driver, root)
    history.run(*BUILD)
    right = partial(assert_right, root)
    history.replay(sampled(prefixes(history.trace, 0), 24), totals, right)
    history.replay(sampled(singles(history.trace, end_of(history)), 30), totals, right)
    history.replay(some_random(history, 0, 300 if CAMPAIGN else 15), totals, right)


def test_a_build_after_an_edit(driver: Driver, root: Path, totals: Totals) -> None:
    """What was flushed before stays: by the same declarations as then, nothing runs."""
    history = History(driver, root)
    title = (root / "title.txt").read_text()
    (root / "title.txt").write_text("Another\n")
    history.run(*BUILD)
    (root / "title.txt").write_text(title)
    history.keep()
    history.run(*BUILD)

    def after() -> None:
        assert_right(root)
        (root / "title.txt").write_text("Another\n")
        again = json.loads(driver.ok(root, *BUILD, "--output", "json", boot=BOOT).out)
        (root / "title.txt").write_text(title)
        assert again["counts"]["executed"] == 0, again

    start = history.marks[-2]
    history.replay(sampled(prefixes(history.trace, start), 20), totals, after)
    history.replay(sampled(singles(history.trace, end_of(history)), 20), totals, after)
    history.replay(some_random(history, start, 300 if CAMPAIGN else 10), totals, after)


@pytest.mark.slow
def test_every_two_losses(driver: Driver, root: Path, totals: Totals) -> None:
    """Of all that one action writes, beside others that were flushed before."""
    history = History(driver, root)
    history.run("build", "//:words")
    history.keep()
    history.run("build", "//:count")
    history.replay(sampled(pairs(history.trace, end_of(history)), 250), totals, partial(assert_right, root))


def varying(root: Path) -> Callable[[], None]:
    """Makes `//:words` come out differently each time; returns the check that what is above it is of the same run."""
    functions = (root / "f.py").read_text().replace('"again.txt"', '"two.txt"')
    (root / "f.py").write_text("import os\n" + functions.replace('(word + "\\n")', "(os.urandom(8).hex())"))

    def check() -> None:
        out = root / "cache/out"
        words = "".join((out / f"words/{name}.txt").read_text() for name in ("one", "two"))
        assert (out / "joined/all.txt").read_text() == f"2\nTitle\n{words}"

    return check


def test_a_lost_result_that_comes_out_differently(driver: Driver, root: Path, totals: Totals) -> None:
    """What was made from it is there, and filed: it must not be served beside another run."""
    check = varying(root)
    history = History(driver, root)
    history.run(*BUILD)
    end = end_of(history)
    # Without its lease or without its end, each of the three keys.
    entries = [
        n
        for n, effect in enumerate(history.trace.effects[:end])
        if isinstance(effect, Name) and effect.changes[0][1].isdecimal() and len(effect.changes[0][1]) == 1
    ]
    assert len(entries) == 6
    history.replay([Cut(end, frozenset({n})) for n in entries], totals, check)
    history.replay(sampled(singles(history.trace, end), 60), totals, check)


@pytest.mark.slow
def test_a_result_that_is_replaced(driver: Driver, root: Path, totals: Totals) -> None:
    """What is above a result is never of another run of it than the one that is served."""
    check = varying(root)
    history = History(driver, root)
    history.run(*BUILD)
    history.run("build", "-j", "1", "--again", "//:words", *TARGETS)
    start = history.marks[-2]
    history.replay(sampled(prefixes(history.trace, start), 30), totals, check)
    history.replay(sampled(singles(history.trace, end_of(history)), 30), totals, check)
    history.replay(some_random(history, start, 300 if CAMPAIGN else 10), totals, check)


@pytest.mark.slow
def test_a_collection(driver: Driver, root: Path, totals: Totals) -> None:
    history = History(driver, root)
    title = (root / "title.txt").read_text()
    (root / "title.txt").write_text("Another\n")
    history.run(*BUILD)
    (root / "title.txt").write_text(title)
    history.run(*BUILD)
    history.run(*COLLECT)
    right, start = partial(assert_right, root), history.marks[-2]
    assert any(
        isinstance(effect, Name) and effect.changes[0][2] is None and len(effect.changes[0][1]) == 64
        for effect in history.trace.effects[start:]
    ), "nothing was given up"
    history.replay(sampled(prefixes(history.trace, start), 12), totals, right)
    history.replay(sampled(singles(history.trace, end_of(history)), 12), totals, right)
    history.replay(some_random(history, start, 150 if CAMPAIGN else 5), totals, right)


@pytest.mark.slow
def test_a_taint(driver: Driver, root: Path, totals: Totals) -> None:
    history = History(driver, root)
    history.run(*BUILD)
    history.run(*TAINT)
    right, start = partial(assert_right, root), history.marks[-2]
    history.replay(sampled(prefixes(history.trace, start), 6), totals, right)
    history.replay(sampled(singles(history.trace, end_of(history)), 6), totals, right)
    history.replay(some_random(history, start, 150 if CAMPAIGN else 5), totals, right)
    # Whoever was told that it is done may rely on it.
    for cut in prefixes(history.trace, end_of(history) + 1):
        fresh(root)
        lay_out(*disks(history.trace, cut), root / "cache")
        assert "is tainted already" in driver.run(root, *TAINT, boot=BOOT).err
