"""What a file or tree consists of, blob by blob, without recursion."""

from __future__ import annotations

from collections.abc import Iterator

from marin_cas.digest import Digest
from marin_cas.recipe import TREE
from marin_cas.store.base import MissingBlob, Store
from marin_cas.tree.children import children
from marin_cas.tree.entries import DirEntry, Entry, FileEntry, Tree


def read_tree(store: Store, digest: Digest, depth: int | None = None) -> Tree:
    """The tree with that digest. Raises MissingBlob, or IntegrityError for wrong bytes."""
    return Tree.parse(_record(store, digest), depth)


def _record(store: Store, digest: Digest) -> bytes:
    record = store.read(digest)
    if record is None:
        raise MissingBlob(digest, "a tree")
    return record


def blobs(store: Store, kind: str, digest: Digest) -> Iterator[Digest]:
    """Every blob of a file or tree once, records included, a record before what it names.

    Blobs need not be there, but a record that is gone raises MissingBlob when its turn comes, after it was given.
    """
    seen = {digest.hash}
    stack = [(kind == TREE, digest)]
    while stack:
        is_tree, at = stack.pop()
        yield at
        if not is_tree:
            continue
        for hash, size, is_folder in children(_record(store, at)):
            if hash not in seen:
                seen.add(hash)
                stack.append((is_folder, Digest(hash, size)))


def first_missing(store: Store, kind: str, digest: Digest) -> Digest | None:
    """A blob without which the file or tree cannot be materialised, or None when all are there.

    Presence is looked at, bytes are not; only records are read. Raises IntegrityError for a damaged record.
    """
    if kind != TREE:
        return None if store.contains(digest) else digest
    seen = {digest.hash}
    stack = [digest]
    while stack:
        at = stack.pop()
        record = store.read(at)
        if record is None:
            return at
        wanted: list[Digest] = []
        for hash, size, is_folder in children(record):
            if not is_folder:
                wanted.append(Digest(hash, size))
            elif hash not in seen:
                seen.add(hash)
                stack.append(Digest(hash, size))
        # One question a folder, which for a store far away is one round trip.
        absent = store.missing(wanted)
        if absent:
            return next(blob for blob in wanted if blob in absent)
    return None


def files(store: Store, digest: Digest) -> Iterator[tuple[str, FileEntry]]:
    """Each file of a tree with its path in it, sorted within a folder, folders after files."""
    stack = [("", digest)]
    while stack:
        prefix, at = stack.pop()
        below: list[tuple[str, Digest]] = []
        for entry in read_tree(store, at, prefix.count("/")).entries:
            if isinstance(entry, FileEntry):
                yield prefix + entry.name, entry
            elif isinstance(entry, DirEntry):
                below.append((f"{prefix}{entry.name}/", entry.digest))
        stack.extend(reversed(below))


def entry_at(store: Store, digest: Digest, path: str) -> Entry | None:
    """The entry at `path` (`a/b.txt`) in a tree, None when there is none. Links are not followed."""
    entry: Entry | None = DirEntry("", digest)
    for part in path.split("/"):
        if not isinstance(entry, DirEntry):
            return None
        entries = read_tree(store, entry.digest).entries
        entry = next((each for each in entries if each.name == part), None)
    return entry
