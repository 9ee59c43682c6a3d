"""The no-op path: when nothing that the last build of a request saw has changed, its report is printed again.

Imports nothing but the interpreter's own light modules, so that an unchanged build costs little more than starting
Python. The file is disposable: whatever is wrong with it means "not up to date", never an error.

What is compared, and why that is enough:
- a file by inode, size, mtime and ctime, taken at the end of the build. A file whose ctime is not older than the
  build's start may have changed between being read and being noted, so such a build leaves no snapshot.
- a folder by inode and mtime, or else by the names in it;
- a link by its text and what it leads to; what the build itself made a moment ago also by content, because a second
  change within the file system's clock tick would show in no time stamp;
- small files of the cache itself (the epoch of taints and GC) by content only.
"""

import json
import os
import sys
import time
from _blake2 import blake2b
from stat import S_ISDIR, S_ISLNK, S_ISREG

from marin_cas import __version__

FORMAT = 1
KEPT = 8
# File systems stamp with a clock that ticks every 1 to 10 ms.
GRAIN_NS = 12_000_000
# Above this a young output is trusted by its stamps: reading it would cost more than the whole check.
_READ_UP_TO = 16 << 20


class Report:
    """What a finished build printed: `lines` for people, `data` for `--output json` and the events."""

    __slots__ = ("data", "lines")

    def __init__(self, lines, data):
        self.lines = tuple(lines)
        self.data = dict(data)


def start():
    """The moment to pass to `save` as `started`: take it before the first workspace file is read or folder walked,
    but after the cache's own folder exists (making it touches the workspace's root folder)."""
    return time.time_ns()


def check(path, root, request):
    """The report of the last build of `request` when all that it saw is unchanged, else None. Never raises OSError."""
    try:
        entry = _find(path, _name(request))
        if entry is None:
            return None
        saved = entry["saved"]
        base = os.path.join(root, "")
        for item in entry["watch"]:
            if not _same(os.path.join(base, item[0]), item, saved):
                return None
        return Report(entry["lines"], entry["data"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def save(path, root, request, report, *, started, watched=(), outputs=(), contents=()):
    """Note that `request` has this report while nothing below changes; True when noted.

    `watched`: files and folders of the user's that were read (missing ones count as "still missing"), `outputs`: links
    and folders that this build published, `contents`: small files compared by content. Paths are absolute or below
    `root`. Replaces the file by a rename; a failure to write is no error.
    """
    try:
        saved = time.time_ns()
        entries = []
        for kind, paths in (("watched", watched), ("output", outputs), ("content", contents)):
            for name in dict.fromkeys(_relative(root, os.fspath(p)) for p in paths):
                entry = _note(os.path.join(root, name), name, kind, started, saved)
                if entry is None:
                    return False
                entries.append(entry)
        name = _name(request)
        body = {"saved": saved, "lines": list(report.lines), "data": report.data, "watch": entries}
        line = name + " " + json.dumps(body, separators=(",", ":"))
        _replace(path, [line, *(old for old in _lines(path) if old[:32] != name)][:KEPT])
        return True
    except (OSError, ValueError, TypeError):
        return False


def forget(path):
    """Drop every snapshot."""
    try:
        os.unlink(path)
    except OSError:
        pass


def _name(request):
    whole = {"format": FORMAT, "version": __version__, "python": sys.version, "request": request}
    return blake2b(json.dumps(whole, sort_keys=True).encode("utf-8"), digest_size=16).hexdigest()


def _lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, ValueError):
        return []


def _find(path, name):
    # Requests stand one a line, so that only the wanted one is parsed.
    for line in _lines(path):
        if line[:32] == name:
            return json.loads(line[33:])
    return None


def _replace(path, lines):
    path = os.fspath(path)
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(temporary, path)
    except BaseException:
        forget(temporary)
        raise


def _relative(root, path):
    base = os.path.join(os.fspath(root), "")
    return path[len(base) :] if path.startswith(base) else path


def _stat(path, follow=False):
    try:
        return os.stat(path) if follow else os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _note(path, name, kind, started, saved):
    """The entry that `_same` compares, or None when the file may have changed since it was read."""
    if kind == "content":
        return [name, "c", _content(path)]
    found = _stat(path)
    if found is None:
        return [name, None]
    ours = kind == "output"
    if S_ISLNK(found.st_mode):
        target = _stat(path, follow=True)
        if not ours and (_young(found, started) or (target is not None and _young(target, started))):
            return None
        return [name, "l", os.readlink(path), None if target is None else _stamp(path, target, ours, saved)]
    if not ours and _young(found, started):
        return None
    return [name, *_stamp(path, found, ours, saved)]


def _young(found, since):
    return max(found.st_mtime_ns if S_ISDIR(found.st_mode) else 0, found.st_ctime_ns) >= since - GRAIN_NS


def _stamp(path, found, ours, saved):
    if S_ISDIR(found.st_mode):
        return ["d", found.st_ino, found.st_mtime_ns, _listing(path)]
    if not S_ISREG(found.st_mode):
        return ["o", found.st_ino]
    # An output is a hard link into the store, and linking it elsewhere changes its ctime.
    ctime = None if ours else found.st_ctime_ns
    young = ours and found.st_mtime_ns >= saved - GRAIN_NS and found.st_size <= _READ_UP_TO
    return ["f", found.st_ino, found.st_size, found.st_mtime_ns, ctime, _content(path) if young else None]


def _same(path, item, saved):
    kind = item[1]
    if kind == "f":
        found = _stat(path)
        return found is not None and S_ISREG(found.st_mode) and _same_file(path, item, found)
    if kind == "d":
        found = _stat(path)
        return found is not None and S_ISDIR(found.st_mode) and _same_folder(path, item, found, saved)
    if kind is None:
        return _stat(path) is None
    if kind == "c":
        return _content(path) == item[2]
    if kind == "l":
        found = _stat(path)
        if found is None or not S_ISLNK(found.st_mode) or os.readlink(path) != item[2]:
            return False
        target = _stat(path, follow=True)
        if target is None or item[3] is None:
            return target is None and item[3] is None
        entry = [item[0], *item[3]]
        if S_ISDIR(target.st_mode):
            return entry[1] == "d" and _same_folder(path, entry, target, saved)
        return entry[1] == "f" and S_ISREG(target.st_mode) and _same_file(path, entry, target)
    found = _stat(path)
    return found is not None and kind == "o" and found.st_ino == item[2]


def _same_file(path, item, found):
    _, _, inode, size, mtime, ctime, content = item
    return (
        found.st_mtime_ns == mtime
        and found.st_size == size
        and found.st_ino == inode
        and (ctime is None or found.st_ctime_ns == ctime)
        and (content is None or _content(path) == content)
    )


def _same_folder(path, item, found, saved):
    _, _, inode, mtime, listing = item
    if found.st_mtime_ns == mtime and found.st_ino == inode and mtime < saved - GRAIN_NS:
        return True
    # An editor's temporary file came and went: the names decide.
    return _listing(path) == listing


def _listing(path):
    with os.scandir(path) as entries:
        names = sorted((os.fsencode(e.name), b"l" if e.is_symlink() else b"d" if e.is_dir() else b"f") for e in entries)
    hasher = blake2b(digest_size=16)
    for name, kind in names:
        hasher.update(kind + name + b"\0")
    return hasher.hexdigest()


def _content(path):
    try:
        with open(path, "rb") as file:
            hasher = blake2b(digest_size=16)
            while chunk := file.read(1 << 20):
                hasher.update(chunk)
            return hasher.hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
