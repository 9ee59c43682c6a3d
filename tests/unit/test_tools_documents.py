"""Documents of a corpus: which files, in which order, and one clear message for whatever is wrong with one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.tools import documents
from marin_cas.tools.documents import DocumentFile, find_files, pattern_to_regex, read_pieces, read_texts
from marin_cas.worker.context import ToolError


def names(root: Path, pattern: str) -> list[str]:
    return [file.name for file in find_files(root, pattern)]


def touch(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"")


def texts(root: Path, content: bytes, name: str = "a.jsonl", key: str = "text", limit: int | None = None) -> list[str]:
    (root / name).write_bytes(content)
    return list(read_texts(DocumentFile(name, root / name), key, limit))


def test_files_come_in_byte_order_of_their_paths(tmp_path: Path) -> None:
    touch(tmp_path, "b.jsonl", "é.jsonl", "a/z.jsonl", "a.jsonl", "Z.jsonl", "a-b.jsonl", "note.txt")
    assert names(tmp_path, "**/*.jsonl") == ["Z.jsonl", "a-b.jsonl", "a.jsonl", "a/z.jsonl", "b.jsonl", "é.jsonl"]
    assert names(tmp_path, "*.jsonl") == ["Z.jsonl", "a-b.jsonl", "a.jsonl", "b.jsonl", "é.jsonl"]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.jsonl", "a.jsonl", True),
        ("*.jsonl", "d/a.jsonl", False),
        ("**/*.jsonl", "a.jsonl", True),
        ("**/*.jsonl", "d/e/a.jsonl", True),
        ("d/**", "d/e/a.jsonl", True),
        ("d/**", "dd/a.jsonl", False),
        ("**", "anything/at/all", True),
        ("a?.jsonl", "ab.jsonl", True),
        ("a?.jsonl", "a/.jsonl", False),
        ("a.jsonl", "axjsonl", False),
        ("a+.jsonl", "a+.jsonl", True),
    ],
)
def test_patterns(pattern: str, path: str, matches: bool) -> None:
    assert bool(pattern_to_regex(pattern).fullmatch(path)) is matches


def test_a_pattern_that_matches_nothing_says_what_is_there(tmp_path: Path) -> None:
    touch(tmp_path, "train.jsonl")
    with pytest.raises(ToolError) as caught:
        names(tmp_path, "trian.jsonl")
    assert "`trian.jsonl`" in caught.value.message and "`train.jsonl`" in (caught.value.hint or "")


def test_a_kind_of_file_that_is_not_read_is_refused_by_name(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "b.csv")
    with pytest.raises(ToolError, match=r"`b\.csv`"):
        names(tmp_path, "*")


@pytest.mark.parametrize(
    ("content", "where", "message"),
    [
        (b"", "a.jsonl", "empty"),
        (b"\n \n", "a.jsonl", "empty"),
        (b'{"text": "x"}\n{"text": "\xff"}\n', "a.jsonl:2", "not UTF-8"),
        (b'{"text": "x"}\n\n{"text": }\n', "a.jsonl:3", "not JSON"),
        (b'{"text": "x"', "a.jsonl:1", "not JSON"),
        (b'["x"]\n', "a.jsonl:1", "not a JSON object but a list"),
        (b'{"txet": "x"}\n', "a.jsonl:1", "without the text key `text`"),
        (b'{"text": 3}\n', "a.jsonl:1", "not text but a number"),
        (b'{"text": null}\n', "a.jsonl:1", "not text but null"),
        (b'{"text": "\\ud800"}\n', "a.jsonl:1", "surrogate"),
        (b"[" * 100_000, "a.jsonl:1", "not JSON"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, content: bytes, where: str, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        texts(tmp_path, content)
    assert caught.value.where == where
    assert message in caught.value.message


def test_a_near_miss_of_the_text_key_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        texts(tmp_path, b'{"contents": "x"}\n', key="content")
    assert caught.value.hint == "did you mean `contents`?"


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_compressed_files_read_alike_and_a_cut_one_is_an_error(tmp_path: Path, suffix: str, compress) -> None:
    plain = b"".join(json.dumps({"text": f"document {n} " * 50}).encode() + b"\n" for n in range(2000))
    name = "a.jsonl" + suffix
    assert texts(tmp_path, compress(plain), name) == texts(tmp_path, plain)
    # Two frames one after the other are one file, for both.
    assert texts(tmp_path, compress(plain) + compress(plain), name) == texts(tmp_path, plain + plain)
    with pytest.raises(ToolError, match="not a complete compressed file") as caught:
        texts(tmp_path, compress(plain)[:-9], name)
    assert str(caught.value.where).startswith(name)
    with pytest.raises(ToolError, match="not a complete compressed file"):
        texts(tmp_path, plain, name)


def test_a_limit_is_by_file(tmp_path: Path) -> None:
    assert texts(tmp_path, b'{"text": "a"}\n\n{"text": "b"}\nnot json', limit=2) == ["a", "b"]


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_every_text_comes_back(tmp_path_factory: pytest.TempPathFactory, written: list[str]) -> None:
    root = tmp_path_factory.mktemp("d")
    for ascii_only in (True, False):
        lines = "".join(json.dumps({"id": 1, "text": t}, ensure_ascii=ascii_only) + "\n" for t in written)
        assert texts(root, lines.encode()) == written


def parquet(root: Path, name: str, **columns: object) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), root / name, row_group_size=100)
    return (root / name).read_bytes()


def test_parquet_gives_a_column_in_the_order_of_the_rows(tmp_path: Path) -> None:
    import pyarrow as pa

    words = [f"number {n} é" for n in range(777)]
    data = parquet(tmp_path, "x.parquet", id=list(range(777)), content=words)
    assert texts(tmp_path, data, "a.parquet", "content") == words
    assert texts(tmp_path, data, "a.parquet", "content", limit=300) == words[:300]
    coded = pa.array(words).dictionary_encode()
    assert texts(tmp_path, parquet(tmp_path, "x.parquet", content=coded), "a.parquet", "content") == words


@pytest.mark.parametrize(
    ("columns", "where", "message", "hint"),
    [
        ({"contents": ["a"]}, "a.parquet", "no column `content`", "did you mean `contents`?"),
        ({"content": [1]}, "a.parquet", "is not text but int64", None),
        ({"content": ["a"] * 300 + [None]}, "a.parquet:301", "`content` is not text but null", None),
        ({"content": []}, "a.parquet", "is not text but null", None),
    ],
)
def test_a_wrong_parquet_file_is_named(
    tmp_path: Path, columns: dict, where: str, message: str, hint: str | None
) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        texts(tmp_path, parquet(tmp_path, "x.parquet", **columns), "a.parquet", "content")
    assert (caught.value.where, caught.value.hint) == (where, hint)


def test_what_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    whole = parquet(tmp_path, "x.parquet", content=["a b c"] * 1000)
    for data in (b"not at all", whole[:-100], b""):
        with pytest.raises(ToolError, match="not a Parquet file that can be read"):
            texts(tmp_path, data, "a.parquet", "content")


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_each_line_of_a_text_file_is_a_document(tmp_path: Path, name: str) -> None:
    content = "one\r\n\n  two {\n \nthree é".encode()
    packed = {"gz": gzip.compress, "st": zstandard.ZstdCompressor().compress}.get(name[-2:], lambda data: data)(content)
    assert texts(tmp_path, packed, name) == ["one", "  two {", "three é"]
    assert texts(tmp_path, packed, name, limit=2) == ["one", "  two {"]
    with pytest.raises(ToolError, match="not UTF-8") as caught:
        texts(tmp_path, b"a\n\n\xff\n", "b.txt")
    assert caught.value.where == "b.txt:3"


def test_json_files_hold_lines_too(tmp_path: Path) -> None:
    assert texts(tmp_path, gzip.compress(b'{"text": "a"}\n'), "c4-train.json.gz") == ["a"]


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_json_files_may_be_an_array(tmp_path: Path, packed: str) -> None:
    content = b'\n [{"text": "a"},\n\n "b\\n ]", {"text": ""}]\n'
    data = gzip.compress(content) if packed else content
    assert texts(tmp_path, data, f"a.json{packed}") == ["a", "b\n ]", ""]
    assert texts(tmp_path, data, f"a.json{packed}", limit=2) == ["a", "b\n ]"]


@pytest.mark.parametrize(
    ("content", "where", "message"),
    [
        (b"[]", "a.json", "empty"),
        (b'["x"', "a.json", "not JSON"),
        (b'["x"]\n["y"]', "a.json", "not JSON"),
        (b'["x", 3]', "a.json:2", "not a JSON object but a number"),
        (b'[{"txet": "x"}]', "a.json:1", "without the text key `text`"),
        (b'["x", "\\ud800"]', "a.json:2", "surrogate"),
        (b'["\xff"]', "a.json", "not UTF-8"),
    ],
)
def test_what_is_wrong_with_an_array_is_said(tmp_path: Path, content: bytes, where: str, message: str) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        texts(tmp_path, content, "a.json")
    assert caught.value.where == where


@given(st.lists(st.text(alphabet="ab\n é", max_size=40), min_size=1, max_size=30), st.integers(1, 9))
def test_pieces_keep_the_order_and_the_lines(tmp_path_factory, written: list[str], size: int) -> None:
    root = tmp_path_factory.mktemp("pieces")
    lines = [json.dumps({"text": text}) for text in written]
    (root / "a.jsonl").write_text("\n\n".join(lines))
    file = DocumentFile("a.jsonl", root / "a.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_PIECE_DOCUMENTS", size)
        pieces = list(read_pieces(file, "text"))
    assert [text for piece in pieces for text in piece.texts("text")] == written
    assert [number for piece in pieces for number in piece.numbers] == [1 + 2 * n for n in range(len(lines))]
    assert all(len(piece.raw) <= size for piece in pieces)
