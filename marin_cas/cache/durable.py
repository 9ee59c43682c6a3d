"""What a power cut may have taken: everything since the last sync is read again after a reboot, before use.

A publish does not wait for the disk: a sync a file would cost 4 ms each. So a build syncs once at its end and notes
when; a cache that opens under another boot than the note's looks at what is younger, and removes what is wrong. Any
part of what is younger may be lost while the rest is there, so nothing that is may hide that something else is not.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from marin_cas.cache.actions import ActionCache
from marin_cas.cache.entry import DONE, EQUATED, REVOKED, TAINTED, UNREADABLE, Entry
from marin_cas.cache.small import read_small, replace_small
from marin_cas.digest import hash_file
from marin_cas.disk import Disk, disk_problems, names_in
from marin_cas.store.gate import Gate
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


def recheck(root: Path, store: LocalStore, gate: Gate, actions: ActionCache, disk: Disk, temporary: Temporary) -> int:
    """After a reboot, removes what is younger than the last sync and not whole; the number of blobs removed.

    Otherwise nothing is read. Safe in several processes at once.
    """
    boot = this_process().boot
    if not boot:
        return 0
    now = time.time_ns()
    noted, since = _noted(f"{root}/synced")
    if noted == boot:
        if now < since:
            # The clock was set back: what is written now must not look older than the sync.
            _note(root, disk, temporary, now)
        return 0
    with disk_problems(root):
        removed = _recheck_blobs(store, gate, disk, since - _MARGIN_NS)
        _remove_young(f"{root}/trees", disk, since - _MARGIN_NS)
        # One that is there may lead past a result that was lost, which comes out otherwise when it is made again.
        for folder in names_in(f"{root}/fp"):
            _remove_young(f"{root}/fp/{folder}", disk, since - _MARGIN_NS)
        _recheck_entries(root, actions, disk, since - _MARGIN_NS)
    _note(root, disk, temporary, min(since, now))
    return removed


def _recheck_blobs(store: LocalStore, gate: Gate, disk: Disk, since: int) -> int:
    removed = 0
    for hexed, entry in store.files(changed_since_ns=since):
        # ctime, since a tool may give its files any mtime. A link made since moves it too: read in vain.
        try:
            before = entry.stat(follow_symlinks=False)
            if before.st_ctime_ns < since or hash_file(entry.path, exclusive=True).hex == hexed:
                continue
        except OSError:
            continue  # gone, or not to be read now: no proof that it is wrong
        with gate.exclusive(), suppress(FileNotFoundError):
            # Another process may have been faster, and put good bytes in its place.
            if os.lstat(entry.path).st_ino == before.st_ino:
                disk.unlink(entry.path)
                removed += 1
    return removed


def _recheck_entries(root: Path, actions: ActionCache, disk: Disk, since: int) -> None:
    changed = actions.changed_keys()
    for hexed in actions.all_keys():
        folder = f"{root}/ac/{hexed[:2]}/{hexed}"
        with suppress(FileNotFoundError):
            if os.stat(folder).st_mtime_ns < since:
                continue
            entries = actions.entries(hexed)
            for entry in entries:
                # Its number is free again: whoever could have held it is gone with the boot.
                if entry.state == UNREADABLE and os.stat(f"{folder}/{entry.n}").st_ctime_ns >= since:
                    disk.unlink(f"{folder}/{entry.n}")
            if bytes.fromhex(hexed) not in changed and _was_changed(entries):
                actions.mark_changed(hexed)


def _was_changed(entries: Iterable[Entry]) -> bool:
    """Whether something may have been made from a choice that is none any more."""
    states = [entry.state for entry in entries]
    return TAINTED in states or REVOKED in states or states.count(DONE) + states.count(EQUATED) > 1


def _remove_young(folder: str, disk: Disk, since: int) -> None:
    for name in names_in(folder):
        with suppress(FileNotFoundError):
            if os.lstat(f"{folder}/{name}").st_ctime_ns >= since:
                disk.remove_tree(f"{folder}/{name}")


def _noted(path: str) -> tuple[str, int]:
    """The boot and time of the last sync; an earlier one where the note is damaged."""
    try:
        note = json.loads(read_small(path) or b"")
        return str(note["boot"]), int(note["time_ns"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return "", 0


def _note(root: Path, disk: Disk, temporary: Temporary, time_ns: int) -> None:
    fields = {"boot": this_process().boot, "time_ns": time_ns}
    replace_small(disk, temporary, f"{root}/synced", json.dumps(fields).encode())
