"""What a tree record names, without its names: for whoever looks at every tree of a store.

It accepts exactly the records that `Tree.parse` does. The short way takes the spellings that nearly every record is
made of; whatever it does not know goes to `Tree.parse`.
"""

from __future__ import annotations

from contextlib import suppress

from marin_cas.tree.entries import TREE_HEADER, DirEntry, FileEntry, Tree

_HEADER = TREE_HEADER.encode("ascii") + b"\n"
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}
_BOOLS = (0xF4, 0xF5)
# The text `f` or `d`, and the heads of a digest field: a list of two, 32 bytes.
_FILE, _FOLDER = b"\x61f\x82\x58\x20", b"\x61d\x82\x58\x20"

type Child = tuple[bytes, int, bool]


def children(record: bytes) -> list[Child]:
    """The blobs that a record names, in its order: hash, size and whether it is a folder's record.

    Raises IntegrityError for anything but a tree record.
    """
    if record.startswith(_HEADER):
        with suppress(IndexError, ValueError):
            return _scan(record)
    entries = [entry for entry in Tree.parse(record).entries if isinstance(entry, FileEntry | DirEntry)]
    return [(entry.digest.hash, entry.digest.size, isinstance(entry, DirEntry)) for entry in entries]


def _scan(record: bytes) -> list[Child]:
    """Raises IndexError or ValueError for a record that is wrong, or right in a way that is not looked for here."""
    found: list[Child] = []
    before = b""
    count, at = _argument(record, len(_HEADER), 0x80)
    for _ in range(count):
        shape, length, start = record[at], record[at + 1] - 0x60, at + 2
        if length >= 24:
            length, start = _argument(record, at + 1, 0x60)
        at = start + length
        name = record[start:at]
        if name <= before or b"/" in name or b"\0" in name or name == b"." or name == b"..":
            raise ValueError
        if not name.isascii():
            name.decode("utf-8")
        before = name
        mark = record[at : at + 5]
        hash = record[at + 5 : at + 37]
        size = record[at + 37]
        at += 38
        if size >= 24:
            size, at = _argument(record, at - 1, 0x00)
        if mark == _FILE and shape == 0x84:
            if record[at] not in _BOOLS:
                raise ValueError
            at += 1
            found.append((hash, size, False))
        elif mark == _FOLDER and shape == 0x83:
            found.append((hash, size, True))
        else:
            raise ValueError
    if at != len(record):
        raise ValueError
    return found


def _argument(record: bytes, at: int, major: int) -> tuple[int, int]:
    """The argument of the head at `at`, and where it ends. ValueError for another major type or spelling."""
    info = record[at] - major
    if 0 <= info < 24:
        return info, at + 1
    width = _WIDTHS.get(info, 0)
    end = at + 1 + width
    argument = int.from_bytes(record[at + 1 : end])
    if end > len(record) or argument < 24 or (width > 1 and argument >> (4 * width) == 0):
        raise ValueError
    return argument, end
