"""DCLM in miniature, from a Hub to scores: the rule files of `//exp:dclm_1b`, and data in the forms that the real repos
have."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path

import pytest
import zstandard

from tests.cli.conftest import CHECKOUT
from tests.hub.conftest import Beside
from tests.hub.test_tokenized import WORDS, lines, parquet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
TOKEN = "hf_of_somebody"
PERIOD = "20251101to20251115"
BUILD = """
load("@marin//rules:data.bzl", "tokenizer")
load("@marin//rules:eval.bzl", "CORE_TASKS", "eval_suite")
load("@marin//rules:mixture.bzl", "mixture")
load("@marin//rules:models.bzl", "adam", "llama", "llama3_tokenizer")
load("@marin//rules:resources.bzl", "cpu")
load("@marin//rules:train.bzl", "train_lm")
load("@marin//rules/datasets:dclm.bzl", "DCLM_MIXTURE_WEIGHTS", "dclm_datasets")
load("@marin//rules/datasets:paloma.bzl", "paloma_datasets")
load("@marin//rules/datasets:uncheatable.bzl", "uncheatable_datasets")

tokenizer(name = "llama3", files = llama3_tokenizer, version = "2026.06.28")

TRAIN = dclm_datasets(tokenizer = ":llama3")

VALIDATION = paloma_datasets(
    subsets = ["4chan", "ptb"],
    tokenizer = ":llama3",
).values() + uncheatable_datasets(
    subsets = ["bbc_news", "github_cpp"],
    tokenizer = ":llama3",
    url = "file://DUMPS/",
).values()

mixture(
    name = "mix",
    train = {TRAIN[corpus]: weight for corpus, weight in DCLM_MIXTURE_WEIGHTS.items()},
    validation = VALIDATION,
)

train_lm(
    name = "mini",
    artifact = "checkpoints/dclm_mini",
    batch_size = 4,
    datasets = ":mix",
    evals = eval_suite(
        [task for task in CORE_TASKS if task["name"] == "copa"],
        every = 2,
        max_seq_len = 64,
        resources = cpu(ram = "2g"),
    ),
    model = llama(
        gradient_checkpointing = False,
        hidden_dim = 16,
        intermediate_dim = 32,
        max_seq_len = 64,
        num_heads = 2,
        num_kv_heads = 2,
        num_layers = 1,
    ),
    num_train_steps = 4,
    optimizer = adam(
        learning_rate = 3e-3,
        min_lr_ratio = 0.1,
        warmup = 2,
        weight_decay = 0.033,
    ),
    resources = cpu(ram = "3g"),
    seq_len = 64,
    steps_per_eval = 2,
    tags = ["DCLM_MINI"],
    version = "2026.06.28",
    z_loss_weight = 1e-4,
)
"""


def llama_tokenizer() -> dict[str, bytes]:
    """A repo with a byte-level BPE that begins each document as Llama 3 does, and with weights that nobody needs."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=[BOS, EOS], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator([" ".join(WORDS)] * 4, trainer)
    made.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, made.token_to_id(BOS))]
    )
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS}
    return {
        "tokenizer.json": made.to_str().encode(),
        "tokenizer_config.json": json.dumps({**settings, "model_max_length": 131072}).encode(),
        "config.json": b'{"model_type": "llama"}',
        "model-00001-of-00004.safetensors": b"x" * 100_000,
    }


def zst(seed: int, count: int) -> bytes:
    return zstandard.ZstdCompressor().compress(lines(seed, count))


