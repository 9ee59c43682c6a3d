"""Wrong data, wrong tokenizers, wrong mixtures, a disk that is full or read-only: each is named, with its place."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from marin_cas.tools.tokenize import tokenizer_identity
from tests.cli.conftest import CHECKOUT, TRACEBACK, Mini, Ran

LOADS = """
load("//:stubs.bzl", "cached")
load("@marin//rules:data.bzl", "py_action", "raw_download", "tokenized", "tokenizer", "trained_tokenizer")
load("@marin//rules:mixture.bzl", "mixture")
load("@marin//rules:models.bzl", "adam", "llama")
load("@marin//rules:train.bzl", "train_lm")
""".lstrip()
TRAIN = """train_lm(
    name = "{name}", datasets = ":{datasets}", batch_size = 2, z_loss_weight = 0.0, {more},
    model = llama(hidden_dim = 8, intermediate_dim = 8, num_layers = 1, num_heads = 1, num_kv_heads = 1,
                  max_seq_len = 64),
    optimizer = adam(learning_rate = 1e-3),
)
"""

# Each: a document file's name and bytes, then what is said of it, the place first.
DOCUMENTS: dict[str, tuple[str, bytes, str, str]] = {
    "empty": ("empty.jsonl", b"", "data/empty.jsonl", "`data/empty.jsonl` is empty"),
    "blank": ("blank.jsonl", b"\n  \n\n", "data/blank.jsonl", "`data/blank.jsonl` is empty"),
    "latin": ("latin.jsonl", b'{"text": "a"}\n{"text": "caf\xe9"}\n', "data/latin.jsonl:2", "not UTF-8"),
    "utf16": ("utf16.jsonl", '{"text": "a"}\n'.encode("utf-16"), "data/utf16.jsonl:1", "not UTF-8"),
    "prose": ("prose.jsonl", b'{"text": "a"}\n\n{"text": oops}\n', "data/prose.jsonl:3", "not JSON"),
    "cut": ("cut.jsonl", b'{"text": "a"}\n{"text": "b', "data/cut.jsonl:2", "not JSON"),
    "deep": ("deep.jsonl", b"[" * 100_000 + b"\n", "data/deep.jsonl:1", "not JSON: nested too deep"),
    "no_key": ("no_key.jsonl", b'{"text": "a"}\n{"txet": "b"}\n', "data/no_key.jsonl:2", "did you mean `txet`?"),
    "a_list": ("a_list.jsonl", b'{"text": ["a"]}\n', "data/a_list.jsonl:1", "`text` is not text but a list"),
    "null": ("null.jsonl", b'{"text": null}\n', "data/null.jsonl:1", "`text` is not text but null"),
    "no_object": ("no_object.jsonl", b'"text"\n', "data/no_object.jsonl:1", "not a JSON object but text"),
    "surrogate": ("surrogate.jsonl", b'{"text": "\\ud800"}\n', "data/surrogate.jsonl:1", "half a surrogate pair"),
    "cut_gz": ("cut_gz.jsonl.gz", b"\x1f\x8b\x08\0abc", "data/cut_gz.jsonl.gz:1", "not a complete compressed file"),
    "kind": ("kind.csv", b"text\n", "BUILD.marin", "`data/kind.csv` is not a kind of document file that is read"),
}
FUNCTIONS = """
def notes(ctx):
    (ctx.output_path / "notes.txt").write_text("no tokenizer")


def broken(ctx):
    (ctx.output_path / "tokenizer.json").write_text("{")
    (ctx.output_path / "tokenizer_config.json").write_text("{}")


def corpus(ctx):
    (ctx.output_path / "train").mkdir()
    (ctx.output_path / "train" / "a.jsonl").write_text('{"text": "some words of a text"}\\n')
    (ctx.output_path / "train" / "bad.jsonl").write_text('{"text": "some words of a text"}\\n{"text": 1}\\n')


def cache(ctx):
    # A token cache as far as a training looks at it before it starts.
    import json

    folder = ctx.output_path / "train"
    for array in ctx.params["arrays"]:
        (folder / "input_ids" / array).mkdir(parents=True)
        (folder / "input_ids" / array / "zarr.json").write_text("{}")
    ledger = {"total_num_rows": 1, "is_finished": ctx.params["finished"], "field_counts": {"input_ids": 63}}
    ledger["metadata"] = {"preprocessor_metadata": {"tokenizer": ctx.params["tokenizer"]}}
    (folder / "shard_ledger.json").write_text(json.dumps(ledger))
