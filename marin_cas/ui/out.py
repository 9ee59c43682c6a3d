"""The two streams: data on stdout, everything for the eye on stderr. A reader that has gone away is no error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from marin_cas.errors import EnvironmentProblem

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Colours and cursor movements (CSI), titles and links (OSC).
_SEQUENCE = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\))")


def data(text: str) -> None:
    """A line (or lines) of data."""
    _write(sys.stdout, text + "\n")


def text(whole: str) -> None:
    """Data that has its own line ends."""
    _write(sys.stdout, whole)


def raw(blob: bytes) -> None:
    """Bytes of data, as they are."""
    with _writing(sys.stdout):
        sys.stdout.flush()
        sys.stdout.buffer.write(blob)
        sys.stdout.buffer.flush()


def note(text: str) -> None:
    """A line for people."""
    _write(sys.stderr, visible(text) + "\n")


def visible(text: str) -> str:
    """Text of a tool or a file, without what would move a terminal's cursor or change its colours."""
    if not _CONTROL.search(text):
        return text
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", _SEQUENCE.sub("", text))


def flush() -> None:
    """Sends what is buffered; at the end of the program, so that a late broken pipe is quiet too."""
    for stream in (sys.stderr, sys.stdout):
        with _writing(stream), suppress(ValueError):  # closed by whoever started us
            stream.flush()


def complete() -> None:
    """Whoever started us may have closed a standard stream: the next file to be opened would take its place."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - open as long as the program runs
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _write(stream: TextIO, text: str) -> None:
    with _writing(stream):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            # A terminal that is not UTF-8, or a name with bytes that are not: shown as well as it can be.
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


@contextmanager
def _writing(stream: TextIO) -> Iterator[None]:
    """A reader that went away is no error. A full disk is one for data; there is no other place for notes."""
    try:
        yield
    except BrokenPipeError:
        hush(stream)
    except OSError as error:
        hush(stream)
        if stream is sys.stdout:
            raise EnvironmentProblem(f"stdout cannot be written: {error.strerror or error}") from None


def hush(stream: TextIO) -> None:
    """Points the stream's descriptor at nothing: Python would complain once more when it flushes at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, stream.fileno())
    finally:
        os.close(devnull)
