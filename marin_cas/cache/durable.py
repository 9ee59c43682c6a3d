"""What a power cut may have taken: everything since the last sync is read again after a reboot, before use.

A publish does not wait for the disk: a sync a file would cost 4 ms each. So a build syncs once at its end and notes
when; a cache that opens under another boot than the note's hashes what is younger, and removes what is wrong.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from marin_cas.cache.small import read_small, replace_small
from marin_cas.digest import hash_file
from marin_cas.disk import Disk, disk_problems
from marin_cas.store.local import LocalStore
from marin_cas.store.process import this_process
from marin_cas.store.temporary import Temporary

# How far a file system's clock may lag behind the wall clock.
_MARGIN_NS = 2_000_000_000


def sync(root: Path, disk: Disk, temporary: Temporary) -> None:
    """Makes everything so far survive a power cut, and notes that it does."""
    began = time.time_ns()
    with disk_problems(root):
        disk.sync(root)
    _note(root, disk, temporary, began)


def recheck(root: Path, store: LocalStore, disk: Disk, temporary: Temporary) -> int:
    """After a reboot, removes younger blobs whose bytes were lost; the number of them. Otherwise nothing is read."""
    boot = this_process().boot
    data = read_small(f"{root}/synced")
    if not boot:
        return 0
    since = 0
    if data is not None:
        with suppress(ValueError, TypeError, KeyError):
            note = json.loads(data)
            if note["boot"] == boot:
                return 0
            since = int(note["time_ns"])
    removed = _recheck(root, store, disk, since - _MARGIN_NS)
    _note(root, disk, temporary, since)
    return removed


def _recheck(root: Path, store: LocalStore, disk: Disk, since: int) -> int:
    removed = 0
    with disk_problems(root):
        for hexed, entry in store.files(changed_since_ns=since):
            # ctime, since a tool may give its files any mtime. A link made since moves it too: read in vain.
            if entry.stat(follow_symlinks=False).st_ctime_ns < since:
                continue
            if hash_file(entry.path, exclusive=True).hex != hexed:
                disk.unlink(entry.path)
                removed += 1
        trees = f"{root}/trees"
        for name in os.listdir(trees) if os.path.isdir(trees) else ():
            if os.lstat(f"{trees}/{name}").st_ctime_ns >= since:
                disk.remove_tree(f"{trees}/{name}")
    return removed


def _note(root: Path, disk: Disk, temporary: Temporary, time_ns: int) -> None:
    fields = {"boot": this_process().boot, "time_ns": time_ns}
    replace_small(disk, temporary, f"{root}/synced", json.dumps(fields).encode())
