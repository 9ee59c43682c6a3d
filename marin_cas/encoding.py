"""Deterministic CBOR (RFC 8949 §4.2.1) with exact types: the pre-image of every key and record.

One value has one encoding: integers and lengths in their shortest form, floats in the shortest of 16, 32 and 64
bits that keeps them, map keys text and sorted by their encoded bytes. bool, int, float, text, bytes, list and map
are never confused. `-0.0` folds to `0.0`; NaN and infinities are refused; strings are kept as they are.
Integers beyond 64 bits are bignums (tags 2 and 3, shortest form).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence

type Value = bool | int | float | str | bytes | Sequence[Value] | Mapping[str, Value] | None

_MAX_DEPTH = 200


class EncodingError(ValueError):
    """A value that has no encoding, or bytes that are not one; `path` says where in the value."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path or 'value'}: {message}")
        self.message, self.path = message, path


def encode(value: Value) -> bytes:
    """The one encoding of `value`. Raises EncodingError naming the path of what cannot be encoded."""
    out = bytearray()
    _encode(value, out, "", 0)
    return bytes(out)


def head(major: int, argument: int) -> bytes:
    """What opens an item of that CBOR type: `argument` (0 to 2^64 - 1) is its value, or its length."""
    major <<= 5
    if argument < 24:
        return bytes((major | argument,))
    if argument < 1 << 8:
        return bytes((major | 24, argument))
    if argument < 1 << 16:
        return bytes((major | 25,)) + argument.to_bytes(2)
    if argument < 1 << 32:
        return bytes((major | 26,)) + argument.to_bytes(4)
    return bytes((major | 27,)) + argument.to_bytes(8)


def _encode(value: Value, out: bytearray, path: str, depth: int) -> None:
    # Exact types: a bool is an int to isinstance, and a str subclass may lie about its text.
    kind = type(value)
    if depth > _MAX_DEPTH:
        raise EncodingError(f"nested deeper than {_MAX_DEPTH}", path)
    if value is None:
        out.append(0xF6)
    elif kind is bool:
        out.append(0xF5 if value else 0xF4)
    elif kind is int:
        _encode_int(value, out)  # type: ignore[arg-type]
    elif kind is float:
        _encode_float(value, out, path)  # type: ignore[arg-type]
    elif kind is str:
        try:
            raw = value.encode("utf-8")  # type: ignore[union-attr]
        except UnicodeEncodeError as error:
            raise EncodingError(f"text with a lone surrogate ({error.reason})", path) from None
        out += head(3, len(raw))
        out += raw
    elif kind is bytes:
        out += head(2, len(value))  # type: ignore[arg-type]
        out += value  # type: ignore[operator]
    elif kind is list or kind is tuple:
        out += head(4, len(value))  # type: ignore[arg-type]
        for index, item in enumerate(value):  # type: ignore[arg-type]
            _encode(item, out, f"{path}[{index}]", depth + 1)
    elif kind is dict:
        _encode_map(value, out, path, depth)  # type: ignore[arg-type]
    else:
        raise EncodingError(f"a {kind.__name__} has no encoding", path)


