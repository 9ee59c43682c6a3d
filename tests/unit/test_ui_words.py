"""Words, tables and recorded values as people read them."""

from __future__ import annotations

import json

import pytest

from marin_cas.digest import Digest
from marin_cas.ui import values, words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"),
     (3600, "1 h 00 min"), (7619, "2 h 07 min"), (7199, "2 h 00 min")],
)  # fmt: skip
def test_seconds(value: float, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"),
     ((1 << 20) - 1, "1.0 MiB"),(10 << 20, "10 MiB"), (1 << 60, "1024 PiB")],
)  # fmt: skip
def test_size(value: int, text: str) -> None:
    assert words.size(value) == text


def test_count_and_ago() -> None:
    assert [words.count(n, "action") for n in (0, 1, 2000)] == ["0 actions", "1 action", "2,000 actions"]
    assert [words.ago(1e6 - passed, 1e6) for passed in (-5, 59, 61, 7300, 3 * 86400)] == [
        "0 s ago",
        "59 s ago",
        "1 min ago",
        "2 h ago",
        "3 days ago",
    ]


def test_table_aligns_all_but_the_last_column() -> None:
    assert words.table([["a", "bb", ""], ["ccc", "d", "long text"]]) == ["a    bb", "ccc  d   long text"]
    assert words.table([]) == []


def test_values_keep_types_apart() -> None:
    value = {"a": 1, "b": 1.0, "c": "1", "d": True, "e": None, "f": b"\x01", "g": Digest(b"\0" * 32, 3)}
    assert list(values.lines(value)) == [
        "a  1",
        "b  1.0",
        'c  "1"',
        "d  true",
        "e  null",
        'f  "01"',
        f'g  "{"00" * 32}-3"',
    ]
    assert json.loads(values.dumps(value))["f"] == "01"


def test_nested_values_are_indented_and_short_lists_stay_on_one_line() -> None:
    value = {"model": {"type": "llama", "layers": [1, 2]}, "parts": [{"name": "x", "weight": 0.5}, "y"], "none": {}}
    assert list(values.lines(value)) == [
        "model:",
        '  type    "llama"',
        "  layers  [1, 2]",
        "parts:",
        '  - name    "x"',
        "    weight  0.5",
        '  - "y"',
        "none  {}",
    ]