def copa() -> dict[str, bytes]:
    """The part of SuperGLUE that a core task reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"premise": "The cat runs.", "choice1": "A dog sees it.", "choice2": "It is a stone.", "question": "cause"}
        | {"idx": n, "label": n % 2}
        for n in range(4)
    ]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    files = {f"copa/{split}-00000-of-00001.parquet": file.getvalue() for split in ("train", "validation")}
    configs = "".join(f"  - split: {split}\n    path: copa/{split}-*\n" for split in ("train", "validation"))
    return files | {"README.md": f"---\nconfigs:\n- config_name: copa\n  data_files:\n{configs}---\n".encode()}


def fill(beside: Beside, dumps: Path) -> None:
    """What the rule files ask for, in the forms and under the names that the real repos have; each with more beside."""
    hub = beside.hub
    for id, revision, files in (
        (
            "mlfoundations/dclm-baseline-1.0",
            "a3b142c",
            {
                f"global-shard_0{n}_of_10/local-shard_0_of_10/shard_00000000_processed.jsonl.zst": zst(n, 40)
                for n in (1, 2)
            },
        ),
        (
            "bigcode/starcoderdata",
            "9fc30b5",
            {f"{language}/train-00000-of-00001.parquet": parquet(3, 30) for language in ("python", "rust")},
        ),
        (
            "EleutherAI/proof-pile-2",
            "901a927",
            {
                f"{part}/{split}/{part}_000.jsonl.zst": zst(4, 20)
                for part in ("arxiv", "open-web-math", "algebraic-stack")
                for split in ("train", "validation", "test")
            },
        ),
        (
            "allenai/paloma",
            "65cd6fc",
            {
                f"{folder}/{split}/{split}_0000.jsonl.gz": gzip.compress(lines(5, 10))
                for folder in ("4chan_meta_sep", "ptb", "gab")
                for split in ("val", "test")
            },
        ),
    ):
        repo = hub.repo(id, gated=id == "allenai/paloma")
        repo.commit({**files, "README.md": b"# data\n"}, sha=revision.ljust(40, "0"))
        repo.commit({"README.md": b"moved on\n"})
    hub.tokens[TOKEN] = {"allenai/paloma"}
    hub.repo("meta-llama/Meta-Llama-3.1-8B", llama_tokenizer(), type="model")
    hub.repo("aps/super_glue", copa())
    dumps.mkdir()
    chance = random.Random(6)
    for subset in ("bbc_news", "github_cpp", "ao3_english"):
        texts = [" ".join(chance.choices(WORDS, k=40)) for _ in range(8)]
        (dumps / f"{subset}_{PERIOD}.json").write_text(json.dumps(texts))


def test_dclm_from_a_hub_to_scores(beside: Beside, tmp_path: Path) -> None:
    dumps, mini = tmp_path / "dumps", beside.mini
    fill(beside, dumps)
    lock = (CHECKOUT / "marin.lock").read_text()
    mini.write({"marin.lock": lock, "exp/BUILD.marin": BUILD.replace("DUMPS", str(dumps))})

    asked = beside.ok("query", "deps(//exp:mini)").out.split()
    assert {"//exp:mini", "//exp:raw/dclm", "//exp:paloma/ptb", "//exp:llama3"} <= set(asked)
    assert not beside.hub.log, "questions ask nobody"
    beside.ok("lock", HF_TOKEN=TOKEN)
    assert f'"dataset bigcode/starcoderdata@9fc30b5" = "{"9fc30b5".ljust(40, "0")}"' in (
        (mini.root / "marin.lock").read_text()
    )
    refused = beside.run("build", "//exp:raw/paloma", "--locked", code=1)
    assert "allenai/paloma" in refused.err and "HF_TOKEN" in refused.err

    process = mini.start(
        *("build", "//exp:mini", "//exp:mini.evals", "//exp:mix", "--locked", "--output", "json"),
        env=beside.hub.environ(HF_TOKEN=TOKEN),
    )
    out, err = process.communicate(timeout=1000)
    assert process.returncode == 0, err
    # A tokenizer, five downloads and one for the task, seven caches, a training, its two exports scored.
    assert json.loads(out)["counts"]["executed"] == 17
    assert not [name for name in ("safetensors", "/test/", "/validation/", "gab") if beside.hub.requests(name)]

    def stats(name: str) -> tuple[int, str]:
        read = json.loads((mini.root / f"cache/out/exp/{name}/stats.json").read_text())
        return read["documents"], read["split"]

    beside.ok("build", *(name for name in asked if "raw" not in name), "--locked", "-q", HF_TOKEN=TOKEN)
    assert [stats(name) for name in ("dclm_baseline", "starcoderdata", "proofpile_2")] == [
        (80, "train"),
        (60, "train"),
        (60, "train"),
    ]
    assert stats("paloma/4chan") == (10, "validation") and stats("uncheatable_eval/bbc_news") == (8, "validation")

    trained = mini.root / "cache/out/exp/mini"
    config = json.loads((trained / "hf/config.json").read_text())
    assert (config["model_type"], config["hidden_size"]) == ("llama", 16)
    metrics = (trained / "metrics").read_text()
    for name in ("paloma/4chan-llama3", "paloma/ptb-llama3", "uncheatable_eval/github_cpp-llama3"):
        assert f"eval/{name}/loss" in metrics
    scores = json.loads((mini.root / "cache/out/exp/mini.evals/scores").read_text())
    assert scores["n_samples"]["copa"]["effective"] == 4 and 0 <= scores["tasks"]["copa"]["acc"] <= 1
    assert (mini.root / "cache/out/exp/mini.evals/scores.2").exists()

    # Nothing is left to do, and nobody is asked.
    beside.hub.log.clear()
    again = beside.ok("build", "//exp:mini", "//exp:mini.evals", "--locked", "--output", "json").json
    assert again["counts"]["executed"] == 0 and not beside.hub.log
