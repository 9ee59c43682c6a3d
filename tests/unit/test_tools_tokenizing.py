"""Trained tokenizers and token caches: usable by their libraries, and the same bytes each time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marin_cas.tools import documents as documents_module
from marin_cas.tools import tokenize, tokenizer_folder, trained_tokenizer
from marin_cas.tools.encoder import Encoded, Encoder
from marin_cas.worker.context import ToolContext, ToolError

WORDS = [
    *("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "naïve", "cafés", "serve", "東京"),
    *("tea", "and", "return", "None", "if", "x", "else", "y"),
]
TRAINING = {
    "glob": "*.jsonl",
    "text_key": "text",
    "min_frequency": 2,
    "eos": "<|end|>",
    "bos": "",
    "special_tokens": [],
}
TOKENIZING = {"glob": "*.jsonl", "text_key": "text", "split": "train", "sample_count": None}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("documents")
    for name, count in (("b.jsonl", 300), ("a.jsonl", 100), ("é.jsonl", 20)):
        chance = np.random.default_rng(count)
        texts = (" ".join(chance.choice(WORDS, chance.integers(3, 40))) for _ in range(count))
        (root / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return root


def run(tool, base: Path, params: dict, inputs: dict[str, Path], output: str) -> Path:
    out = base / output
    out.mkdir(parents=True)
    tool.run(ToolContext(params, {}, inputs, {output: out}, base))
    return out


def train(base: Path, documents: Path, **params) -> Path:
    return run(trained_tokenizer, base, TRAINING | {"vocab_size": 300} | params, {"documents": documents}, "tokenizer")


def tokenized(base: Path, documents: Path, tokenizer: Path, **params) -> Path:
    inputs = {"documents": documents, "tokenizer": tokenizer}
    return run(tokenize, base, TOKENIZING | params, inputs, "cache")


def tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, documents: Path) -> Path:
    return train(tmp_path_factory.mktemp("t"), documents)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, documents: Path, tokenizer: Path) -> Path:
    return tokenized(tmp_path_factory.mktemp("c"), documents, tokenizer)


def test_a_trained_tokenizer_is_a_hugging_face_folder(tokenizer: Path) -> None:
    from levanter.tokenizers import load_tokenizer
    from transformers import AutoTokenizer

    theirs, levanters = AutoTokenizer.from_pretrained(str(tokenizer)), load_tokenizer(str(tokenizer))
    assert len(theirs) == len(levanters) == 300
    assert theirs.eos_token == levanters.eos_token == "<|end|>"
    assert levanters.bos_token_id is None
    for text in ("naïve cafés  serve\n\t東京", " ", "🙂 never seen"):
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert ids == levanters.encode(text, add_special_tokens=False)
        assert theirs.decode(ids) == text


def test_training_gives_the_same_bytes_and_no_path(tmp_path: Path, documents: Path, tokenizer: Path) -> None:
    again = train(tmp_path / "elsewhere", documents)
    assert tree(again) == tree(tokenizer)
    assert not any(str(root).encode() in data for data in tree(again).values() for root in (tmp_path, documents))


def test_special_tokens_are_kept_whole(tmp_path: Path, documents: Path) -> None:
    from transformers import AutoTokenizer

    made = train(tmp_path, documents, bos="<s>", special_tokens=["<|user|>"])
    loaded = AutoTokenizer.from_pretrained(str(made))
    assert loaded.bos_token == "<s>"
    assert loaded.tokenize("<s>a<|user|>b<|end|>") == ["<s>", "a", "<|user|>", "b", "<|end|>"]
    assert "<|user|>" in loaded.all_special_tokens


def test_too_little_text_for_the_vocabulary_is_an_error(tmp_path: Path, documents: Path) -> None:
    with pytest.raises(ToolError, match=r"give only \d+ tokens, not `vocab_size = 5000`"):
        train(tmp_path, documents, vocab_size=5000)


def load(cache: Path, split: str = "train") -> list[list[int]]:
    from levanter.store.cache import TreeCache

    store = TreeCache.load(str(cache / split), {"input_ids": np.zeros((0,), dtype=np.int32)})
    return [row["input_ids"].tolist() for row in store.get_batch_sync(range(len(store)))]


def test_a_cache_holds_each_document_in_byte_order_of_the_files(cache: Path, documents: Path, tokenizer: Path) -> None:
    from levanter.tokenizers import load_tokenizer

    loaded = load_tokenizer(str(tokenizer))
    rows = load(cache)
    expected = []
    for name in ("a.jsonl", "b.jsonl", "é.jsonl"):
        for line in (documents / name).read_text().splitlines():
            expected.append(loaded.encode(json.loads(line)["text"] + " <|end|>", add_special_tokens=False))
    assert rows == expected
    stats = json.loads((cache / "stats.json").read_text())
    assert stats["documents"] == 420 and stats["tokens"] == sum(map(len, rows))
    assert [(f["path"], f["documents"]) for f in stats["files"]] == [
        ("a.jsonl", 100),
        ("b.jsonl", 300),
        ("é.jsonl", 20),
    ]
    counts = np.bincount(np.concatenate([np.asarray(row) for row in rows]))
    shares = counts[counts > 0] / counts.sum()
    assert stats["unigram_entropy"] == pytest.approx(float(-(shares * np.log(shares)).sum()))


def test_a_cache_is_the_same_bytes_wherever_and_in_whatever_batches(
    tmp_path: Path, cache: Path, documents: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    elsewhere = tmp_path / "other place"
    shutil.copytree(documents, elsewhere / "d")
    shutil.copytree(tokenizer, elsewhere / "t")
    monkeypatch.setattr(documents_module, "_PIECE_DOCUMENTS", 7)
    monkeypatch.setattr(tokenize, "_WRITE_TOKENS", 100)
    again = tokenized(tmp_path, elsewhere / "d", elsewhere / "t")
    assert tree(again) == tree(cache)
    ledger = json.loads((cache / "train/shard_ledger.json").read_text())
    assert ledger["metadata"]["preprocessor_metadata"]["tokenizer"] == tokenizer_folder.tokenizer_identity(tokenizer)
    assert not any(str(root).encode() in data for data in tree(cache).values() for root in (documents, tokenizer))


@pytest.fixture(scope="module")
def with_bos(tmp_path_factory: pytest.TempPathFactory, documents: Path) -> Path:
    return train(tmp_path_factory.mktemp("b"), documents, bos="<s>")


def ids_of(folder: Path, texts: list[str]) -> tuple[list[list[int]], list[list[int]]]:
    """Ours, and Levanter's own."""
    from levanter.data.text.formats import TextLmDatasetFormat
    from levanter.tokenizers import load_tokenizer

    theirs = TextLmDatasetFormat().build_preprocessor(load_tokenizer(str(folder)))([{"text": text} for text in texts])
    ours = Encoder(folder).encode(texts)
    assert ours.ids.dtype == np.int32
    return [row.tolist() for row in ours.rows()], [row["input_ids"] for row in theirs]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.text(), st.lists(st.sampled_from(WORDS)).map(" ".join)), min_size=1, max_size=90))
