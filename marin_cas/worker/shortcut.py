"""Short names for long `TMPDIR`s: a socket's path has at most 107 bytes, and multiprocessing puts sockets there.

The name is a link in this user's own folder of the system's temporary ones, so the bytes stay on the cache's disk.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from marin_cas.store.temporary import Temporary

# 107 bytes, less what multiprocessing appends: `/pymp-abcdefgh/listener-abcdefgh`.
_LONGEST = 107 - 33
_SYSTEM = "/tmp"


def shorten(folder: Path) -> Path:
    """`folder`, or a link to it when its own path is too long; `folder` again where no link can be made."""
    if len(os.fsencode(folder)) <= _LONGEST:
        return folder
    own = Path(_SYSTEM, f"marin-{os.getuid()}")
    link = own / folder.name
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        found = own.lstat()
        # Somebody else's folder of that name could redirect our files.
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
            return folder
        Temporary(own).sweep()  # links of drivers that were killed
        link.symlink_to(folder)
    except OSError:
        return folder
    return link