def _encode_int(value: int, out: bytearray) -> None:
    major, argument = (0, value) if value >= 0 else (1, -1 - value)
    if argument < 1 << 64:
        out += head(major, argument)
        return
    raw = argument.to_bytes((argument.bit_length() + 7) // 8)
    out.append(0xC2 if major == 0 else 0xC3)
    out += head(2, len(raw))
    out += raw


def _encode_float(value: float, out: bytearray, path: str) -> None:
    if math.isnan(value) or math.isinf(value):
        raise EncodingError(f"`{value}` is not a finite number", path)
    value += 0.0  # folds -0.0
    for code, head in (("e", 0xF9), ("f", 0xFA)):
        try:
            packed = struct.pack(">" + code, value)
        except OverflowError:
            continue
        if struct.unpack(">" + code, packed)[0] == value:
            out.append(head)
            out += packed
            return
    out.append(0xFB)
    out += struct.pack(">d", value)


def _encode_map(value: dict[str, Value], out: bytearray, path: str, depth: int) -> None:
    entries: list[tuple[bytes, str, Value]] = []
    for key, item in value.items():
        if type(key) is not str:
            raise EncodingError(f"map key {key!r} is not text", path)
        raw = bytearray()
        _encode(key, raw, path, depth)
        entries.append((bytes(raw), key, item))
    entries.sort(key=lambda entry: entry[0])
    out += head(5, len(entries))
    for raw, key, item in entries:
        out += raw
        _encode(item, out, f"{path}.{key}" if path else key, depth + 1)


def decode(data: bytes) -> Value:
    """The value whose encoding is exactly `data`. Raises EncodingError for anything else, other spellings included.

    A second spelling of a value (a long head, unsorted keys) would give one record two digests, so each is refused
    where it stands.
    """
    value, end = _decode(data, 0, 0)
    if end != len(data):
        raise EncodingError(f"{len(data) - end} bytes follow the value")
    return value


_SPELLING = "not the deterministic encoding of its value"
_SIMPLE = {0xF4: False, 0xF5: True, 0xF6: None}
_FLOATS = {0xF9: struct.Struct(">e"), 0xFA: struct.Struct(">f"), 0xFB: struct.Struct(">d")}


def _decode(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    if depth > _MAX_DEPTH:
        raise EncodingError(f"nested deeper than {_MAX_DEPTH}")
    if at >= len(data):
        raise EncodingError("the bytes end inside a value")
    initial = data[at]
    major, argument, at = initial >> 5, initial & 31, at + 1
    if major == 7:
        return _decode_simple(data, initial, at)
    if argument > 23:
        argument, at = _long_argument(data, argument, at)
    if major == 0:
        return argument, at
    if major == 1:
        return -1 - argument, at
    if major < 4:
        end = at + argument
        if end > len(data):
            raise EncodingError("the bytes end inside a string")
        raw = data[at:end]
        if major == 2:
            return raw, end
        try:
            return raw.decode("utf-8"), end
        except UnicodeDecodeError:
            raise EncodingError("text that is not UTF-8") from None
    if major == 4:
        items: list[Value] = []
        for _ in range(argument):
            item, at = _decode(data, at, depth + 1)
            items.append(item)
        return items, at
    if major == 5:
        return _decode_map(data, argument, at, depth)
    return _decode_bignum(data, argument, at, depth)


def _long_argument(data: bytes, info: int, at: int) -> tuple[int, int]:
    if info > 27:
        raise EncodingError("indefinite length or reserved form")
    width = 1 << (info - 24)
    if at + width > len(data):
        raise EncodingError("the bytes end inside a value")
    argument = int.from_bytes(data[at : at + width])
    if argument < 24 or (width > 1 and argument >> (4 * width) == 0):
        raise EncodingError(_SPELLING)
    return argument, at + width


def _decode_map(data: bytes, count: int, at: int, depth: int) -> tuple[Value, int]:
    mapping: dict[str, Value] = {}
    previous = b""
    for _ in range(count):
        key, end = _decode(data, at, depth + 1)
        if type(key) is not str:
            raise EncodingError(f"map key {key!r} is not text")
        raw = data[at:end]
        if raw <= previous:
            raise EncodingError(_SPELLING)
        previous = raw
        mapping[key], at = _decode(data, end, depth + 1)
    return mapping, at


def _decode_bignum(data: bytes, tag: int, at: int, depth: int) -> tuple[Value, int]:
    if tag not in (2, 3):
        raise EncodingError(f"tag {tag} is not used here")
    raw, at = _decode(data, at, depth + 1)
    if type(raw) is not bytes or len(raw) <= 8 or not raw[0]:
        raise EncodingError(_SPELLING)
    number = int.from_bytes(raw)
    return (number if tag == 2 else -1 - number), at


def _decode_simple(data: bytes, initial: int, at: int) -> tuple[Value, int]:
    if initial in _SIMPLE:
        return _SIMPLE[initial], at
    form = _FLOATS.get(initial)
    if form is None:
        raise EncodingError(f"simple value 0x{initial:02x} is not used here")
    if at + form.size > len(data):
        raise EncodingError("the bytes end inside a value")
    (value,) = form.unpack_from(data, at)
    again = bytearray()
    _encode_float(value, again, "")
    if again != data[at - 1 : at + form.size]:
        raise EncodingError(_SPELLING)
    return value, at + form.size


def encode_record(header: str, value: Value) -> bytes:
    """A framed record: the line `header`, then the encoding. The header says what it is and its format number."""
    return header.encode("ascii") + b"\n" + encode(value)


def decode_record(header: str, data: bytes) -> Value:
    """The value of a record made with `header`. Raises EncodingError for another header or a wrong body."""
    prefix = header.encode("ascii") + b"\n"
    if not data.startswith(prefix):
        line = data[:40].split(b"\n")[0]
        raise EncodingError(f"not a `{header}` record: it begins with {line!r}")
    return decode(data[len(prefix) :])
