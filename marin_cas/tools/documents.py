"""The documents of a corpus, found by a pattern, read in byte order of their paths: JSON lines, text lines, Parquet.

Files are read by one process in pieces that any process can parse, so that many may share the work and the order stays.
Whatever is wrong with a document is a ToolError that names the file and the line (in Parquet the row, in a JSON array
the item).
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from marin_cas.errors import did_you_mean
from marin_cas.worker.context import ToolError

_PACKED = ("", ".gz", ".zst")
JSON_LINES, TEXT_LINES, PARQUET, JSON_ARRAY = "JSON lines", "text lines", "Parquet", "a JSON array"
KINDS = {
    JSON_LINES: tuple(f"{form}{packed}" for form in (".jsonl", ".json") for packed in _PACKED),
    TEXT_LINES: tuple(f".txt{packed}" for packed in _PACKED),
    PARQUET: (".parquet",),
}
SUFFIXES = tuple(suffix for suffixes in KINDS.values() for suffix in suffixes)
# A piece is what one process gets at once: enough to be worth the way, little enough to be many and to lie in memory.
_PIECE_DOCUMENTS, _PIECE_BYTES = 256, 1 << 20


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """`name` is its path inside the input, by which it is shown and sorted."""

    name: str
    path: Path

    @property
    def kind(self) -> str:
        return next((kind for kind, suffixes in KINDS.items() if self.name.endswith(suffixes)), JSON_LINES)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some documents of a file, not yet parsed: `raw` are lines, or texts already; `numbers` are their places."""

    file: str
    kind: str
    numbers: Sequence[int]
    raw: Sequence[bytes] | Sequence[str]

    def texts(self, text_key: str) -> list[str]:
        """The documents' texts. ToolError for the first that is none."""
        parse = {JSON_LINES: _json_text, TEXT_LINES: _plain_text, PARQUET: _cell, JSON_ARRAY: _cell}[self.kind]
        return [
            parse(f"{self.file}:{number}", raw, text_key) for number, raw in zip(self.numbers, self.raw, strict=True)
        ]


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
    for piece in read_pieces(file, text_key, limit):
        yield from piece.texts(text_key)


def read_pieces(file: DocumentFile, text_key: str, limit: int | None = None) -> Iterator[Piece]:
    """The documents of a file in order, at most `limit`, some at a time. A file without any is an error."""
    kind, raw = _documents(file, text_key)
    count, size, numbers, rows = 0, 0, [], []
    for number, row in raw:
        numbers.append(number)
        rows.append(row)
        size += len(row) if row else 0
        count += 1
        if count == limit:
            break
        if len(rows) == _PIECE_DOCUMENTS or size >= _PIECE_BYTES:
            yield Piece(file.name, kind, numbers, rows)
            size, numbers, rows = 0, [], []
    if rows:
        yield Piece(file.name, kind, numbers, rows)
    if not count:
        raise ToolError(f"`{file.name}` is empty", where=file.name, hint="a document file holds at least one document")


def _documents(file: DocumentFile, text_key: str) -> tuple[str, Iterator[tuple[int, Any]]]:
    """The kind of the file as its content has it, and what it holds with the numbers of the places."""
    if file.kind == PARQUET:
        return PARQUET, _rows(file, text_key)
    lines = _lines(file)
    if file.kind == JSON_LINES and ".jsonl" not in file.name:
        first = list(itertools.islice(lines, 1))
        lines = itertools.chain(first, lines)
        if first and first[0][1].lstrip().startswith(b"["):
            return JSON_ARRAY, _items(file, text_key, b"".join(line for _, line in lines))
    return file.kind, lines


def _items(file: DocumentFile, text_key: str, content: bytes) -> Iterator[tuple[int, str]]:
    """The texts of an array that is the whole file, with their numbers from 1. It is in memory as a whole."""
    items = _parsed(file.name, content, "an array is the whole of its file")
    for number, item in enumerate(items, 1):
        where = f"{file.name}:{number}"
        yield number, _writable(where, item, "the item") if isinstance(item, str) else _text(where, item, text_key)


def _lines(file: DocumentFile) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    number = 0
    try:
        with open(file.path, "rb") as raw:
            stream: Iterable[bytes] = raw
            if file.name.endswith(".gz"):
                stream = gzip.GzipFile(fileobj=raw)
            elif file.name.endswith(".zst"):
                stream = _zst_lines(raw)
            for number, line in enumerate(stream, 1):
                if line.strip():
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
    while chunk := raw.read(1 << 18):
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


def _rows(file: DocumentFile, text_key: str) -> Iterator[tuple[int, str]]:
    """The cells of the text's column, with the numbers of their rows from 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(file.path) as parquet:
            schema = parquet.schema_arrow
            if text_key not in schema.names:
                raise ToolError(
                    f"no column `{text_key}`",
                    where=file.name,
                    hint=did_you_mean(text_key, schema.names)
                    or f"it has {', '.join(f'`{name}`' for name in schema.names[:8])}",
                )
            kind = schema.field(text_key).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
                raise ToolError(f"the column `{text_key}` is not text but {kind}", where=file.name)
            # One thread: the work is spread over processes, and this one only feeds them.
            for batch in parquet.iter_batches(_PIECE_DOCUMENTS, columns=[text_key], use_threads=False):
                for cell in batch.column(0).to_pylist():
                    number += 1
                    yield number, cell
    except pa.ArrowException as error:
        raise ToolError(f"not a Parquet file that can be read: {error}", where=f"{file.name}:{number + 1}") from None
    except OSError as error:
        raise ToolError(f"cannot read `{file.name}`: {error.strerror or error}", where=file.name) from None


def _decoded(where: str, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(
            f"not UTF-8: byte {error.start + 1} of the line is 0x{line[error.start]:02x}", where=where
        ) from None


def _plain_text(where: str, line: bytes, text_key: str) -> str:
    return _decoded(where, line).rstrip("\r\n")


def _cell(where: str, cell: str | None, text_key: str) -> str:
    if cell is None:
        raise ToolError(f"`{text_key}` is not text but null", where=where)
    return cell


def _json_text(where: str, line: bytes, text_key: str) -> str:
    return _text(where, _parsed(where, line, "a document file has one JSON object a line"), text_key)


def _parsed(where: str, text: bytes, hint: str) -> Any:
    try:
        return json.loads(_decoded(where, text))
    except (json.JSONDecodeError, RecursionError) as error:
        detail = (
            f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deep"
        )
        raise ToolError(f"not JSON: {detail}", where=where, hint=hint) from None


def _text(where: str, document: object, text_key: str) -> str:
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
    return _writable(where, text, f"`{text_key}`")


def _writable(where: str, text: str, what: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"half a surrogate pair in {what}, at character {error.start + 1}", where=where) from None
    return text


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