"""
# Token caches that nobody tokenized, under a tokenizer that is only looked at.
STUBS = """# Tokenized corpora that a function wrote.
load("@marin//rules:common.bzl", "TokenizedInfo", "TokenizerInfo", "TreeInfo")

def _cached(ctx):
    cache, tokenizer = ctx.attr.files.TreeInfo.artifact, ctx.attr.tokenizer.TokenizerInfo
    info = TokenizedInfo(cache = cache, tokenizer = tokenizer.files, tokenizer_id = tokenizer.id,
                         name = ctx.label.name, validation = False, text_key = "text")
    return [DefaultInfo(outputs = {"cache": cache}), info]

cached = rule(
    implementation = _cached,
    attrs = {"files": attr.label(providers = ["TreeInfo"]), "tokenizer": attr.label(providers = ["TokenizerInfo"])},
)
"""
CACHES = {
    "short": '"finished": True, "arrays": ["data", "offsets"], "tokenizer": TOKENIZER',
    "other": '"finished": True, "arrays": ["data", "offsets"], "tokenizer": "0123456789abcdef"',
    "unfinished": '"finished": False, "arrays": ["data", "offsets"], "tokenizer": TOKENIZER',
    "half": '"finished": True, "arrays": ["data"], "tokenizer": TOKENIZER',
}
# What needs a good tokenizer, and what is said of it.
TARGETS = """
trained_tokenizer(name = "good", raw = ":corpus", glob = "train/a.jsonl", vocab_size = 257)
trained_tokenizer(name = "few", raw = ":corpus", glob = "train/a.jsonl", vocab_size = 5000)
[raw_download(name = n, function = "f.py:" + n) for n in ["notes", "broken", "corpus"]]
tokenizer(name = "tok_notes", files = ":notes")
tokenizer(name = "tok_broken", files = ":broken")
tokenized(name = "of_notes", raw = ":corpus", glob = "train/a.jsonl", tokenizer = ":tok_notes")
tokenized(name = "of_broken", raw = ":corpus", glob = "train/a.jsonl", tokenizer = ":tok_broken")
tokenized(name = "of_nothing", raw = ":corpus", glob = "train/*.jsno", tokenizer = ":good")
tokenized(name = "of_bad", raw = ":corpus", glob = "train/*.jsonl", tokenizer = ":good")
"""
SAID = {
    "few": ["BUILD.marin:8: ", "the documents give only 257 tokens, not `vocab_size = 5000`", "`vocab_size = 257`"],
    "of_notes": ["BUILD.marin:12: ", "not a tokenizer folder: it has no `tokenizer.json`", "it holds `notes.txt`"],
    "of_broken": ["BUILD.marin:13: ", "not a tokenizer folder: "],
    "of_nothing": ["BUILD.marin:14: ", "no file matches `train/*.jsno`", "did you mean `train/a.jsonl`?"],
    "of_bad": ["train/bad.jsonl:2: ", "`text` is not text but a number"],
    "m_short": ["component `short` has 63 tokens, fewer than one sequence of 64", "a smaller `seq_len`"],
    "m_other": ["component `other` was tokenized with another tokenizer", "0123456789ab"],
    "m_unfinished": ["component `unfinished` is incomplete", "says that it is not finished"],
    "m_half": ["component `half` is incomplete", "it has no `train/input_ids/offsets/zarr.json`"],
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mini, Ran]:
    """One build of all of them: what a library takes to import is paid a few times only."""
    folder = tmp_path_factory.mktemp("bad_data")
    mini = Mini(folder / "w", folder / "home")
    (mini.root / "data").mkdir(parents=True)
    mini.home.mkdir()
    for name, data, _, _ in DOCUMENTS.values():
        (mini.root / "data" / name).write_bytes(data)
    shutil.copy(CHECKOUT / "marin.lock", mini.root)
    (folder / "tokenizer").mkdir()
    for name, text in (("tokenizer.json", "{"), ("tokenizer_config.json", "{}")):
        (folder / "tokenizer" / name).write_text(text)
    mini.write(
        {
            "marin.toml": "",
            "f.py": FUNCTIONS,
            "stubs.bzl": STUBS,
            "BUILD.marin": LOADS
            + TARGETS
            + f'TOKENIZER = "{tokenizer_identity(folder / "tokenizer")}"\n'
            + "".join(
                f'raw_download(name = "c_{name}", function = "f.py:cache", params = {{{params}}})\n'
                f'cached(name = "{name}", files = ":c_{name}", tokenizer = ":tok_broken")\n'
                + TRAIN.format(name=f"m_{name}", datasets=name, more="num_train_steps = 1, seq_len = 64")
                for name, params in CACHES.items()
            )
            + "".join(
                f'trained_tokenizer(name = "{name}", paths = ["data/{case[0]}"], vocab_size = 300)\n'
                for name, case in DOCUMENTS.items()
            ),
        }
    )
    process = mini.start("build", "-k", "//...", "--progress", "none")
    out, err = process.communicate(timeout=300)
    assert TRACEBACK not in out + err, err
    assert process.returncode == 1, err
    return mini, Ran(1, out, err)


def messages(ran: Ran) -> dict[str, str]:
    """What is said of each target; each is spoken of once."""
    blocks = re.split(r"^error: ", ran.err, flags=re.MULTILINE)[1:]
    found = [(found[1], block) for block in blocks if (found := re.search(r"`//:(\w+)` failed", block))]
    assert len(found) == len(blocks) == len(dict(found)), ran.err
    return dict(found)


def test_each_document_file_that_is_wrong_is_named_with_its_line(built: tuple[Mini, Ran]) -> None:
    said = messages(built[1])
    for name, (_, _, where, text) in DOCUMENTS.items():
        assert said[name].startswith(where), said[name]
        assert text in said[name]
        assert "BUILD.marin:" in said[name]


def test_wrong_tokenizers_patterns_and_sizes_are_named(built: tuple[Mini, Ran]) -> None:
    said = messages(built[1])
    for name, texts in SAID.items():
        for text in texts:
            assert text in said[name]
    assert set(said) == {*SAID, *DOCUMENTS}


def test_what_is_not_wrong_was_built_and_the_store_is_whole(built: tuple[Mini, Ran]) -> None:
    mini, ran = built
    for name in ("good", "corpus", "broken"):
        assert f"//:{name} " in ran.out
    assert mini.ok("cache", "verify").out == ""
    assert not list((mini.root / "cache/work").glob("*"))
    (mini.root / "data/empty.jsonl").write_text('{"text": "mended"}\n')
    again = mini.run("build", "//:empty", code=1)
    assert "the documents give only" in again.err


def test_a_used_tokenizer_is_what_it_was(built: tuple[Mini, Ran]) -> None:
    """Row 13: tokenizing with it changes nothing of it, and its identity is that of its files."""
    mini, _ = built
    tokens = {r["label"]: r for r in mini.ok("aquery", "//:of_nothing + //:of_bad", "--output", "json").json}
    [good] = [r for r in mini.ok("cache", "ls", "--output", "json").json if r["label"] == "//:good"]
    files = good["outputs"]["tokenizer"]["digest"]
    assert {record["inputs"]["tokenizer"]["digest"] for record in tokens.values()} == {files}
    assert mini.counts("//:good", "--check")["failed"] == 0  # made again, it is the same bytes


# Seen before anything runs.

DATA = """
raw_download(name = "corpus", function = "f.py:corpus")
trained_tokenizer(name = "tok", raw = ":corpus", glob = "*.jsonl", vocab_size = 300)
trained_tokenizer(name = "tok2", raw = ":corpus", glob = "*.jsonl", vocab_size = 301)
tokenized(name = "a", raw = ":corpus", glob = "a", tokenizer = ":tok")
tokenized(name = "b", raw = ":corpus", glob = "b", tokenizer = ":tok", component = "a")
tokenized(name = "c", raw = ":corpus", glob = "c", tokenizer = ":tok2")
tokenized(name = "v", raw = ":corpus", glob = "v", tokenizer = ":tok", validation = True)
"""


def train(datasets: str, more: str) -> str:
    return TRAIN.format(name="model", datasets=datasets, more=more)


START = train("a", "num_train_steps = 1, seq_len = 64").replace('"model"', '"start"').replace("heads = 1", "heads = 2")
# Each: a line after these, then texts that the message must hold.
EARLY = {
    "missing_file": ('tokenized(name = "t", paths = ["nothing.jsonl"], tokenizer = ":tok")', ["`//:nothing.jsonl`"]),
    "missing_folder": ('tokenized(name = "t", paths = glob(["no/*.jsonl"]), tokenizer = ":tok")', ["`no/*.jsonl`"]),
    "no_tokenizer": ('tokenized(name = "t", paths = ["f.py"], tokenizer = ":corpus")', ["TokenizerInfo", "//:corpus"]),
    "two_of_a_name": ('mixture(name = "t", train = {":a": 1.0, ":b": 1.0})', ["named `a`", "`//:a`", "`//:b`"]),
    "two_tokenizers": ('mixture(name = "t", train = {":a": 1.0, ":c": 1.0})', ["one tokenizer", "`//:a`", "`//:c`"]),
    "nothing_to_train": ('mixture(name = "t", train = {})', ["`train` is empty"]),
    "no_weight": ('mixture(name = "t", train = {":a": 0.0})', ["at least one must be positive"]),
    "negative_weight": ('mixture(name = "t", train = {":a": -0.5})', ["`//:a` is negative"]),
    "infinite_weight": ('mixture(name = "t", train = {":a": 1e999})', ["`train.:a` is not a finite"]),
    "validation_in_train": ('mixture(name = "t", train = {":a": 1.0, ":v": 1.0})', ["`//:v` is a validation set"]),
    "train_in_validation": ('mixture(name = "t", train = {":a": 1.0}, validation = [":c"])', ["`//:c`"]),
    "validation_alone": (train("v", "num_train_steps = 1, seq_len = 64"), ["`//:v` is a validation set"]),
    "negative_steps": (train("a", "num_train_steps = -1, seq_len = 64"), ["`num_train_steps` is -1"]),
    "fractional_steps": (train("a", "num_train_steps = 1.5, seq_len = 64"), ["`num_train_steps`", "int"]),
    "no_cores": (train("a", "num_train_steps = 1, nproc = 0, seq_len = 64"), ["`nproc` is 0: it must be at least 1"]),
    "also_trained_on": (
        'mixture(name = "t", train = {":a": 1.0}, validation = [":w"])\n'
        'tokenized(name = "w", raw = ":corpus", glob = "a", tokenizer = ":tok", validation = True)',
        ["`//:w` is also trained on: `//:a`"],
    ),
    "another_start": (
        train("a", 'num_train_steps = 1, seq_len = 64, init_from = ":start"') + START,
        ["`init_from`: `num_heads` of `//:start` is 2, and that of `model` is 1"],
    ),
    "hidden_nan": (
        train("a", "num_train_steps = 1, seq_len = 64").replace("1e-3", "1e-3, max_grad_norm = float('nan')"),
        ["`optimizer.max_grad_norm` is not a finite number"],
    ),
    "long_sequences": (train("a", "num_train_steps = 1, seq_len = 65"), ["`seq_len` is 65"]),
}  # fmt: skip


@pytest.mark.parametrize("name", EARLY)
def test_what_analysis_can_see_is_refused_before_anything_runs(mini: Mini, name: str) -> None:
    line, texts = EARLY[name]
    shutil.copy(CHECKOUT / "marin.lock", mini.root)
    mini.write({"f.py": FUNCTIONS, "stubs.bzl": STUBS, "BUILD.marin": LOADS + DATA + line + "\n"})
    target = "model" if "train_lm" in line else "t"
    ran = mini.run("build", f"//:{target}", code=2)
    assert ran.err.startswith("error: BUILD.marin:14: "), ran.err
    assert ran.err.count("error: ") == 1
    for text in texts:
        assert text in ran.err, ran.err
    assert ran.out == ""
    assert not list((mini.root / "cache").glob("*/*"))


# Disks. The seam fails every call of some kinds from the n-th on, as a disk that is full or read-only does.

FAULTY = """
import errno, os, sys
first, number, kinds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
import marin_cas.disk as disk
from marin_cas.store.faulty import FaultyDisk
calls = 0
def before(call):
    global calls
    if call in kinds:
        calls += 1
        if calls >= first:
            raise OSError(number, os.strerror(number))
