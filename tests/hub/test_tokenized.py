"""Corpora, tokenizers and token caches straight from a Hub, as a user declares them, and caches that are not to be
believed."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from marin_cas.tools import pretokenized, trained_tokenizer
from marin_cas.worker.context import ToolContext, ToolError
from tests.hub.conftest import Beside
from tests.hub.server import Hub

pytestmark = pytest.mark.slow

WORDS = ("the", "a", "cat", "dog", "tree", "runs", "sees", "under", "over", "green", "old", "house", "river", "stone")


def lines(seed: int, count: int, key: str = "text") -> bytes:
    chance = random.Random(seed)
    rows = (json.dumps({key: " ".join(chance.choices(WORDS, k=30)), "n": n}) for n in range(count))
    return "".join(f"{row}\n" for row in rows).encode()


def parquet(seed: int, count: int) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [json.loads(line) for line in lines(seed, count, "content").splitlines()]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def trained(base: Path, documents: bytes) -> Path:
    """A tokenizer folder."""
    (base / "in").mkdir()
    (base / "out").mkdir()
    (base / "in/a.jsonl").write_bytes(documents)
    params = {"glob": "*", "text_key": "text", "min_frequency": 2, "eos": "<|end|>", "bos": "", "special_tokens": []}
    trained_tokenizer.run(
        ToolContext({**params, "vocab_size": 300}, {}, {"documents": base / "in"}, {"tokenizer": base / "out"}, base)
    )
    return base / "out"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("tokenizer"), lines(0, 300))


def folder(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


DATASETS = {
    "me/zst": {"shard_0/a.jsonl.zst": zstandard.ZstdCompressor().compress(lines(1, 50)), "README.md": b"# x\n"},
    "me/code": {
        "python/train-00000-of-00001.parquet": parquet(2, 60),
        "rust/train-00000-of-00001.parquet": parquet(3, 9),
    },
    "me/gz": {
        "arxiv/train/a.jsonl.gz": gzip.compress(lines(4, 40)),
        "arxiv/val/a.jsonl.gz": gzip.compress(lines(5, 20)),
    },
}
DECLARED = """
load("@marin//rules:data.bzl", "pretokenized", "tokenized", "tokenizer")
load("@marin//rules:mixture.bzl", "mixture")
load("@marin//rules:resources.bzl", "cpu")

