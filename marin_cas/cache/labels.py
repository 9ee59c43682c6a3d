"""The history of labels: which keys a label led to, when and for whom. Only ever appended to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from marin_cas.cache.small import file_name, read_small
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problem


@dataclass(frozen=True, slots=True)
class Record:
    """`artifact` is `name@version`; `time` is in Unix seconds."""

    label: str
    artifact: str
    key: Digest
    fingerprint: bytes
    user: str
    host: str
    time: float


class Labels:
    """One file of JSON lines a label."""

    def __init__(self, root: StrPath, disk: Disk = DISK) -> None:
        self._root = os.fspath(root)
        self._disk = disk

    def append(
        self, label: str, artifact: str, key: Digest, fingerprint: bytes, user: str, host: str, time: float
    ) -> None:
        fields = {
            "label": label,
            "artifact": artifact,
            "key": str(key),
            "fingerprint": fingerprint.hex(),
            "user": user,
            "host": host,
            "time": time,
        }
        # It begins with a break too, so that a line cut short by a full disk spoils no other.
        line = f"\n{json.dumps(fields)}\n".encode()
        path = self._path(label)
        try:
            try:
                self._disk.append(path, line)
            except FileNotFoundError:
                self._disk.makedirs(self._root)
                self._disk.append(path, line)
        except OSError as error:
            raise disk_problem(error, path) from error

    def history(self, label: str) -> list[Record]:
        """All records of a label, the newest last. Lines that are damaged are left out."""
        data = read_small(self._path(label)) or b""
        records = [_parse(line) for line in data.splitlines() if line.strip()]
        return [record for record in records if record is not None and record.label == label]

    def latest(self, label: str) -> Record | None:
        history = self.history(label)
        return history[-1] if history else None

    def labels(self) -> Iterator[str]:
        """Every label that has a history, in the order of their file names."""
        try:
            names = sorted(os.listdir(self._root))
        except FileNotFoundError:
            return
        for name in names:
            data = read_small(f"{self._root}/{name}") or b""
            seen = dict.fromkeys(record.label for line in data.splitlines() if (record := _parse(line)))
            yield from seen

    def _path(self, label: str) -> str:
        return f"{self._root}/{file_name(label)}"


def _parse(line: bytes) -> Record | None:
    try:
        fields = json.loads(line)
        return Record(
            str(fields["label"]),
            str(fields["artifact"]),
            Digest.parse(fields["key"]),
            bytes.fromhex(fields["fingerprint"]),
            str(fields["user"]),
            str(fields["host"]),
            float(fields["time"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