disk.DISK = FaultyDisk(before)
from marin_cas.cli.main import main
sys.exit(main(sys.argv[4:]))
"""
NEEDS_SPACE = "write,append,copy,clone,mkdir,makedirs,link,symlink"
CHANGES = f"{NEEDS_SPACE},rename,unlink,chmod,seal,touch,remove_tree".replace("makedirs,", "")


def on_a_bad_disk(mini: Mini, first: int, number: int, kinds: str, *args: str) -> Ran:
    ran = subprocess.run(
        [sys.executable, "-c", FAULTY, str(first), str(number), kinds, *args],
        cwd=mini.root, env=mini.environ(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert TRACEBACK not in ran.stdout + ran.stderr, ran.stderr
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def two(mini: Mini, value: int) -> None:
    mini.write(
        {
            "d.txt": f"{value}\n",
            "f.py": """
                def f(ctx):
                    for name in ("a", "folder/b"):
                        (ctx.output_path / name).parent.mkdir(exist_ok=True)
                        (ctx.output_path / name).write_text(f"{name} {ctx.params}")
                """,
            "BUILD.marin": 'load("@marin//rules:data.bzl", "py_action")\n'
            + f'py_action(name = "x", function = "f.py:f", inputs = {{"d": "d.txt"}}, params = {{"x": {value}}})\n'
            + 'py_action(name = "y", function = "f.py:f", inputs = {"x": ":x"})\n',
        }
    )


def test_a_disk_that_gets_full_at_any_call(mini: Mini) -> None:
    halfway = 0
    for round, first in enumerate((1, 5, 12, 20, 31, 38, 45, 52)):
        two(mini, round)
        ran = on_a_bad_disk(mini, first, 28, NEEDS_SPACE, "build", "//:y")
        assert ran.code == 3, ran.err
        assert f"error: `{mini.root}/cache" in ran.err
        assert "the disk is full" in ran.err
        assert "`marin cache gc`" in ran.err
        halfway += "done    //:x" in ran.err
        assert mini.ok("cache", "verify").out == ""
    assert halfway
    assert mini.counts("//:y")["failed"] == 0
    assert (mini.root / "cache/out/y/folder/b").read_text() == "folder/b {}"
    assert not list((mini.root / "cache/work").glob("*"))


VERB = """
import errno, sys
from marin_cas.disk import disk_problem
from marin_cas.store.local import LocalStore
def broken(self, *args, **kwargs):
    raise disk_problem(OSError(errno.EIO, "", "some/blob"))
