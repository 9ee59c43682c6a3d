"""What a version is: a calendar version, which stays what it is, or a dev version, which moves."""

from __future__ import annotations

import re

DEV = "dev"
_FIXED = re.compile(r"[0-9]{4}\.[0-9]{2}\.[0-9]{2}(\.[0-9]+)?")


def is_fixed(version: str) -> bool:
    """Whether it is `YYYY.MM.DD` or `YYYY.MM.DD.N`."""
    return _FIXED.fullmatch(version) is not None


def is_dev(version: str) -> bool:
    """Whether it is `dev` or `<label>-dev`."""
    return version == DEV or version.endswith(f"-{DEV}")


def version_of(ref: str) -> str:
    """The version in `name@version`; a name may hold an `@`, a version may not."""
    return ref.rpartition("@")[2]
