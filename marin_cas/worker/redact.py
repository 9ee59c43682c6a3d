"""Secrets never reach a log, a message or an event: their values are replaced on the way, in a stream too."""

from __future__ import annotations

import json
from collections.abc import Iterable

MASK = b"***"
# Shorter values ("1", "true", "user") stand in any text by chance.
SECRET_MIN = 6


def spellings(values: Iterable[str]) -> tuple[bytes, ...]:
    """Each secret as it is, and as JSON and URLs write it; the longest first."""
    found: set[bytes] = set()
    for value in values:
        if len(value) >= SECRET_MIN:
            found.add(value.encode("utf-8", "surrogateescape"))
            found.add(json.dumps(value)[1:-1].encode())
            found.add(
                "".join(c if c.isascii() and (c.isalnum() or c in "-._~") else _percent(c) for c in value).encode()
            )
    return tuple(sorted(found, key=lambda spelling: (-len(spelling), spelling)))


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "replace"))


class Redactor:
    """Feeds a stream through: what might be the beginning of a secret is held back until it is not."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self._secrets = secrets
        self._longest = max(map(len, secrets), default=0)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        data = self.whole(self._held + data)
        self._held = b""
        for length in range(min(self._longest - 1, len(data)), 0, -1):
            tail = data[-length:]
            if any(secret.startswith(tail) for secret in self._secrets):
                self._held = tail
                return data[:-length]
        return data

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held

    def whole(self, data: bytes) -> bytes:
        """`data` on its own, all of it."""
        for secret in self._secrets:
            data = data.replace(secret, MASK)
        return data

    def text(self, text: str) -> str:
        return self.whole(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace") if self._secrets else text
