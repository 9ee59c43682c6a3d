"""The documents of a corpus: JSON lines, found by a pattern, read in byte order of their paths.

Whatever is wrong with one is a ToolError that names the file and the line.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from marin_cas.errors import did_you_mean
from marin_cas.worker.context import ToolError

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """`name` is its path inside the input, by which it is shown and sorted."""

    name: str
    path: Path


def find_files(root: Path, pattern: str) -> list[DocumentFile]:
    """The files below `root` (or `root` itself, when it is a file) that match. ToolError when none does."""
    if root.is_file():
        return [DocumentFile(root.name, root)]
    names = sorted((os.path.relpath(path, root) for path in _walk(root)), key=os.fsencode)
    matches = pattern_to_regex(pattern).fullmatch
    found = [DocumentFile(name, root / name) for name in names if matches(name)]
    if not found:
        shown = ", ".join(f"`{name}`" for name in names[:5]) + (", ..." if len(names) > 5 else "")
        raise ToolError(
            f"no file matches `{pattern}`",
            hint=did_you_mean(pattern, names) or (f"there are {shown}" if names else "the input holds no files at all"),
        )
    for file in found:
        if not file.name.endswith(SUFFIXES):
            raise ToolError(
                f"`{file.name}` is not a kind of document file that is read",
                hint=f"files end in {', '.join(SUFFIXES)}; narrow the pattern, or convert it with a py_action",
            )
    return found


def _walk(root: Path) -> Iterator[Path]:
    for base, _, files in os.walk(root):
        for name in files:
            yield Path(base, name)


def pattern_to_regex(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay within a path component, `**` spans any number of them, as in `glob()` of a BUILD file."""
    parts: list[str] = []
    components = pattern.split("/")
    for index, component in enumerate(components):
        last = index == len(components) - 1
        if component == "**":
            parts.append(".*" if last else "(?:[^/]+/)*")
            continue
        body = "".join("[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char) for char in component)
        parts.append(body if last else body + "/")
    return re.compile("".join(parts), re.DOTALL)


def read_texts(file: DocumentFile, text_key: str, limit: int | None = None) -> Iterator[str]:
    """The texts of a file's documents in order, at most `limit`. Blank lines are passed over; no text is an error."""
    count = 0
    for number, line in _lines(file):
        if not line.strip():
            continue
        yield _text(file, number, line, text_key)
        count += 1
        if count == limit:
            return
    if not count:
        raise ToolError(f"`{file.name}` is empty", where=file.name, hint="a document file holds at least one document")


def _lines(file: DocumentFile) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with open(file.path, "rb") as raw:
            stream: Iterable[bytes] = raw
            if file.name.endswith(".gz"):
                stream = gzip.GzipFile(fileobj=raw)
            elif file.name.endswith(".zst"):
                stream = _zst_lines(raw)
            for number, line in enumerate(stream, 1):
                yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise ToolError(
            f"not a complete compressed file: {error}",
            where=f"{file.name}:{number + 1}",
            hint="its suffix says how it is compressed; was it cut off?",
        ) from None
    except OSError as error:
        raise ToolError(f"cannot read `{file.name}`: {error.strerror or error}", where=file.name) from None


def _zst_lines(raw: IO[bytes]) -> Iterator[bytes]:
    # Frame by frame and not by zstandard's own reader, which takes a file that was cut off for a shorter one.
    frame, rest = zstandard.ZstdDecompressor().decompressobj(), b""
    begun = False
    while chunk := raw.read(1 << 20):
        while chunk:
            begun = True
            rest += frame.decompress(chunk)
            chunk = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame, begun = zstandard.ZstdDecompressor().decompressobj(), False
        *lines, rest = rest.split(b"\n")
        yield from lines
    if begun:
        raise EOFError("its last frame has no end")
    if rest:
        yield rest


def _text(file: DocumentFile, number: int, line: bytes, text_key: str) -> str:
    where = f"{file.name}:{number}"
    try:
        document = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ToolError(
            f"not UTF-8: byte {error.start + 1} of the line is 0x{line[error.start]:02x}", where=where
        ) from None
    except (json.JSONDecodeError, RecursionError) as error:
        detail = (
            f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deep"
        )
        raise ToolError(f"not JSON: {detail}", where=where, hint="a document file has one JSON object a line") from None
    if not isinstance(document, dict):
        raise ToolError(f"not a JSON object but {_kind(document)}", where=where)
    if text_key not in document:
        raise ToolError(
            f"a document without the text key `{text_key}`",
            where=where,
            hint=did_you_mean(text_key, document) or f"it has {', '.join(f'`{key}`' for key in list(document)[:8])}",
        )
    text = document[text_key]
    if not isinstance(text, str):
        raise ToolError(f"`{text_key}` is not text but {_kind(text)}", where=where)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"half a surrogate pair in `{text_key}`, at character {error.start + 1}", where=where) from None
    return text


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