setattr(LocalStore, sys.argv[1], broken)
from marin_cas.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def test_each_verb_of_a_store_that_does_not_work(mini: Mini) -> None:
    """Row 26: the message names what was asked of which file, and nothing half done is believed afterwards."""
    two(mini, 0)
    mini.ok("build", "//:y")
    for round, verb in enumerate(("contains", "missing", "read", "put", "put_file"), 1):
        two(mini, round)
        ran = subprocess.run(
            [sys.executable, "-c", VERB, verb, "build", "//:y"],
            cwd=mini.root, env=mini.environ(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 3, ran.stderr
        assert "`some/blob`: the disk reported an input/output error" in ran.stderr
        assert TRACEBACK not in ran.stderr
        assert not ran.stdout
    assert mini.ok("cache", "verify").out == ""
    assert mini.counts("//:y")["executed"] == 2


def test_a_cache_that_may_not_be_written(mini: Mini) -> None:
    two(mini, 0)
    mini.ok("build", "//:y")
    # Whatever only looks works there.
    assert "nothing changed" in on_a_bad_disk(mini, 1, 30, CHANGES, "build", "//:y").err
    for args in (("build", "-n", "//:y"), ("why", "//:y"), ("path", "//:y"), ("cache", "verify")):
        ran = on_a_bad_disk(mini, 1, 30, CHANGES, *args)
        assert ran.code == 0, ran.err
    two(mini, 1)
    ran = on_a_bad_disk(mini, 1, 30, CHANGES, "build", "//:y", "--progress", "none")
    assert ran.code == 3
    assert f"error: `{mini.root}/cache" in ran.err
    assert "the file system is read-only" in ran.err
    assert mini.ok("cache", "verify").out == ""
    assert mini.counts("//:y")["executed"] == 2
