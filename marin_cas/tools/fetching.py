"""Files from elsewhere, several at once, each checked before it counts; a broken fetch goes on where it stopped.

A part lies in scratch under the digest that it must have, so an attempt after a kill takes up what earlier ones left.
Nothing is believed for lying there: it is hashed on the way in, as is what comes over the network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from blake3 import blake3

from marin_cas.digest import Digest
from marin_cas.tools.patience import Patience, Transient
from marin_cas.worker.context import ToolContext, ToolError

SHA256, GIT_BLOB, BLAKE3 = "sha256", "git blob", "blake3"
CONNECTIONS = 8
_PARTS = "parts"
_CHUNK = 1 << 20


class Hasher(Protocol):
    def update(self, data: bytes, /) -> object: ...
    def hexdigest(self) -> str: ...


def hasher(algorithm: str, size: int) -> Hasher:
    """An empty hash of that name, for a file of `size` bytes."""
    if algorithm == SHA256:
        return hashlib.sha256()
    if algorithm == GIT_BLOB:
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return blake3()


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes on their way: `start` is where in the file they begin (0 from a server that cannot skip); `whole` is the
    file's size, where that was said."""

    start: int
    chunks: Iterator[bytes]
    whole: int | None = None


@dataclass(frozen=True, slots=True)
class Remote:
    """A file to fetch: `name` is its path in the output, `open(offset)` gives its bytes, or raises Transient.

    `digest` None: whatever comes, of that size; then `part` names what has come so far. `changed(size, hash)` is what
    to say of other bytes than are due; the hash is empty where the size was enough.
    """

    name: str
    size: int
    algorithm: str
    digest: str | None
    open: Callable[[int], AbstractContextManager[Body]]
    changed: Callable[[int, str], ToolError] | None = None
    part: str = ""

    @property
    def kept_as(self) -> str:
        return self.digest or self.part


def fetch(
    ctx: ToolContext, remotes: Sequence[Remote], out: Path, source: str, patience: Patience, *, fresh: bool = False
) -> dict[str, Digest]:
    """Puts every file below `out`; for those without a `digest`, which one they have. `source` says where from.

    `fresh`: goes on from nothing that is there. ToolError when a file cannot be had, or is wrong.
    """
    return _Fetch(ctx, remotes, source and f" of {source}", patience, fresh).run(out)


@dataclass(slots=True)
class _Part:
    """A file that grows at `path`; `hash` has seen its first `done` bytes. `reached` is the most that it ever had."""

    remote: Remote
    path: Path
    hash: Hasher
    done: int = 0
    reached: int = 0