def test_the_ids_are_levanters_own(tokenizer: Path, with_bos: Path, texts: list[str]) -> None:
    for folder in (tokenizer, with_bos):
        ours, theirs = ids_of(folder, texts)
        assert ours == theirs


def test_the_ids_of_endless_words_and_blanks_are_levanters_own(with_bos: Path) -> None:
    runs = [char * length for char in "x \n東" for length in (24_999, 25_000, 25_001, 50_001)]
    ours, theirs = ids_of(with_bos, [*runs, "the quick " + runs[0] + " fox " + runs[5] + "x", "a" * 400_001])
    assert ours == theirs


def test_a_levanter_that_tokenizes_otherwise_is_refused(
    tmp_path: Path, documents: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Encoder, "encode", lambda self, texts: Encoded(np.array([1]), np.array([1])))
    with pytest.raises(ToolError, match="this Levanter makes other tokens"):
        tokenized(tmp_path, documents, tokenizer)


def test_another_tokenizer_shows_in_the_cache(tmp_path: Path, documents: Path, tokenizer: Path, cache: Path) -> None:
    other = train(tmp_path / "t", documents, vocab_size=299)
    assert tokenizer_folder.tokenizer_identity(other) != tokenizer_folder.tokenizer_identity(tokenizer)
    assert tree(tokenized(tmp_path / "c", documents, other)) != tree(cache)


def test_sample_count_is_a_cap_on_each_file(tmp_path: Path, documents: Path, tokenizer: Path) -> None:
    made = tokenized(tmp_path, documents, tokenizer, sample_count=25, split="validation")
    stats = json.loads((made / "stats.json").read_text())
    assert [f["documents"] for f in stats["files"]] == [25, 25, 20]
    assert len(load(made, "validation")) == 70 and not (made / "train").exists()


def no_config(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()


def broken(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize("spoil", [no_config, broken])
def test_a_folder_that_is_no_tokenizer_is_an_error(
    tmp_path: Path, documents: Path, tokenizer: Path, spoil: Callable[[Path], None]
) -> None:
    import shutil

    folder = tmp_path / "t"
    shutil.copytree(tokenizer, folder)
    spoil(folder)
    with pytest.raises(ToolError, match="not a tokenizer folder"):
        tokenized(tmp_path / "c", documents, folder)


def test_a_document_that_is_wrong_is_named(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.jsonl").write_text('{"text": "x"}\n{"no": 1}\n')
    with pytest.raises(ToolError) as caught:
        tokenized(tmp_path / "c", tmp_path / "d", tokenizer)
    assert caught.value.where == "a.jsonl:2"
