"""A tree and its record: the line `marin-cas tree 1`, then a CBOR list of entries sorted by name bytes.

Entries are `[name, "f", digest, executable]`, `[name, "d", digest]` and `[name, "l", target]`. One tree has one
record; whatever is not exactly such a record is refused, since records come from stores as untrusted as any input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError, decode_record, head
from marin_cas.errors import IntegrityError
from marin_cas.tree.names import link_problem, name_problem

TREE_HEADER = "marin-cas tree 1"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """`executable` is the one mode bit that is kept."""

    name: str
    digest: Digest
    executable: bool = False


@dataclass(frozen=True, slots=True)
class DirEntry:
    """`digest` is that of the folder's own tree record."""

    name: str
    digest: Digest


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """`target` is kept as it was written; it never leads out of the tree."""

    name: str
    target: str


type Entry = FileEntry | DirEntry | LinkEntry


@dataclass(frozen=True, slots=True)
class Tree:
    """`entries` are sorted by name and their names differ."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Tree:
        # Python orders text by code points, which is the order of the UTF-8 bytes.
        return cls(tuple(sorted(entries, key=attrgetter("name"))))

    def record(self) -> bytes:
        # What `encode_record` gives for rows of plain values, without making these: a tree may have a million entries.
        out = bytearray(_PREFIX)
        out += head(4, len(self.entries))
        for entry in self.entries:
            name = entry.name.encode()
            if isinstance(entry, FileEntry):
                out += b"\x84"
                out += head(3, len(name))
                out += name
                out += _FILE
                out += entry.digest.hash
                out += head(0, entry.digest.size)
                out += b"\xf5" if entry.executable else b"\xf4"
            elif isinstance(entry, DirEntry):
                out += b"\x83"
                out += head(3, len(name))
                out += name
                out += _DIR
                out += entry.digest.hash
                out += head(0, entry.digest.size)
            else:
                target = entry.target.encode()
                out += b"\x83" + head(3, len(name)) + name + _LINK + head(3, len(target)) + target
        return bytes(out)

    def digest(self) -> Digest:
        return Digest.of(self.record())

    @classmethod
    def parse(cls, record: bytes, depth: int | None = None) -> Tree:
        """The tree in a record that lies `depth` folders below its root. Raises IntegrityError when it is not one.

        Links are held against `depth`; with None, which suits a record looked at by itself, only their form is.
        """
        entries = _parsed(record)
        if entries is None:
            entries = _refused_or_parsed(record)
        before = ""
        for entry in entries:
            problem = name_problem(entry.name)
            if problem is None and isinstance(entry, LinkEntry):
                problem = link_problem(entry.target, depth)
            if problem is None and entry.name <= before:
                problem = "comes twice or out of order"
            if problem is not None:
                raise _wrong(record, f"its entry {entry.name!r} {problem}")
            before = entry.name
        return cls(tuple(entries))


_PREFIX = f"{TREE_HEADER}\n".encode()
# What stands between a name and a digest's bytes, or a target.
_FILE, _DIR, _LINK = b"\x61f\x82\x58\x20", b"\x61d\x82\x58\x20", b"\x61l"


def _parsed(record: bytes) -> list[Entry] | None:
    """The entries of a record written as `Tree.record` writes it; None when anything at all is unusual."""
    if not record.startswith(_PREFIX):
        return None
    entries: list[Entry] = []
    try:
        count, at = _argument(record, len(_PREFIX), 4)
        for _ in range(count):
            length, start = _argument(record, at + 1, 3)
            end = start + length
            name = str(record[start:end], "utf-8")
            items, kind = record[at], record[end : end + 5]
            if items == 0x84 and kind == _FILE:
                size, at = _argument(record, end + 37, 0)
                entries.append(FileEntry(name, Digest(record[end + 5 : end + 37], size), _BOOLS[record[at]]))
                at += 1
            elif items == 0x83 and kind == _DIR:
                size, at = _argument(record, end + 37, 0)
                entries.append(DirEntry(name, Digest(record[end + 5 : end + 37], size)))
            elif items == 0x83 and kind[:2] == _LINK:
                length, start = _argument(record, end + 2, 3)
                at = start + length
                entries.append(LinkEntry(name, str(record[start:at], "utf-8")))
            else:
                return None
    except (IndexError, KeyError, UnicodeDecodeError, _UnusualError):
        return None
    return entries if at == len(record) else None


_BOOLS = {0xF4: False, 0xF5: True}
_LEAST = (24, 1 << 8, 1 << 16, 1 << 32)


class _UnusualError(Exception):
    pass


def _argument(record: bytes, at: int, major: int) -> tuple[int, int]:
    """The number in the head at `at`, and where the head ends."""
    initial = record[at] - (major << 5)
    if 0 <= initial < 24:
        return initial, at + 1
    if not 24 <= initial < 28:
        raise _UnusualError
    end = at + 1 + (1 << (initial - 24))
    number = int.from_bytes(record[at + 1 : end])
    # Neither a longer head than it needs nor one that the record ends in.
    if number < _LEAST[initial - 24] or end > len(record):
        raise _UnusualError
    return number, end


def _refused_or_parsed(record: bytes) -> list[Entry]:
    """The same by the decoder that can say what is wrong."""
    try:
        rows = decode_record(TREE_HEADER, record)
    except EncodingError as error:
        raise _wrong(record, str(error)) from None
    if type(rows) is not list:
        raise _wrong(record, "it is not a list")
    return [_from_record(record, row) for row in rows]


def _from_record(record: bytes, row: object) -> Entry:
    try:
        match row:
            case [str() as name, "f", digest, bool() as executable]:
                return FileEntry(name, Digest.from_record(digest), executable)
            case [str() as name, "d", digest]:
                return DirEntry(name, Digest.from_record(digest))
            case [str() as name, "l", str() as target]:
                return LinkEntry(name, target)
    except ValueError as error:
        raise _wrong(record, str(error)) from None
    raise _wrong(record, f"{row!r:.100} is not an entry")


def _wrong(record: bytes, why: str) -> IntegrityError:
    return IntegrityError(
        f"`{Digest.of(record).short}` is not a tree record: {why}",
        hint="`marin cache verify` lists all damaged blobs",
    )
