"""A tree and its record: the line `marin-cas tree 1`, then a CBOR list of entries sorted by name bytes.

Entries are `[name, "f", digest, executable]`, `[name, "d", digest]` and `[name, "l", target]`. One tree has one
record; whatever is not exactly such a record is refused, since records come from stores as untrusted as any input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError, Value, decode_record, encode_record
from marin_cas.errors import IntegrityError

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
        return cls(tuple(sorted(entries, key=lambda entry: entry.name)))

    def record(self) -> bytes:
        return encode_record(TREE_HEADER, [_to_record(entry) for entry in self.entries])

    def digest(self) -> Digest:
        return Digest.of(self.record())

    @classmethod
    def parse(cls, record: bytes, depth: int | None = None) -> Tree:
        """The tree in a record that lies `depth` folders below its root. Raises IntegrityError when it is not one.

        Links are held against `depth`; with None, which suits a record looked at by itself, only their form is.
        """
        try:
            rows = decode_record(TREE_HEADER, record)
        except EncodingError as error:
            raise _wrong(record, str(error)) from None
        if type(rows) is not list:
            raise _wrong(record, "it is not a list")
        entries: list[Entry] = []
        before = ""
        for row in rows:
            entry = _from_record(record, row)
            problem = name_problem(entry.name)
            if problem is None and isinstance(entry, LinkEntry):
                problem = link_problem(entry.target, depth)
            if problem is None and entry.name <= before:
                problem = "comes twice or out of order"
            if problem is not None:
                raise _wrong(record, f"its entry {entry.name!r} {problem}")
            before = entry.name
            entries.append(entry)
        return cls(tuple(entries))


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


def _to_record(entry: Entry) -> list[Value]:
    if isinstance(entry, FileEntry):
        return [entry.name, "f", entry.digest.to_record(), entry.executable]
    if isinstance(entry, DirEntry):
        return [entry.name, "d", entry.digest.to_record()]
    return [entry.name, "l", entry.target]


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
