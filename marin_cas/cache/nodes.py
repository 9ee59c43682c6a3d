"""Every blob that a store has or that something names, as a number; for trees the numbers of what they name.

A million blobs are a few arrays and one dictionary. Numbers hold for this object only.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import mul

from marin_cas.cache.remembered import RememberedTrees
from marin_cas.digest import Digest
from marin_cas.disk import disk_problems, names_in
from marin_cas.errors import IntegrityError
from marin_cas.store.local import LocalStore
from marin_cas.tree.children import children

PLAIN, EXECUTABLE = 1, 2
_LARGEST = 1 << 62


class Nodes:
    """`files[n]` says which files blob `n` has (PLAIN, EXECUTABLE; 0: it is gone), `sizes[n]` its length, -1 while
    nothing has named it, `is_tree[n]` whether it was looked into: `below(n)` are the blobs that it names then.
    `folders` are these trees, each after all that it names."""

    def __init__(self, store: LocalStore, remembered: RememberedTrees) -> None:
        self._store = store
        self._remembered = remembered
        self.ids: dict[bytes, int] = {}
        self.files = bytearray()
        self.sizes = array("q")
        self.is_tree = bytearray()
        self.folders = array("I")
        self.damaged: list[Digest] = []
        self._spans: dict[int, tuple[int, int]] = {}
        self._edges = array("I")
        self._marks = bytearray()
        self._broken: set[int] = set()  # trees of which something is gone
        with disk_problems(store.root):
            self._list(os.fspath(store.root))

    def __len__(self) -> int:
        return len(self.files)

    def _list(self, base: str) -> None:
        ids, files = self.ids, self.files
        for folder in sorted(names_in(base)):
            if len(folder) != 2:
                continue
            names = names_in(f"{base}/{folder}")
            plain = _hashes(folder, [name for name in names if len(name) == 64])
            ids.update(zip(plain, range(len(files), len(files) + len(plain)), strict=True))
            files.extend(bytes([PLAIN]) * len(plain))
            for hash in _hashes(folder, [name[:64] for name in names if len(name) == 66 and name.endswith(".x")]):
                if (known := ids.setdefault(hash, len(files))) == len(files):
                    files.append(EXECUTABLE)
                else:
                    files[known] |= EXECUTABLE
        self.sizes = array("q", [-1]) * len(files)
        self.is_tree = bytearray(len(files))

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
            self.is_tree.append(0)
            self.sizes.append(min(size, _LARGEST))
        elif self.sizes[n] < 0:
            self.sizes[n] = min(size, _LARGEST)
        return n

    def hashes(self) -> list[bytes]:
        """The hash of every number, in order."""
        return list(self.ids)

    def taken(self, n: int) -> int:
        """The bytes that a blob takes: its length, twice when it has both files; 0 while that is not known."""
        return max(0, self.sizes[n]) * self.files[n].bit_count()

    def all_taken(self) -> Iterable[int]:
        """`taken` of every number, in order; negative where it is not known."""
        return map(mul, self.sizes, map(int.bit_count, self.files))

    # Trees

    def below(self, n: int) -> array[int]:
        """What a tree names, with repetitions. KeyError for what was not looked into."""
        begin, end = self._spans[n]
        return self._edges[begin:end]

    def whole(self, n: int) -> bool:
        """Whether a blob is there, and all that it names if it is a tree that was looked into."""
        return self.files[n] != 0 and n not in self._broken

    def reach(self, roots: Iterable[int], seen: bytearray) -> Iterator[int]:
        """The blobs at and below `roots` whose mark in `seen` is not set, setting it. `seen` is as long as this."""
        stack: list[int] = []
        is_tree = self.is_tree
        for root in roots:
            if not seen[root]:
                seen[root] = 1
                yield root
                if is_tree[root]:
                    stack.append(root)
        while stack:
            for child in self.below(stack.pop()):
                if not seen[child]:
                    seen[child] = 1
                    yield child
                    if is_tree[child]:
                        stack.append(child)

    def mark(self, roots: Iterable[int], seen: bytearray) -> None:
        """As `reach`, for the marks alone."""
        stack: list[int] = []
        is_tree = self.is_tree
        for root in roots:
            if not seen[root]:
                seen[root] = 1
                if is_tree[root]:
                    stack.append(root)
        while stack:
            for child in self.below(stack.pop()):
                if not seen[child]:
                    seen[child] = 1
                    if is_tree[child]:
                        stack.append(child)

    def bytes_at(self, tops: Iterable[int]) -> int:
        """What the blobs at and below `tops` take, each once."""
        self._marks.extend(bytes(len(self) - len(self._marks)))
        reached = list(self.reach(tops, self._marks))
        for n in reached:
            self._marks[n] = 0
        return sum(map(self.taken, reached))

    def weight(self, n: int, enough: int) -> int:
        """The bytes at and below a blob, by what their digests say; counting ends beyond `enough`."""
        total, seen, stack = 0, {n}, [n]
        while stack and total <= enough:
            at = stack.pop()
            total += max(0, self.sizes[at])
            new = set(self.below(at) if self.is_tree[at] else ()) - seen
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
            if self.is_tree[n]:
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
        begin = len(self._edges)
        try:
            numbers = list(map(self.ids.__getitem__, hashes))
        except KeyError:  # something is gone
            numbers = [self._number(hash, size) for hash, size in zip(hashes, sizes, strict=True)]
        known = self.sizes
        for child, size in zip(numbers, sizes, strict=True):
            known[child] = size if size < _LARGEST else _LARGEST
        self._edges.extend(numbers)
        self._spans[n] = (begin, len(self._edges))
        self.is_tree[n] = 1
        if 1 not in kinds:
            return []
        return [
            (child, Digest(hashes[i], sizes[i]))
            for i, child in enumerate(self._edges[begin:])
            if kinds[i] and not self.is_tree[child]
        ]

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


def _hashes(folder: str, names: list[str]) -> list[bytes]:
    """The hashes that file names spell; others are no blobs."""
    text = "".join(names)
    with suppress(ValueError):
        raw = bytes.fromhex(text)
        if raw.hex() == text and all(name.startswith(folder) for name in names):
            return [raw[i : i + 32] for i in range(0, len(raw), 32)]
    # Somebody's own file lies among them.
    return [hash for name in names if (hash := _hash(name)) is not None and name.startswith(folder)]


def _hash(name: str) -> bytes | None:
    with suppress(ValueError):
        hash = bytes.fromhex(name)
        return hash if hash.hex() == name else None
    return None
