"""Which names and link targets a tree may hold: none that leads out of it. Pure: nothing on disk is looked at."""

from __future__ import annotations


def name_problem(name: str) -> str | None:
    """Why a folder's entry may not have this name."""
    if not name or name in (".", ".."):
        return "has no name of its own"
    if "/" in name or "\0" in name:
        return "has a slash or a NUL in its name"
    if not name.isascii() and not _is_utf8(name):
        return "has a name that is not UTF-8"
    return None


def link_problem(target: str, depth: int | None) -> str | None:
    """Why a link `depth` folders below the root of its tree may not have this target.

    `..` is allowed at the front only. Behind a name it would mean the parent of wherever that name leads, and whether
    this leaves the tree could not be seen from the link.
    """
    if not target or "\0" in target:
        return "is a link to nothing"
    if not target.isascii() and not _is_utf8(target):
        return "is a link whose target is not UTF-8"
    if target.startswith("/"):
        return f"is a link to the absolute path `{target}`"
    ups, named = 0, False
    for part in target.split("/"):
        if part == "..":
            if named:
                return f"is a link to `{target}`, which goes up after going down"
            ups += 1
        elif part not in ("", "."):
            named = True
    if depth is not None and ups > depth:
        return f"is a link to `{target}`, which leads out of the tree"
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
