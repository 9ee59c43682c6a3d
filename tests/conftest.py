"""A skipped or xfailed test that `tests/SKIPS.txt` does not list, with its reason, fails the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", deadline=None, max_examples=60)
settings.register_profile("campaign", deadline=None, max_examples=3000)
settings.load_profile("campaign" if os.environ.get("MARIN_TEST_CAMPAIGN") else "ci")

_LISTED = {
    line.split(maxsplit=1)[0]
    for line in (Path(__file__).parent / "SKIPS.txt").read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    outcome = yield
    report = outcome.get_result()
    test = item.nodeid.split("[")[0]
    if report.skipped and test not in _LISTED:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and tests/SKIPS.txt does not list `{test}`: {report.longrepr}"
