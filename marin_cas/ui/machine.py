"""This machine and its Python, as far as they matter to a build."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ram() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def installed(distributions: Iterable[str]) -> dict[str, str | None]:
    """The version of each distribution as it is here, None for what is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    for name in distributions:
        try:
            found[name] = platform.python_version() if name == "python" else version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
