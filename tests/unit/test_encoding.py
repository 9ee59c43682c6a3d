"""The encoder against cbor2, an independent implementation of the same RFC."""

from __future__ import annotations

import math

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.encoding import EncodingError, decode, decode_record, encode, encode_record

finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | finite | st.text() | st.binary()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5), max_leaves=30
)


def _fold(value):
    """What the oracle has to be told: -0.0 is 0.0 here."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list):
        return [_fold(item) for item in value]
    if isinstance(value, dict):
        return {key: _fold(item) for key, item in value.items()}
    return value


def _typed(value):
    """A value that compares unequal where types differ (1, 1.0 and True are equal to Python)."""
    if isinstance(value, list | tuple):
        return ("list", tuple(_typed(item) for item in value))
    if isinstance(value, dict):
        return ("map", frozenset((key, _typed(item)) for key, item in value.items()))
    return (type(value).__name__, value)


@given(values)
def test_equals_the_oracles_canonical_encoding(value):
    assert encode(value) == cbor2.dumps(_fold(value), canonical=True)


@given(values)
def test_decodes_to_the_same_types(value):
    assert _typed(decode(encode(value))) == _typed(_fold(value))


@given(values, values)
def test_equal_encodings_mean_equal_values(left, right):
    assert (encode(left) == encode(right)) == (_typed(_fold(left)) == _typed(_fold(right)))


@given(st.dictionaries(st.text(), scalars, min_size=2), st.randoms(use_true_random=False))
def test_order_of_insertion_is_no_matter(mapping, random):
    items = list(mapping.items())
    random.shuffle(items)
    assert encode(dict(items)) == encode(mapping)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0),
        (1, True),
        (0, False),
        (0.0, False),
        (1, "1"),
        ("a", b"a"),
        (None, False),
        (None, ""),
        ([], {}),
        ([], None),
        ({"1": 1}, [["1", 1]]),
        (["ab", "c"], ["a", "bc"]),
        ([["a"], "b"], ["a", ["b"]]),
        ("1e-3", 1e-3),
        ("é", "e\u0301"),
    ],
)
def test_types_are_never_confused(left, right):
    assert encode(left) != encode(right)


@pytest.mark.parametrize(("left", "right"), [(1e-3, 0.001), (1.0e-3, 1e-3), (-0.0, 0.0), ((1, 2), [1, 2])])
def test_spellings_of_one_value_are_equal(left, right):
    assert encode(left) == encode(right)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, {"a": [math.nan]}])
def test_what_is_not_a_number_is_refused(value):
    with pytest.raises(EncodingError):
        encode(value)


@pytest.mark.parametrize("value", [{1: "a"}, {True: "a"}, {None: 1}, {b"a": 1}, {1, 2}, object(), print, "\ud800"])
def test_what_has_no_encoding_is_refused(value):
    with pytest.raises(EncodingError):
        encode(value)


def test_the_error_names_the_place():
    with pytest.raises(EncodingError, match=r"optimizer\.lr\[1\]: `nan` is not a finite number"):
        encode({"optimizer": {"lr": [1.0, math.nan]}})


def test_subclasses_are_refused():
    class Text(str):
        pass

    with pytest.raises(EncodingError):
        encode(Text("a"))


@given(st.binary(max_size=40))
def test_decode_takes_only_what_encode_makes(data):
    try:
        value = decode(data)
    except EncodingError:
        return
    assert encode(value) == data


@pytest.mark.parametrize(
    "data",
    [
        "1800",
        "1900ff",
        "a2616201616101",
        "a2616101616102",
        "9f01ff",
        "fb3ff0000000000000",
        "f97e00",
        "f98000",
        "c100",
        "6180",
    ],
)
def test_other_spellings_are_refused(data):
    with pytest.raises(EncodingError):
        decode(bytes.fromhex(data))


def test_depth_is_bounded():
    value: list = []
    for _ in range(1000):
        value = [value]
    with pytest.raises(EncodingError, match="nested deeper"):
        encode(value)
    with pytest.raises(EncodingError, match="nested deeper"):
        decode(b"\x81" * 1000 + b"\x80")


@given(values)
def test_records_are_framed(value):
    record = encode_record("marin-cas test 1", value)
    assert record.startswith(b"marin-cas test 1\n")
    assert _typed(decode_record("marin-cas test 1", record)) == _typed(_fold(value))
    with pytest.raises(EncodingError, match="not a `marin-cas test 2` record"):
        decode_record("marin-cas test 2", record)
