"""Another's store: whatever it hands out is hashed before anyone sees it, files too."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from marin_cas.digest import Digest, hash_file
from marin_cas.disk import StrPath, disk_problems
from marin_cas.store.base import wrong_blob
from marin_cas.store.wrapper import Wrapper


class VerifyingStore(Wrapper):
    """Wrong bytes raise IntegrityError. A file that `path` gave is the other store's still, and may be changed later:
    what must stay right is fetched."""

    def read(self, digest: Digest) -> bytes | None:
        data = super().read(digest)
        if data is not None and Digest.of(data) != digest:
            raise wrong_blob(digest, "the store gave other bytes")
        return data

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        found = super().path(digest, executable)
        return found if found is not None and _is(found, digest) else None

    def fetch(self, digest: Digest, path: StrPath) -> bool:
        if not super().fetch(digest, path):
            return False
        try:
            return _is(path, digest)
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise


def _is(path: StrPath, digest: Digest) -> bool:
    """True; False when the file has vanished. Raises IntegrityError when its bytes are others."""
    with disk_problems(path):
        try:
            # Not mapped: a file that its owner truncates meanwhile would end the process.
            found = hash_file(path)
        except FileNotFoundError:
            return False
    if found != digest:
        raise wrong_blob(digest, f"the store gave the bytes of `{found.short}`")
    return True