@dataclass(slots=True)
class _Fetch:
    ctx: ToolContext
    remotes: Sequence[Remote]
    source: str
    patience: Patience
    fresh: bool = False
    total: int = 0
    _done: int = 0
    _files: int = 0
    _unknown: dict[str, Digest] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self, out: Path) -> dict[str, Digest]:
        parts = self.ctx.scratch / _PARTS
        parts.mkdir(exist_ok=True)
        # One fetch a content: a repo may hold the same file under several names.
        distinct = {remote.kept_as: remote for remote in self.remotes}
        self.total = sum(remote.size for remote in distinct.values())
        self._tell(0)
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            # The largest first: at the end no thread is left with hours of work alone.
            jobs = [pool.submit(self._get, r) for r in sorted(distinct.values(), key=lambda r: -r.size)]
            try:
                finished, _ = wait(jobs, return_when=FIRST_EXCEPTION)
                for job in finished:
                    job.result()
            finally:
                self._stop.set()
                for job in jobs:
                    job.cancel()
        self._place(out)
        return self._unknown

    def _place(self, out: Path) -> None:
        left = Counter(remote.kept_as for remote in self.remotes)
        for remote in self.remotes:
            target, part = out / remote.name, self.ctx.scratch / _PARTS / remote.kept_as
            target.parent.mkdir(parents=True, exist_ok=True)
            left[remote.kept_as] -= 1
            if left[remote.kept_as]:
                shutil.copyfile(part, target)
            else:
                _move(part, target)

    def _get(self, remote: Remote) -> None:
        part = _Part(remote, self.ctx.scratch / _PARTS / remote.kept_as, hasher(remote.algorithm, remote.size))
        with open(part.path, "wb") as file:
            if not self.fresh:
                self._take_up(part, file)
            if part.done == remote.size and not self._right(part):
                self._restart(part, file)  # what an earlier attempt left is damaged: no fault of the source's
            self._download(part, file)
            if not self._right(part):
                say(f"{remote.name}: {self._seen(part)}; fetching it once more")
                self._restart(part, file)
                part.reached = 0
                self._download(part, file)
        if self._stop.is_set():
            return
        if not self._right(part):
            if remote.changed is not None:
                raise remote.changed(part.done, part.hash.hexdigest())
            raise ToolError(
                f"`{remote.name}`{self.source} is not what it should be, twice: {self._seen(part)}",
                hint="nothing was stored; is something between here and there changing what is fetched?",
            )
        with self._lock:
            self._files += 1
            if remote.digest is None:
                self._unknown[remote.name] = Digest(bytes.fromhex(part.hash.hexdigest()), part.done)
        self._tell(0)

    def _right(self, part: _Part) -> bool:
        return part.done == part.remote.size and part.remote.digest in (None, part.hash.hexdigest())

    def _seen(self, part: _Part) -> str:
        remote = part.remote
        if part.done != remote.size:
            return f"{part.done} bytes came, and {remote.size} should"
        return f"its {remote.algorithm} is {part.hash.hexdigest()}, and {remote.digest} is due"

    def _take_up(self, part: _Part, file: BinaryIO) -> None:
        """Copies what an earlier attempt had of it, the longest."""
        found = [earlier / _PARTS / part.remote.kept_as for earlier in self.ctx.earlier]
        found = [path for path in found if path.is_file()]
        if not found:
            return
        longest = max(found, key=lambda path: path.stat().st_size)
        with open(longest, "rb") as before:
            while not self._stop.is_set() and (chunk := before.read(min(_CHUNK, part.remote.size - part.done))):
                self._add(part, file, chunk)

    def _download(self, part: _Part, file: BinaryIO) -> None:
        failures = 0
        while part.done < part.remote.size and not self._stop.is_set():
            self.patience.hold()
            try:
                with part.remote.open(part.done) as body:
                    if part.remote.changed and body.whole not in (None, part.remote.size):
                        raise part.remote.changed(body.whole or 0, "")
                    if body.start != part.done:
                        self._restart(part, file)
                    for chunk in body.chunks:
                        if self._stop.is_set():
                            return
                        self._add(part, file, chunk)
                        if part.done > part.remote.size:
                            return  # more than is due: no need to hear it out
                if part.done < part.remote.size:
                    raise Transient(f"the connection ended after {part.done} of {part.remote.size} bytes")
            except Transient as failure:
                file.flush()
                # Progress is to be further than ever: a server that cannot skip begins anew each time.
                failures = 1 if part.done > part.reached else failures + 1
                part.reached = max(part.reached, part.done)
                self.patience.after(failure, failures, f"`{part.remote.name}`{self.source}")

    def _add(self, part: _Part, file: BinaryIO, chunk: bytes) -> None:
        part.hash.update(chunk)
        file.write(chunk)
        part.done += len(chunk)
        self._tell(len(chunk))

    def _restart(self, part: _Part, file: BinaryIO) -> None:
        self._tell(-part.done)
        file.seek(0)
        file.truncate()
        part.hash, part.done = hasher(part.remote.algorithm, part.remote.size), 0

    def _tell(self, more: int) -> None:
        with self._lock:
            self._done += more
            done, files = self._done, self._files
        self.ctx.progress(done, self.total, "bytes", files=files)


def say(line: str) -> None:
    """A line for the action's log."""
    print(line, flush=True)  # noqa: T201


def _move(source: Path, target: Path) -> None:
    try:
        os.rename(source, target)
    except OSError:
        # Scratch may be another disk, and an older Landlock lets nothing move between folders.
        shutil.copyfile(source, target)
