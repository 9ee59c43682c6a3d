from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.label import Label, parse_label

part = st.from_regex(r"[a-z0-9_.-]{1,8}", fullmatch=True).filter(lambda p: p not in (".", ".."))
path = st.lists(part, min_size=1, max_size=3).map("/".join)


@pytest.mark.parametrize(
    ("text", "package", "expected"),
    [
        ("//exp:tiny", "", "//exp:tiny"),
        (":tiny", "exp", "//exp:tiny"),
        ("tiny", "exp", "//exp:tiny"),
        ("a/b.txt", "exp", "//exp:a/b.txt"),
        ("//exp", "other", "//exp:exp"),
        ("//a/b", "", "//a/b:b"),
        ("//:demo", "exp", "//:demo"),
        ("@marin//rules:data.bzl", "exp", "@marin//rules:data.bzl"),
    ],
)
def test_labels_are_read_as_bazel_reads_them(text, package, expected):
    assert str(parse_label(text, package)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "//",
        "//exp:",
        "///exp:a",
        "//exp//b:a",
        "//../x:a",
        "//exp:../a",
        "exp:a",
        "@:a",
        "@Marin//a:b",
        "//a:b:c",
        "//a:b\n",
        "//a:/b",
    ],
)
def test_what_is_not_a_label_is_refused(text):
    with pytest.raises(ValueError, match="is not a label"):
        parse_label(text)


@pytest.mark.parametrize("name", ["données.txt", "日本/語.txt", "it's #1.txt", "a\u0301"])
def test_files_of_any_language_have_labels(name):
    assert parse_label(f"//été:{name}") == Label("été", name)


@pytest.mark.parametrize("name", ["a\u200bb", "a\u202eb", "a\x85b", "a\udcffb", "a\u2028b", "a\u00a0b"])
def test_what_cannot_be_seen_is_in_no_label(name):
    with pytest.raises(ValueError, match="has a character that labels may not have"):
        parse_label(f"//exp:{name}")


@given(path, path)
def test_text_round_trips(package, name):
    label = Label(package, name)
    assert parse_label(str(label)) == label
