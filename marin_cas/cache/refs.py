"""Weak refs: the fingerprint that `name@version` last meant in this cache. A local build moves them freely."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from marin_cas.cache.small import file_name, read_small, replace_small
from marin_cas.disk import DISK, Disk, StrPath
from marin_cas.store.temporary import Temporary


@dataclass(frozen=True, slots=True)
class Ref:
    """`name` is `name@version`; `label` is the target that declares it. What is `published` is kept."""

    name: str
    fingerprint: bytes
    label: str = ""
    published: bool = False


class Refs:
    """One small file a ref."""

    def __init__(self, root: StrPath, temporary: Temporary, disk: Disk = DISK) -> None:
        self._root = os.fspath(root)
        self._temporary = temporary
        self._disk = disk

    def get(self, name: str) -> bytes | None:
        """The fingerprint, None when there is no such ref."""
        ref = self.ref(name)
        return None if ref is None else ref.fingerprint

    def ref(self, name: str) -> Ref | None:
        """None when there is no such ref, or its file is damaged: a weak ref is made again by the next build."""
        ref = _parse(read_small(self._path(name)))
        return ref if ref is not None and ref.name == name else None

    def put(self, name: str, fingerprint: bytes, label: str = "") -> None:
        fields = {"name": name, "fingerprint": fingerprint.hex(), "label": label}
        replace_small(self._disk, self._temporary, self._path(name), f"{json.dumps(fields)}\n".encode())

    def all(self) -> Iterator[Ref]:
        """Every ref, in the order of their file names."""
        try:
            names = sorted(os.listdir(self._root))
        except FileNotFoundError:
            return
        for name in names:
            ref = _parse(read_small(f"{self._root}/{name}"))
            if ref is not None:
                yield ref

    def _path(self, name: str) -> str:
        return f"{self._root}/{file_name(name)}"


def _parse(data: bytes | None) -> Ref | None:
    if data is None:
        return None
    try:
        fields = json.loads(data)
        published = fields.get("published") is True
        return Ref(str(fields["name"]), bytes.fromhex(fields["fingerprint"]), str(fields["label"]), published)
    except (ValueError, TypeError, KeyError):
        return None
