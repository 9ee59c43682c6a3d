"""Takes secrets out of folders that outlive an attempt: whatever holds one is removed as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from marin_cas.disk import DISK
from marin_cas.worker import scan


def forget(folders: Iterable[Path], secrets: Iterable[bytes]) -> list[Path]:
    """What was removed: every file, folder or link whose content or name holds one of `secrets`."""
    wanted = scan.needles((), "", secrets)
    removed: dict[Path, None] = {}
    for folder in folders:
        # A folder that is not there holds nothing, and what its owner cannot read no log of ours will show.
        with contextlib.suppress(OSError):
            for finding in scan.scan(folder, list(scan.files_below(folder)), wanted):
                removed[folder / finding.file] = None
                DISK.remove_tree(folder / finding.file)
    return list(removed)
