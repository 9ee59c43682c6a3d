"""Secrets never reach a log, a message or an event: their values are replaced on the way, in a stream too."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

MASK = b"***"
# Shorter values ("1", "true", "user") stand in any text by chance.
SECRET_MIN = 6


def spellings(values: Iterable[str]) -> tuple[bytes, ...]:
    """Each secret as it is, and as JSON, Python's repr and URLs write it; the longest first."""
    found: set[bytes] = set()
    for value in values:
        if len(value) >= SECRET_MIN:
            raw = value.encode("utf-8", "surrogateescape")
            written = [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]
            # Which quotes repr escapes depends on the others around: once as it likes, once with `"` beside it.
            written += [repr(value)[1:-1], repr(value + '"')[1:-2], repr(raw)[2:-1], repr(raw + b'"')[2:-2]]
            written.append("".join(c if c.isascii() and (c.isalnum() or c in "-._~") else _percent(c) for c in value))
            found.update((raw, *(text.encode("utf-8", "surrogateescape") for text in written)))
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

    def value(self, value: Any) -> Any:
        """A decoded message with every text in it redacted: in its JSON the escapes of escapes could hide a secret."""
        if not self._secrets:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {self.text(name): self.value(each) for name, each in value.items()}
        return value
