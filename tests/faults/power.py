"""What a power cut may leave of a cache: a model of a disk, to which a recorded trace is applied effect by effect.

A call has effects: a name in a folder appears, moves or goes; an inode gets bytes; an inode gets its mode and time.
All effects before a sync are there. Of those since then each may be there or not, in any combination: so a rename may
survive whose file lost its bytes, a later one while an earlier is lost, a link without the name that it was made from.
A folder whose own name was lost takes all in it along.
"""

from __future__ import annotations

import json
import os
import posixpath
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin_cas.store.trace import Call

# Below these lies what a tool writes and what is thrown away; only what is taken from there counts.
FOREIGN = frozenset({"work", "scratch", "logs"})
ROOT = 0
GRAIN_S = 0.006  # the file system's clock ticks every 4 ms

FILE, FOLDER, LINK = "file", "folder", "link"
FATES = ("empty", "half", "zeros")


@dataclass(frozen=True, slots=True)
class Name:
    """In a folder, names appear (with the inode they lead to) or go (None). Several: all at once, as a rename is."""

    changes: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Bytes:
    """A file's bytes; `old` are those that it had, None for a new one."""

    inode: int
    data: bytes
    old: bytes | None = None


@dataclass(frozen=True, slots=True)
class Attributes:
    inode: int
    mode: int
    mtime_ns: int | None


@dataclass(frozen=True, slots=True)
class Sync:
    pass


type Effect = Name | Bytes | Attributes | Sync


@dataclass(slots=True)
class Inode:
    kind: str
    data: bytes = b""
    mode: int = 0o600
    mtime_ns: int | None = None
    names: dict[str, int] = field(default_factory=dict)
    text: str = ""


