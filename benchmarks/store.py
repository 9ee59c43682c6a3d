"""The store against its peers: `store.py [ingest] [rescan] [checkout] [verify] [million]`, all of them by default.

Two corpora of random bytes, one file of 2 GiB and 10,000 files of 16 KiB; `million` is a tree of a million files.
The best of some runs counts, ours and a peer's by turns.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import million
import ours
from measure import Inside, Taken, faster, folder, row, run, verdict
from peers import Borg, Casync, Dvc, Git, Nix, Peer, Restic, best, program, taken

_GIB = 1 << 30
_LARGE, _SMALL = "2 GiB", "10,000 x 16 KiB"
_ROUNDS = 3


def large(root: Path) -> Path:
    root.mkdir(parents=True)
    with (root / "file").open("wb") as out:
        for _ in range(2 * _GIB >> 24):
            out.write(os.urandom(1 << 24))
    return root


def small(root: Path) -> Path:
    for index in range(10_000):
        part = root / f"{index // 100:03}"
        part.mkdir(parents=True, exist_ok=True)
        (part / f"{index:05}").write_bytes(os.urandom(16 << 10))
    return root


def ingest(base: Path) -> None:
    _ingest_large(base)
    _ingest_small(base)
    huge = base / "huge"
    huge.mkdir()
    with (huge / "file").open("wb") as out:
        out.truncate(5 * _GIB)
    took = ours.ingest(base / "cache-huge", huge)
    row("ingest of 5 GiB", took.taken)
    verdict("anonymous memory", took.anonymous, 150, "MB")


def _ingest_large(base: Path) -> None:
    tree, cache = large(base / "large"), base / "cache-large"
    b3sum = program("b3sum")
    hashes: list[Taken] = []
    takes: list[Inside] = []
    for _ in range(_ROUNDS):
        if b3sum:
            hashes.append(run([b3sum, str(tree / "file")]))
        takes.append(ours.ingest(cache, tree))
        # Out of the store again, so that it can be taken once more.
        max((cache / "cas").rglob("*"), key=lambda path: path.stat().st_size).rename(tree / "file")
        (tree / "file").chmod(0o644)
    mine, peer = _quickest(takes), best(*hashes)
    row(f"ingest of {_LARGE}", mine)
    row("b3sum", peer)
    if peer is not None:
        verdict("ratio to b3sum", mine.wall / peer.wall, 1.3, "x")
    verdict("anonymous memory", max(take.anonymous for take in takes), 150, "MB")
    for kind in (Restic, Borg, Dvc):
        there = kind(base / f"{kind.name}-large")
        theirs = taken(there, _within(there, tree))
        row(f"{kind.name} {kind.verb}", theirs)
        faster(f"against {kind.name}", mine, theirs, 4)


def _ingest_small(base: Path) -> None:
    takes: list[Inside] = []
    theirs: dict[type[Peer], list[Taken | None]] = {kind: [] for kind in (Nix, Restic, Git, Casync)}
    for turn in range(_ROUNDS):
        tree = small(base / f"small{turn}")
        for kind, times in theirs.items():
            times.append(taken(kind(base / f"{kind.name}{turn}"), tree))
        takes.append(ours.ingest(base / f"cache{turn}", tree))
    mine = _quickest(takes)
    row(f"ingest of {_SMALL}", mine)
    for kind, times in theirs.items():
        row(f"{kind.name} {kind.verb}", best(*times))
    faster("against the fastest", mine, best(*(each for times in theirs.values() for each in times)), 1.5)
    verdict("a file", mine.wall / 10, 0.2, "ms")
    verdict("anonymous memory", max(take.anonymous for take in takes), 150, "MB")


def rescan(base: Path) -> None:
    for what, make in ((_LARGE, large), (_SMALL, small)):
        tree, cache, restic = (
            make(base / make.__name__),
            base / f"{make.__name__}-cache",
            Restic(base / make.__name__[:2]),
        )
        taken(restic, tree)
        ours.rescan(cache, tree)
        theirs: list[Taken | None] = []
        mine: list[Inside] = []
        for _ in range(_ROUNDS):
            theirs.append(restic.take(tree) if restic.there else None)
            mine.append(ours.rescan(cache, tree))
        row(f"rescan of {what}, unchanged", _quickest(mine))
        row("restic backup", best(*theirs))
        faster("against restic", _quickest(mine), best(*theirs))


def checkout(base: Path) -> None:
    tree, cache = small(base / "tree"), base / "cache"
    casync, dvc = Casync(base / "casync"), Dvc(base / "dvc")
    taken(casync, tree)
    copy = _within(dvc, shutil.copytree(tree, base / "copy"))
    taken(dvc, copy)
    digest = ours.ingest(cache, tree).printed
    mine: list[Inside] = []
    theirs: dict[str, list[Taken | None]] = {"casync extract": [], "dvc checkout": []}
    for turn in range(_ROUNDS):
        shutil.rmtree(copy)
        theirs["dvc checkout"].append(dvc.lay(copy) if dvc.there else None)
        theirs["casync extract"].append(casync.lay(base / f"casync{turn}") if casync.there else None)
        mine.append(ours.materialise(cache, digest, base / f"laid{turn}"))
    row(f"checkout by links of {_SMALL}", _quickest(mine))
    for name, times in theirs.items():
        row(name, best(*times))
        faster(f"against {name}", _quickest(mine), best(*times))


def verify(base: Path) -> None:
    for what, make in ((_LARGE, large), (_SMALL, small)):
        tree, cache = make(base / make.__name__), base / f"{make.__name__}-cache"
        ours.ingest(cache, tree)
        blobs = [str(path) for path in (cache / "cas").rglob("*") if path.is_file()]
        mine, hashes = [], []
        for _ in range(_ROUNDS):
            mine.append(ours.verify(cache))
            if b3sum := program("b3sum"):
                hashes.append(run([b3sum, *blobs]))
        row(f"marin cache verify of {what}", best(*mine))
        row("b3sum", best(*hashes))
        if make is large and (best_of_mine := best(*mine)):
            faster("against b3sum", best_of_mine, best(*hashes), 0.8)


def _within(peer: Peer, tree: Path) -> Path:
    """A tree that dvc can take, which looks only into its workspace."""
    return tree.rename(peer.base / "tree") if isinstance(peer, Dvc) else tree


def _quickest(runs: list[Inside]) -> Taken:
    return min((each.taken for each in runs), key=lambda taken: taken.wall)


_SECTIONS: dict[str, Callable[[Path], None]] = {
    "ingest": ingest,
    "rescan": rescan,
    "checkout": checkout,
    "verify": verify,
    "million": million.run,
}


def main() -> None:
    names = sys.argv[1:] or list(_SECTIONS)
    if unknown := set(names) - set(_SECTIONS):
        sys.exit(f"no section {', '.join(sorted(unknown))}: there are {', '.join(_SECTIONS)}")
    for name in names:
        print(f"-- {name}", flush=True)
        with folder() as base:
            _SECTIONS[name](base)


if __name__ == "__main__":
    main()
