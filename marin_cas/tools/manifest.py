"""What lies under a prefix as one digest: names, sizes and contents, whatever the store that holds them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from marin_cas.digest import Digest
from marin_cas.encoding import encode_record

MANIFEST_HEADER = "marin-cas manifest 1"
_FORM = re.compile(r"([0-9a-f]{64}-\d+), (\d+) files, (\d+) bytes")


@dataclass(frozen=True, slots=True)
class Manifest:
    """`digest` is that of the record; `files` and `bytes` are counts, for people and for a first look."""

    digest: Digest
    files: int
    bytes: int

    @classmethod
    def of(cls, contents: Mapping[str, Digest]) -> Manifest:
        """Of name to content: the record is a list of `[name, digest]`, sorted by the bytes of the names."""
        rows = [[name, contents[name].to_record()] for name in sorted(contents, key=os.fsencode)]
        record = encode_record(MANIFEST_HEADER, rows)
        return cls(Digest.of(record), len(rows), sum(digest.size for digest in contents.values()))

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """What `marin.lock` says; ValueError for anything else."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"`{text}` is not what a lock says of a prefix")
        return cls(Digest.parse(match[1]), int(match[2]), int(match[3]))

    def __str__(self) -> str:
        return f"{self.digest}, {self.files} files, {self.bytes} bytes"
