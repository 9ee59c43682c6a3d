"""Which artifact names and versions are allowed: Marin's own rules, and what a ref `name@version` needs besides."""

from __future__ import annotations

import re
from functools import cache

from marin_cas.versions import is_dev, is_fixed

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _path_problem(text: str) -> str | None:
    if not text:
        return "is empty"
    if "://" in text:
        return "has a URL scheme"
    if ".." in text:
        return "has `..` in it"
    if text.startswith("/") or text.endswith("/"):
        return "starts or ends with `/`"
    if _CONTROL.search(text):
        return "has a control character in it"
    return None


def artifact_problem(name: str) -> str | None:
    """Why `name` cannot be an artifact's name, or None."""
    return _path_problem(name)


@cache
def version_problem(version: str) -> str | None:
    """Why `version` cannot be an artifact's version, or None."""
    problem = _path_problem(version)
    if problem:
        return problem
    if "@" in version:
        return "has `@` in it, which separates name and version in a ref"
    if is_fixed(version) or is_dev(version):
        return None
    return "is neither `YYYY.MM.DD`, `YYYY.MM.DD.N`, `dev`, nor a name that ends in `-dev`"