tokenizer(name = "tok", files = "me/llama")
tokenized(name = "zst", source = "me/zst", tokenizer = "me/llama", resources = cpu(cpu = CPU, ram = "2g"))
tokenized(name = "code", source = "me/code@v1", subset = "python", text_key = "content", tokenizer = ":tok")
tokenized(name = "held", source = "me/gz", validation = True, tokenizer = "me/llama@main")
tokenized(name = "web", source = "file://HERE/", glob = "*.txt", tokenizer = ":tok")
pretokenized(name = "made", repo_id = "me/cache", tokenizer = "me/llama")
mixture(name = "mix", train = {":zst": 1, ":code": 1, ":made": 2}, validation = [":held"])
"""


def test_a_pipeline_of_declared_sources(beside: Beside, tokenizer: Path, tmp_path: Path) -> None:
    hub, mini = beside.hub, beside.mini
    hub.repo("me/llama", {**folder(tokenizer), "model.safetensors": b"x" * 100_000}, type="model")
    for id, files in DATASETS.items():
        repo = hub.repo(id, files)
        repo.tags["v1"] = repo.refs["main"]
    (tmp_path / "here").mkdir()
    (tmp_path / "here/a.txt").write_text("one line\nanother line\n")
    (tmp_path / "here/README").write_text("no document\n")
    lock = (Path(__file__).parents[2] / "marin.lock").read_text()
    declared = DECLARED.replace("HERE", str(tmp_path / "here"))
    mini.write({"marin.lock": lock, "exp/BUILD.marin": declared.replace("CPU", "1")})
    hub.repo("me/cache", {"none": b"yet"})
    planned = beside.ok("build", "-n", "//exp:zst").out
    assert "//exp:zst#source" in planned and "//exp:zst#tokenizer" in planned and "?" in planned
    beside.ok("lock")
    labels = [f"//exp:{name}" for name in ("zst", "code", "held", "web")]
    report = beside.ok("build", *labels, "--output", "json").json
    # Three downloads of data from the Hub, one from a folder, one tokenizer for all, and four caches.
    assert report["counts"]["executed"] == 9
    assert not hub.requests("safetensors") and not hub.requests("rust"), "only what is needed"
    stats = {
        name: json.loads((mini.root / f"cache/out/exp/{name}/stats.json").read_text())
        for name in ("zst", "code", "held", "web")
    }
    assert {name: (each["documents"], each["split"]) for name, each in stats.items()} == {
        "zst": (50, "train"),
        "code": (60, "train"),
        "held": (20, "validation"),
        "web": (2, "train"),
    }
    # The same bytes when three processes share the work.
    mini.write({"exp/BUILD.marin": declared.replace("CPU", "3")})
    assert beside.ok("build", "//exp:zst", "--check", "--output", "json").json["checked"]["//exp:zst"] == []
    # Somebody publishes a cache; here it is one like those made here.
    hub.repo("me/cache").commit(folder(mini.root / "cache/out/exp/zst") | {"train/part-0/shard_ledger.json": b"{}"})
    beside.ok("lock", "--upgrade=me/cache")
    beside.ok("build", "//exp:made", "//exp:mix")
    made, zst = (folder(mini.root / f"cache/out/exp/{name}") for name in ("made", "zst"))
    assert {n: d for n, d in made.items() if n != "stats.json"} == {n: d for n, d in zst.items() if n != "stats.json"}
    assert json.loads(made["stats.json"])["tokens"] == stats["zst"]["tokens"]
    assert beside.ok("build", *labels, "--output", "json").json["counts"]["executed"] == 0


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> dict[str, bytes]:
    """A cache of 40 documents."""
    from marin_cas.tools import tokenize

    base = tmp_path_factory.mktemp("cache")
    (base / "in").mkdir()
    (base / "out").mkdir()
    (base / "in/a.jsonl").write_bytes(lines(7, 40))
    tokenize.run(
        ToolContext(
            {"glob": "*", "text_key": "text", "split": "train", "sample_count": None},
            {},
            {"documents": base / "in", "tokenizer": tokenizer},
            {"cache": base / "out"},
            base,
        )
    )
    return folder(base / "out")


@pytest.fixture
def take(tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Publishes a cache and takes it from there."""
    monkeypatch.setenv("NO_PROXY", "*")
    with Hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)

        def run(files: dict[str, bytes], at: str = "", folder: str = "", of: Path = tokenizer) -> Path:
            commit = hub.repo("me/cache").commit({f"{at}{name}": data for name, data in files.items()})
            for name in ("out", "scratch"):
                (tmp_path / name).mkdir()
            params = {
                "repo_type": "dataset",
                "repo_id": "me/cache",
                "commit": commit,
                "folder": folder,
                "split": "train",
            }
            context = ToolContext(params, {}, {"tokenizer": of}, {"cache": tmp_path / "out"}, tmp_path / "scratch")
            pretokenized.run(context)
            return tmp_path / "out"

        yield run


def edited(cache: dict[str, bytes], name: str, **changes: object) -> dict[str, bytes]:
    """The cache with other values in one of its JSON files; a `__` stands for a step down."""
    whole = json.loads(cache[name])
    for path, value in changes.items():
        *steps, last = path.split("__")
        inner = whole
        for step in steps:
            inner = inner[step]
        inner[last] = value
    return {**cache, name: json.dumps(whole).encode()}


