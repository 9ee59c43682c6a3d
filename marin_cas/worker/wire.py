"""The messages between driver, supervisor and tool: JSON, one a line, on sockets and pipes."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

TERMINATE, KILL = b"t", b"k"
_LINE_LIMIT = 1 << 20


def send(sock: socket.socket, message: dict[str, Any]) -> None:
    sock.sendall(json.dumps(message).encode() + b"\n")


def read_line(sock: socket.socket) -> tuple[bytes, bytes]:
    """The first line, and what came after it in the same breath; b"" when the peer closed before its end."""
    data = bytearray()
    while b"\n" not in data:
        more = sock.recv(1 << 16)
        if not more:
            return b"", b""
        data += more
    line, _, rest = bytes(data).partition(b"\n")
    return line, rest


class Lines:
    """Cuts a stream into lines; one that is longer than the limit is dropped whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._skip = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._skip:
                self._skip = False
            elif line:
                yield line
        self._rest = rest
        if len(rest) > _LINE_LIMIT:
            self._rest, self._skip = b"", True


def read_some(fd: int) -> bytes | None:
    """What a non-blocking descriptor has: None when nothing now, b"" at its end."""
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return None


def open_log(path: str) -> int:
    """A descriptor at the end of an action's log, for its user's eyes."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
