"""What a store of blobs promises, and the error for a blob that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, runtime_checkable

from marin_cas.digest import Digest
from marin_cas.disk import StrPath
from marin_cas.errors import EXIT_INTEGRITY, EnvironmentProblem, IntegrityError, MarinError


class MissingBlob(MarinError):
    """Bytes were needed that the store does not have: for a planner a miss, never a reason to wait."""

    exit_code = EXIT_INTEGRITY

    def __init__(self, digest: Digest, wanted: str = "") -> None:
        whose = f" (of {wanted})" if wanted else ""
        super().__init__(
            f"blob `{digest.short}`{whose} is not in the store",
            hint="build it again with `marin build`",
        )
        self.digest = digest


class Unavailable(EnvironmentProblem):
    """The store cannot answer now and may in a moment: the one error after which asking again makes sense."""


def wrong_blob(digest: Digest, why: str) -> IntegrityError:
    """The error for bytes that are not what their digest says."""
    return IntegrityError(
        f"blob `{digest.short}` is damaged: {why}",
        hint="`marin cache verify` lists all such blobs; with `--repair` it removes them, to be built again",
    )


@runtime_checkable
class Store(Protocol):
    """Digest to bytes, for blobs that never change: what lies under a digest has that digest, or is damaged.

    - A blob is there whole, or absent. No failure at any point, a kill included, leaves part of one.
    - Every verb may run twice, and from several threads and processes at once; the outcome is that of some order.
    - Absence is a value: False or None. Presence is a hint: whoever deletes may be faster, so a blob that `contains`
      or `path` told of may be gone at the next call, and then counts as absent.
    - Bytes that are not their digest's raise IntegrityError, whichever verb meets them; they are never returned.
      Which verbs look at bytes is said at each.
    - A store that cannot answer raises EnvironmentProblem, one that may in a moment its subclass Unavailable. After
      either, what was asked for has happened whole or not at all, and asking again is right. A store that refuses (a
      write to one that is read-only) raises an EnvironmentProblem that is no Unavailable, and has done nothing.
    - No store retries by itself, waits for another, or warns: wrappers do.
    - Nothing else is raised, and nothing is remembered of an absence: what was absent is looked for again.
    """

    def contains(self, digest: Digest) -> bool:
        """Whether a blob lies under the digest. Its bytes are not looked at."""
        ...

    def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        """Those of `digests` that are not contained, in one batch."""
        ...

    def read(self, digest: Digest) -> bytes | None:
        """The bytes, checked; None when absent. For records and other small blobs: all are in memory."""
        ...

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        """A read-only local file holding the blob, with the mode asked for.

        None when the blob is absent, and also when this store keeps no local files: `fetch` serves both. Size and seal
        are checked, the bytes where these differ. The file is the store's: link or copy it at once, never write to it.
        """
        ...

    def fetch(self, digest: Digest, path: StrPath) -> bool:
        """Writes the blob, checked, to a new private file (mode 0644) at `path`, a piece at a time; False when absent.

        Whatever happens, `path` is whole when this returns True and does not exist otherwise. A file that is there
        already is refused, and left as it is.
        """
        ...

    def put(self, data: bytes) -> Digest:
        """Keeps the bytes; that they are there already is fine, and where damage shows they replace what is there."""
        ...

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        """Keeps a regular file's bytes, a piece at a time, and returns the digest of what is kept.

        With `move` the file is the store's from now on: nobody else may have it open, it is gone from `path` when
        this returns, and no byte is copied where a rename can do; after Unavailable it is still there. Without, it may
        be changing meanwhile: then the digest is that of some bytes that were read, and the caller compares.
        """
        ...

    def delete(self, digest: Digest) -> None:
        """Forgets the blob in the store that `put` puts it in, in both modes; absent is fine."""
        ...
