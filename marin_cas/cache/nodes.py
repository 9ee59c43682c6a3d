"""Every blob that a store has or that something names, as a number; for trees the numbers of what they name.

A million blobs are a few arrays and one dictionary. Numbers hold for this object only.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence

from marin_cas.cache.remembered import RememberedTrees
from marin_cas.digest import Digest
from marin_cas.disk import disk_problems
from marin_cas.errors import IntegrityError
from marin_cas.store.local import LocalStore
from marin_cas.tree.children import children

PLAIN, EXECUTABLE = 1, 2
_LARGEST = 1 << 62


class Nodes:
    """`files[n]` says which files blob `n` has (PLAIN, EXECUTABLE; 0: it is gone), `sizes[n]` its length, -1 while
    nothing has named it. `folders` are the trees that were looked into, each after all that it names."""

    def __init__(self, store: LocalStore, remembered: RememberedTrees) -> None:
        self._store = store
        self._remembered = remembered
        self.ids: dict[bytes, int] = {}
        self.files = bytearray()
        self.sizes = array("q")
        self.folders = array("I")
        self.damaged: list[Digest] = []
        self._spans: dict[int, tuple[int, int]] = {}
        self._edges = array("I")
        self._broken: set[int] = set()  # trees of which something is gone
        with disk_problems(store.root):
            self._list(os.fspath(store.root))

    def __len__(self) -> int:
        return len(self.files)

    def _list(self, base: str) -> None:
        ids, files = self.ids, self.files
        for folder in sorted(_names(base)):
            if len(folder) != 2:
                continue
            names = _names(f"{base}/{folder}")
            for hash in _hashes(folder, [name for name in names if len(name) == 64]):
                ids[hash] = len(files)
                files.append(PLAIN)
            for hash in _hashes(folder, [name[:64] for name in names if len(name) == 66 and name.endswith(".x")]):
                if (known := ids.setdefault(hash, len(files))) == len(files):
                    files.append(EXECUTABLE)
                else:
                    files[known] |= EXECUTABLE
        self.sizes = array("q", [-1]) * len(files)

    # Numbers

    def known(self, hash: bytes) -> int | None:
        """The number of a blob, None for one that nothing has and nothing named."""
        return self.ids.get(hash)

    def number(self, digest: Digest) -> int:
        """The number of a blob, given one when it is new: then its bytes are gone."""
        return self._number(digest.hash, digest.size)

    def _number(self, hash: bytes, size: int) -> int:
        n = self.ids.setdefault(hash, len(self.files))
        if n == len(self.files):
            self.files.append(0)
            self.sizes.append(min(size, _LARGEST))
        elif self.sizes[n] < 0:
            self.sizes[n] = min(size, _LARGEST)
        return n

    def hashes(self) -> list[bytes]:
        """The hash of every number, in order."""
        return list(self.ids)

    def taken(self, n: int) -> int:
        """The bytes that a blob takes: its length, twice when it has both files."""
        return max(0, self.sizes[n]) * self.files[n].bit_count()

    # Trees

    def below(self, n: int) -> Iterable[int]:
        """What a tree that was looked into names, with repetitions; nothing for any other blob."""
        span = self._spans.get(n)
        return () if span is None else self._edges[span[0] : span[1]]

    def whole(self, n: int) -> bool:
        """Whether a blob is there, and all that it names if it is a tree that was looked into."""
        return self.files[n] != 0 and n not in self._broken

    def reach(self, roots: Iterable[int], seen: bytearray) -> Iterator[int]:
        """The blobs at and below `roots` whose mark in `seen` is not set, setting it. `seen` is as long as this."""
        stack: list[int] = []
        for root in roots:
            if not seen[root]:
                seen[root] = 1
                stack.append(root)
        spans, edges = self._spans, self._edges
        while stack:
            n = stack.pop()
            yield n
            if (span := spans.get(n)) is not None:
                for child in edges[span[0] : span[1]]:
                    if not seen[child]:
                        seen[child] = 1
                        stack.append(child)

    def weight(self, n: int, enough: int) -> int:
        """The bytes at and below a blob, by what their digests say; counting ends beyond `enough`."""
        total, seen, stack = 0, {n}, [n]
        while stack and total <= enough:
            at = stack.pop()
            total += max(0, self.sizes[at])
            new = set(self.below(at)) - seen
            seen |= new
            stack += new
        return total

    def look_into(self, digest: Digest) -> int:
        """The number of a tree, after all that it names however indirectly has numbers too.

        A record that is gone names nothing, nor does a damaged one, which `damaged` lists.
        """
        root = self.number(digest)
        stack = [(root, digest)]
        open_trees: set[int] = set()
        while stack:
            n, at = stack[-1]
            if n in self._spans:
                stack.pop()
                if n in open_trees:
                    open_trees.discard(n)
                    self._close(n)
                continue
            open_trees.add(n)
            stack += self._open(n, at)
        return root

    def _close(self, n: int) -> None:
        self.folders.append(n)
        files, broken = self.files, self._broken
        if not files[n] or n in broken or any(not files[c] or c in broken for c in self.below(n)):
            broken.add(n)

    def _open(self, n: int, digest: Digest) -> list[tuple[int, Digest]]:
        """Numbers what the tree names; returns the trees among that were not looked into."""
        hashes, sizes, kinds = self._named(n, digest)
        begin, get, edges = len(self._edges), self.ids.get, self._edges
        known = self.sizes
        found: list[tuple[int, Digest]] = []
        for hash, size in zip(hashes, sizes, strict=True):
            child = get(hash)
            if child is None or known[child] < 0:
                child = self._number(hash, size)
            edges.append(child)
        self._spans[n] = (begin, len(edges))
        if 1 in kinds:
            for i, folder in enumerate(kinds):
                if folder and (child := edges[begin + i]) not in self._spans:
                    found.append((child, Digest(hashes[i], sizes[i])))
        return found

    def _named(self, n: int, digest: Digest) -> tuple[Sequence[bytes], Sequence[int], bytes]:
        """Hashes, sizes, and 1 for each that is a tree."""
        if not self.files[n]:
            return (), (), b""
        try:
            record = self._store.read(digest)
            # Read and hashed also when it is remembered: what is damaged must not depend on what is remembered.
            if record is not None and (remembered := self._remembered.get(digest.hash)) is not None:
                return remembered
            named = [] if record is None else children(record)
        except IntegrityError:
            self.damaged.append(digest)
            self._broken.add(n)
            return (), (), b""
        self._remembered.learn(digest.hash, named)
        return [hash for hash, _, _ in named], [size for _, size, _ in named], bytes(f for _, _, f in named)


def _hashes(folder: str, names: list[str]) -> Iterator[bytes]:
    """The hashes that file names spell; others are no blobs."""
    text = "".join(names)
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if raw.hex() != text or not all(name.startswith(folder) for name in names):
        # Somebody's own file lies among them.
        for name in names:
            try:
                one = bytes.fromhex(name)
            except ValueError:
                continue
            if one.hex() == name and name.startswith(folder):
                yield one
        return
    yield from (raw[i : i + 32] for i in range(0, len(raw), 32))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