LEDGER, DATA, OFFSETS = "train/shard_ledger.json", "train/input_ids/data/zarr.json", "train/input_ids/offsets/zarr.json"
SPOILED: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "no ledger": (lambda c: {n: d for n, d in c.items() if n != LEDGER}, "`shard_ledger.json` is not there"),
    "no array": (lambda c: {n: d for n, d in c.items() if n != DATA}, "`input_ids/data/zarr.json` is not there"),
    "no chunk": (
        lambda c: {n: d for n, d in c.items() if "offsets/c" not in n},
        "has 0 documents, and its ledger says 40",
    ),
    "no JSON": (lambda c: {**c, LEDGER: b"{"}, "cannot be read"),
    "not a ledger": (lambda c: {**c, LEDGER: b'{"rows": 3}'}, "cannot be read"),
    "unfinished": (lambda c: edited(c, LEDGER, is_finished=False), "is not finished"),
    "in shards": (lambda c: edited(c, LEDGER, layout="sharded"), "were not put together"),
    "empty": (lambda c: edited(c, LEDGER, total_num_rows=0), "holds no documents"),
    "fewer rows": (lambda c: edited(c, LEDGER, total_num_rows=39), "contradicts itself"),
    "other rows": (lambda c: edited(c, LEDGER, total_num_rows=41, shard_rows__documents=41), "has 40 documents"),
    "other tokens": (lambda c: edited(c, LEDGER, field_counts__input_ids=7), "and its ledger says 7"),
    "other type": (lambda c: edited(c, DATA, data_type="int64"), "is int64xarrayx1, and int32 in one dimension is due"),
    "vocabulary": (
        lambda c: edited(c, LEDGER, metadata__preprocessor_metadata__vocab_size=50_000),
        "its vocabulary had 50000 tokens, and this one has 300",
    ),
    "damaged": (
        lambda c: {n: d[: len(d) // 2] if "data/c" in n else d for n, d in c.items()},
        "damaged|cannot be opened",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_cache_that_is_not_to_be_believed(take, cache: dict[str, bytes], case: str) -> None:
    spoil, message = SPOILED[case]
    with pytest.raises(ToolError, match=message):
        take(spoil(cache))


def test_a_cache_of_another_tokenizer(take, cache: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    """One of the same size: only what the tokens mean tells them apart."""
    chance = random.Random(9)
    rows = ({"text": "".join(chance.choices("abcdefgh ", k=200))} for _ in range(200))
    other = trained(tmp_path_factory.mktemp("other"), "\n".join(map(json.dumps, rows)).encode())
    with pytest.raises(ToolError, match="was not made with this tokenizer: of 32 documents"):
        take(cache, of=other)


def test_a_cache_may_lie_deeper_and_keeps_what_it_says(take, cache: dict[str, bytes], tokenizer: Path) -> None:
    from marin_cas.tools.levanter_inputs import read_components
    from marin_cas.tools.tokenizer_folder import tokenizer_identity

    there = edited(cache, LEDGER, metadata__preprocessor_metadata__tokenizer="meta-llama/x", field_counts={})
    out = take({**there, "train/part-0/x": b"1"}, at="llama3/", folder="llama3/")
    assert not (out / "train/part-0").exists()
    stats = json.loads((out / "stats.json").read_text())
    assert (stats["documents"], stats["upstream_tokenizer"]) == (40, "meta-llama/x")
    entry = {"name": "c", "input": "c", "weight": 1, "validation": False}
    (component,) = read_components([entry], {"c": out})
    assert (component.documents, component.tokens) == (40, stats["tokens"])
    assert component.tokenizer == tokenizer_identity(tokenizer)


def test_a_cache_that_lies_elsewhere_is_looked_through_just_so(
    take, cache: dict[str, bytes], tokenizer: Path, tmp_path: Path
) -> None:
    def adopt(files: dict[str, bytes], name: str) -> Path:
        source, out = tmp_path / name / "in", tmp_path / name / "out"
        out.mkdir(parents=True)
        for path, data in files.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(data)
        inputs = {"files": source, "tokenizer": tokenizer}
        pretokenized.run(
            ToolContext({"split": "train"}, {"where": "gs://there"}, inputs, {"cache": out}, tmp_path / name)
        )
        return out

    assert folder(adopt({**cache, "train/part-0/shard_ledger.json": b"{}"}, "whole")) == folder(take(cache))
    with pytest.raises(ToolError, match="`gs://there` is not finished"):
        adopt(edited(cache, "train/shard_ledger.json", is_finished=False), "open")
    with pytest.raises(ToolError, match="`gs://there` has no Levanter cache in `train/`"):
        adopt({name.replace("train/", "validation/"): data for name, data in cache.items()}, "other")


def test_where_caches_are_is_said(take, cache: dict[str, bytes]) -> None:
    with pytest.raises(ToolError, match="has no Levanter cache in `train/`") as caught:
        take(cache, at="llama3/")
    assert caught.value.hint == "there are caches in `llama3/train/`"
