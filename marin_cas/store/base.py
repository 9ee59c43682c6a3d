"""What a store of blobs promises, and the error for a blob that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, runtime_checkable

from marin_cas.digest import Digest
from marin_cas.disk import StrPath
from marin_cas.errors import EXIT_INTEGRITY, IntegrityError, MarinError


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


def wrong_blob(digest: Digest, why: str) -> IntegrityError:
    """The error for bytes that are not what their digest says."""
    return IntegrityError(
        f"blob `{digest.short}` is damaged: {why}",
        hint="`marin cache verify` lists all such blobs; with `--repair` it removes them, to be built again",
    )


@runtime_checkable
class Store(Protocol):
    """Digest to bytes. Anything may run twice and from several threads and processes at once.

    A blob is either whole under its digest or absent: no failure at any point leaves part of one. Nothing here
    retries. Absence is a value (False, None); a store that cannot answer raises EnvironmentProblem; bytes that differ
    from their digest raise IntegrityError. A blob may vanish between two calls (another process may delete it), so
    what `contains` said is a hint and `read` or `path` decide.
    """

    def contains(self, digest: Digest) -> bool:
        """Whether a blob lies under the digest. Its bytes are not looked at."""
        ...

    def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        """Those of `digests` that are not contained, in one batch."""
        ...

    def read(self, digest: Digest) -> bytes | None:
        """The bytes, checked against the digest; None when absent. For records and other small blobs."""
        ...

    def path(self, digest: Digest, executable: bool = False) -> Path | None:
        """A read-only local file holding the blob, with the mode asked for; its size is checked, its bytes are not.

        None when the blob is absent, or when this store keeps no local files (then `read` is the way). The file
        belongs to the store: link or copy it, never write to it.
        """
        ...

    def put(self, data: bytes) -> Digest:
        """Keeps the bytes; that they are there already is fine."""
        ...

    def put_file(self, path: StrPath, *, move: bool, executable: bool = False) -> Digest:
        """Keeps a regular file's bytes and returns the digest of what is kept.

        With `move` the file is the store's from now on: nobody else may have it open, it is gone from `path` when
        this returns, and no byte is copied where a rename can do. Without, it may be changing meanwhile: then the
        digest is that of some bytes that were read, and the caller compares.
        """
        ...

    def delete(self, digest: Digest) -> None:
        """Forgets the blob; absent is fine."""
        ...
