"""The two streams: data on stdout, everything for the eye on stderr. A reader that has gone away is no error."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def data(text: str) -> None:
    """A line (or lines) of data."""
    _write(sys.stdout, text + "\n")


def text(whole: str) -> None:
    """Data that has its own line ends."""
    _write(sys.stdout, whole)


def raw(blob: bytes) -> None:
    """Bytes of data, as they are."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(blob)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        hush(sys.stdout)


def note(text: str) -> None:
    """A line for people."""
    _write(sys.stderr, text + "\n")


def flush() -> None:
    """Sends what is buffered; at the end of the program, so that a late broken pipe is quiet too."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            hush(stream)
        except ValueError:  # closed by whoever started us
            pass


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except BrokenPipeError:
        hush(stream)
    except UnicodeEncodeError:
        # A terminal that is not UTF-8, or a name with bytes that are not: shown as well as it can be.
        stream.write(text.encode(stream.encoding or "ascii", "backslashreplace").decode(stream.encoding or "ascii"))


def hush(stream: TextIO) -> None:
    """Points the stream's descriptor at nothing: Python would complain once more when it flushes at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, stream.fileno())
    finally:
        os.close(devnull)