class Trace:
    """The effects of calls in order. `kinds` says what each inode is; what links lead to never changes."""

    def __init__(self, cache: Path) -> None:
        self._cache = f"{cache}/"
        self.effects: list[Effect] = []
        self.kinds: dict[int, str] = {ROOT: FOLDER}
        self.texts: dict[int, str] = {}
        self._disk = Disk(self)
        self._foreign: dict[str, int] = {}

    def take(self, calls: Iterable[tuple[Call, Any, Any]]) -> None:
        """Appends what a recorded command did: each call, what it returned, and the bytes and mode of its file."""
        for call, returned, content in calls:
            if not call.path.startswith(self._cache) and call.name != "sync":
                continue
            paths = [path.removeprefix(self._cache) for path in call.paths]
            getattr(self, f"_{call.name}")(call, paths, returned, content)

    # A method for each of Disk's.

    def _sync(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        self._add(Sync())

    def _write(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        if inode := self._create(paths[0], FILE):
            self._add(Bytes(inode, bytes(call.given["data"])))
            self._add(Attributes(inode, call.given.get("mode", 0o644), None))

    def _append(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        inode = self._disk.find(paths[0])
        if inode is None:
            self._write(call, paths, returned, content)
            return
        old = self._disk.inodes[inode].data
        self._add(Bytes(inode, old + call.given["data"], old))

    def _copy(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        if returned is not False and content and (inode := self._create(paths[-1], FILE)):
            self._add(Bytes(inode, content[0]))
            self._add(Attributes(inode, content[1], None))

    _clone = _copy

    def _link(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        inode = self._adopted(paths[0], content)
        place = self._disk.place(paths[1])
        if inode is not None and place is not None:
            self._add(Name(((*place, inode),)))

    def _rename(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        inode, here, there = self._adopted(paths[0], content), self._disk.place(paths[0]), self._disk.place(paths[1])
        gone = () if here is None else ((*here, None),)
        if inode is not None and there is not None:
            self._add(Name((*gone, (*there, inode))))
        elif gone and inode is not None:
            self._add(Name(gone))

    def _unlink(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        if self._disk.find(paths[0]) is not None and (place := self._disk.place(paths[0])):
            self._add(Name(((*place, None),)))

    def _symlink(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        if inode := self._create(paths[0], LINK):
            self.texts[inode] = self._disk.inodes[inode].text = call.given["target"]

    def _chmod(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        if (inode := self._adopted(paths[0], content)) is not None:
            self._add(Attributes(inode, call.given["mode"], call.given.get("mtime_ns")))

    _seal = _chmod

    def _touch(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        pass

    def _mkdir(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        self._create(paths[0], FOLDER)

    def _makedirs(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        parts = paths[0].split("/") if f"{paths[0]}/" != self._cache else []
        for n in range(1, len(parts) + 1):
            if self._disk.find("/".join(parts[:n])) is None:
                self._create("/".join(parts[:n]), FOLDER)

    def _remove_tree(self, call: Call, paths: list[str], returned: Any, content: Any) -> None:
        top, place = self._disk.find(paths[0]), self._disk.place(paths[0])
        if top is None or place is None:
            return
        for folder in reversed(list(self._disk.folders(top))):
            for name in list(self._disk.inodes[folder].names):
                self._add(Name(((folder, name, None),)))
        self._add(Name(((*place, None),)))

    # Inodes

    def _add(self, effect: Effect) -> None:
        self.effects.append(effect)
        self._disk.apply(effect)

    def _create(self, path: str, kind: str) -> int | None:
        place = self._disk.place(path)
        if place is None:
            return None
        inode = self._new(kind)
        self._add(Name(((*place, inode),)))
        return inode

    def _new(self, kind: str) -> int:
        inode = len(self.kinds)
        self.kinds[inode] = kind
        self._disk.inodes[inode] = Inode(kind)
        return inode

    def _adopted(self, path: str, content: Any) -> int | None:
        """The inode of a path; a new one for a file that somebody else wrote."""
        inode = self._disk.find(path) if path.split("/")[0] not in FOREIGN else self._foreign.get(path)
        if inode is None and content is not None:
            inode = self._foreign[path] = self._new(FILE)
            self._add(Bytes(inode, content[0]))
        return inode


class Disk:
    """Inodes and the names that lead to them."""

    def __init__(self, trace: Trace) -> None:
        self.inodes = {inode: Inode(kind, text=trace.texts.get(inode, "")) for inode, kind in trace.kinds.items()}

    def apply(self, effect: Effect, fate: str = "") -> None:
        """`fate` is what became of bytes."""
        match effect:
            case Name(changes):
                for folder, name, inode in changes:
                    if inode is None:
                        self.inodes[folder].names.pop(name, None)
                    else:
                        self.inodes[folder].names[name] = inode
            case Bytes(inode, data, old):
                had = old or b""
                half = data[: (len(had) + len(data)) // 2]
                lost = {"empty": had, "half": half, "zeros": had.ljust(len(data), b"\0")}
                self.inodes[inode].data = lost.get(fate, data)
            case Attributes(inode, mode, mtime_ns):
                self.inodes[inode].mode, self.inodes[inode].mtime_ns = mode, mtime_ns
            case Sync():
                pass

    def find(self, path: str) -> int | None:
        at = ROOT
        for part in path.split("/"):
            found = self.inodes[at].names.get(part)
            if found is None:
                return None
            at = found
        return at

    def place(self, path: str) -> tuple[int, str] | None:
        """The folder that a path is in, and its name there; None where that is foreign or not known."""
        above, name = posixpath.split(path)
        if path.split("/")[0] in FOREIGN:
            return None
        folder = self.find(above) if above else ROOT
        return None if folder is None else (folder, name)

    def folders(self, top: int = ROOT) -> Iterator[int]:
        """A folder and all below it, each before what it holds."""
        pending = [top]
        while pending:
            at = pending.pop()
            if self.inodes[at].kind == FOLDER:
                yield at
                pending += self.inodes[at].names.values()

    def paths(self, top: int = ROOT) -> Iterator[tuple[str, int]]:
        """Everything that a name leads to, a folder before what it holds."""
        pending = [("", top)]
        while pending:
            prefix, at = pending.pop()
            for name, inode in sorted(self.inodes[at].names.items()):
                yield f"{prefix}{name}", inode
                if self.inodes[inode].kind == FOLDER:
                    pending.append((f"{prefix}{name}/", inode))

    def essence(self) -> frozenset[tuple[Any, ...]]:
        """Equal for two disks that no later command can tell apart. Unfinished files are swept or ignored."""
        return frozenset(
            (path, self.inodes[inode].kind, self.inodes[inode].data, self.inodes[inode].mode, self.inodes[inode].text)
            for path, inode in self.paths()
            if not path.startswith("tmp/")
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """The power fails after `end` effects. Of those since the last sync the `dropped` never reached the disk; of bytes
    in `lost` (effect to fate) only that is there. `torn` renames left both names."""

    end: int
    dropped: frozenset[int] = frozenset()
    lost: Mapping[int, str] = field(default_factory=dict)
    torn: frozenset[int] = frozenset()


def last_sync(effects: Sequence[Effect], end: int) -> int:
    return max((n + 1 for n in range(end) if isinstance(effects[n], Sync)), default=0)


def disks(trace: Trace, cut: Cut) -> tuple[Disk, Disk]:
    """The disk at the last sync, and what the power cut leaves."""
    synced = last_sync(trace.effects, cut.end)
    base, left = Disk(trace), Disk(trace)
    for n, effect in enumerate(trace.effects[: cut.end]):
        if n < synced:
            base.apply(effect)
            left.apply(effect)
        elif n in cut.torn and isinstance(effect, Name):
            left.apply(Name(tuple(change for change in effect.changes if change[2] is not None)))
        elif n not in cut.dropped:
            left.apply(effect, cut.lost.get(n, ""))
    return base, left


def lay_out(base: Disk, left: Disk, root: Path) -> None:
    """Makes the folder `root` as the power cut left it: what was there at the last sync is older than the note of that
    sync says, everything since is younger."""
    root.mkdir()
    linked: dict[int, str] = {}
    for path, inode in base.paths():
        _make(base, inode, root, path, linked)
    time.sleep(GRAIN_S)
    now = time.time_ns()
    time.sleep(GRAIN_S)
    before = dict(base.paths())
    after = dict(left.paths())
    kept = {path for path in after if before.get(path) == after[path] and _same(base, left, after[path])}
    for path in sorted(before.keys() - kept, reverse=True):
        if left.inodes[before[path]].kind != FOLDER:
            (root / path).unlink()
        elif path not in after or after[path] != before[path]:
            (root / path).rmdir()
        else:
            kept.add(path)
    made: dict[int, str] = {after[path]: path for path in kept}
    for path, inode in left.paths():
        if path not in kept:
            _make(left, inode, root, path, made)
    note = root / "synced"
    if "synced" in after and before.get("synced") != after["synced"]:
        try:
            fields = json.loads(note.read_text())
            note.write_text(json.dumps(fields | {"time_ns": now}))
        except (ValueError, TypeError):
            pass


def _same(base: Disk, left: Disk, inode: int) -> bool:
    one, other = base.inodes[inode], left.inodes[inode]
    return (one.data, one.mode, one.mtime_ns) == (other.data, other.mode, other.mtime_ns)


def _make(disk: Disk, number: int, root: Path, path: str, made: dict[int, str]) -> None:
    inode, at = disk.inodes[number], root / path
    if inode.kind == FOLDER:
        at.mkdir()
    elif inode.kind == LINK:
        at.symlink_to(inode.text)
    elif number in made:
        os.link(root / made[number], at)
    else:
        made[number] = path
        at.write_bytes(inode.data)
        at.chmod(inode.mode)
        if inode.mtime_ns is not None:
            os.utime(at, ns=(inode.mtime_ns, inode.mtime_ns))


# Which cuts there are.


def prefixes(trace: Trace, start: int) -> Iterator[Cut]:
    """The power fails after each effect, and all before it is there."""
    for end in range(start, len(trace.effects) + 1):
        yield Cut(end)


def singles(trace: Trace, end: int) -> Iterator[Cut]:
    """One effect is lost or one file's bytes are damaged, of all since the last sync."""
    for n in range(last_sync(trace.effects, end), end):
        yield from _faults(trace, end, n)


def pairs(trace: Trace, end: int) -> Iterator[Cut]:
    """Every two of the faults of `singles` at once."""
    every = [cut for n in range(last_sync(trace.effects, end), end) for cut in _faults(trace, end, n)]
    for index, one in enumerate(every):
        for other in every[index + 1 :]:
            yield Cut(end, one.dropped | other.dropped, {**one.lost, **other.lost}, one.torn | other.torn)


def _faults(trace: Trace, end: int, n: int) -> Iterator[Cut]:
    effect = trace.effects[n]
    if isinstance(effect, Bytes):
        for fate in FATES:
            yield Cut(end, lost={n: fate})
        return
    yield Cut(end, frozenset({n}))
    if _can_tear(trace, effect):
        yield Cut(end, torn=frozenset({n}))


def _can_tear(trace: Trace, effect: Effect) -> bool:
    """A file may be left with both names; no file system lets a folder have two."""
    return isinstance(effect, Name) and len(effect.changes) > 1 and trace.kinds[effect.changes[-1][2] or ROOT] != FOLDER


def random_cut(trace: Trace, start: int, random: Any) -> Cut:
    """Any number of faults at any moment."""
    end = random.randint(start, len(trace.effects))
    share = random.choice((0.02, 0.1, 0.3, 0.6))
    dropped, lost, torn = set(), {}, set()
    for n in range(last_sync(trace.effects, end), end):
        if random.random() >= share:
            continue
        effect = trace.effects[n]
        if isinstance(effect, Bytes) and random.random() < 0.8:
            lost[n] = random.choice(FATES)
        elif _can_tear(trace, effect) and random.random() < 0.3:
            torn.add(n)
        else:
            dropped.add(n)
    return Cut(end, frozenset(dropped), lost, frozenset(torn))
