"""A skipped or xfailed test that `tests/SKIPS.txt` does not list, with its reason, fails the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

# The same examples every time, so that what is red was made red by the change at hand; a campaign looks for new ones.
settings.register_profile("ci", deadline=None, max_examples=60, stateful_step_count=30, derandomize=True)
settings.register_profile("campaign", deadline=None, max_examples=800, stateful_step_count=100)
CAMPAIGN = bool(os.environ.get("MARIN_TEST_CAMPAIGN"))
settings.load_profile("campaign" if CAMPAIGN else "ci")

_LISTED = {
    line.split(maxsplit=1)[0]
    for line in (Path(__file__).parent / "SKIPS.txt").read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A campaign runs what gains from more examples: the properties, the state machines, and what is marked so."""
    if not CAMPAIGN:
        return
    chosen = [
        item
        for item in items
        if is_hypothesis_test(getattr(item, "obj", None)) or item.get_closest_marker("campaign") is not None
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    outcome = yield
    report = outcome.get_result()
    test = item.nodeid.split("[")[0]
    if report.skipped and test not in _LISTED:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and tests/SKIPS.txt does not list `{test}`: {report.longrepr}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests of faults tried, over all workers: points listed, points fired, losses found."""
    totals: dict[str, list[int]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for kind, *numbers in (value for name, value in report.user_properties if name == "faults"):
                totals[kind] = [a + b for a, b in zip(totals.get(kind, [0, 0, 0]), numbers, strict=True)]
    if totals:
        terminalreporter.section("faults")
        terminalreporter.write_line(f"{'':<24} {'listed':>8} {'fired':>8} {'losses':>8}")
        for kind, numbers in sorted(totals.items()):
            terminalreporter.write_line(f"{kind:<24} " + " ".join(f"{number:>8,}" for number in numbers))
