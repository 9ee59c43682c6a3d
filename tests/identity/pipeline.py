"""The smallest pipeline that uses every rule: a few kilobytes of text, a model of one layer, eight steps."""

from __future__ import annotations

from tests.identity.space import ELSEWHERE, Declared

FUNCTIONS = '''"""Documents and questions made from a seed."""

import json
import os
import random

WORDS = "the a cat dog tree runs sees under over green old and then house river stone".split()


def documents(ctx):
    """Lines of JSON with `text` and `title`. Says in its log how many cores it may use."""
    print(f"cores: {len(os.sched_getaffinity(0))}")
    chance = random.Random(ctx.params["seed"])
    lines = []
    for number in range(ctx.params["count"]):
        text = " ".join(chance.choice(WORDS) for _ in range(40))
        lines.append(json.dumps({"text": text, "title": f"document {number}"}))
    (ctx.output_path / "documents.jsonl").write_text("\\n".join(lines) + "\\n")


def more_documents(ctx):
    documents(ctx)


def copy(ctx):
    """The first lines of every input."""
    for name, folder in sorted(ctx.inputs.items()):
        for file in sorted(folder.rglob("*.jsonl")) if folder.is_dir() else [folder]:
            lines = file.read_text().splitlines()[: ctx.params.get("lines", 1000)]
            (ctx.output_path / f"{name}.jsonl").write_text("\\n".join(lines) + "\\n")


def questions(ctx):
    chance = random.Random(1)
    lines = []
    for number in range(6):
        said = [" ".join(chance.choice(WORDS) for _ in range(4)) for _ in range(3)]
        lines.append(json.dumps({"context": said[0], "choices": said[1:], "answer": number % 2}))
    (ctx.output_path / "test.jsonl").write_text("\\n".join(lines) + "\\n")
'''

TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: questions/test.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: answer
target_delimiter: " "
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1
"""

FILES = {
    "exp/functions.py": FUNCTIONS,
    "exp/task.yaml": TASK.format(name="goes_on"),
    "exp/other_task.yaml": TASK.format(name="goes_elsewhere"),
    "exp/notes.jsonl": '{"text": "a green tree under the old house", "title": "note"}\n',
}

LLAMA = {
    "max_seq_len": "32",
    "hidden_dim": "16",
    "intermediate_dim": "32",
    "num_layers": "1",
    "num_heads": "2",
    "num_kv_heads": "1",
}
FUNCTION = '"exp/functions.py:{}"'
# What the Hub that is built against has at this commit: `dataset me/words` with documents, `me/cache` with the cache
# that `web` is.
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def call(function: str, **fields: str) -> str:
    return f"{function}({', '.join(f'{name} = {value}' for name, value in fields.items())})"


TRAIN = {
    "model": call("llama", **LLAMA),
    "optimizer": call("adam", learning_rate="3e-3", warmup="0.25"),
    "datasets": '":mix"',
    "batch_size": "2",
    "seq_len": "32",
    "num_train_steps": "8",
    "z_loss_weight": "0",
    "export_every": "5",
    "mp": '"f32"',
}


def _documents(name: str, seed: int, count: int) -> Declared:
    params = f'{{"seed": {seed}, "count": {count}}}'
    return Declared(name, "raw_download", {"function": FUNCTION.format("documents"), "params": params})


def _tokenized(name: str, raw: str, tokenizer: str = "tok", **attrs: str) -> Declared:
    # The component's name is stated: its default is the artifact's name, and there that one is in a key.
    fields = {"raw": f'":{raw}"', "glob": '"*.jsonl"', "tokenizer": f'":{tokenizer}"', "component": f'"{name}"'}
    return Declared(name, "tokenized", fields | attrs)


_PIPELINE = (
    _documents("docs", 0, 30),
    _documents("others", 1, 20),
    Declared(
        "copied",
        "py_action",
        {"function": FUNCTION.format("copy"), "inputs": '{"docs": ":others", "notes": "notes.jsonl"}'},
    ),
    Declared("questions", "raw_download", {"function": FUNCTION.format("questions")}),
    Declared("fetched", "hf_download", {"hf_id": '"me/words"', "revision": f'"{COMMIT}"', "urls_glob": '["*.jsonl"]'}),
    Declared(
        "made",
        "pretokenized",
        {"repo_id": '"me/cache"', "revision": f'"{COMMIT}"', "tokenizer": '":tok"', "component": '"made"'},
    ),
    Declared("taken", "adopted", {"source": f'"{ELSEWHERE}/"'}),
    Declared("tok", "trained_tokenizer", {"raw": '":docs"', "glob": '"*.jsonl"', "vocab_size": "280"}),
    Declared("same_tok", "tokenizer", {"files": '":tok"'}),
    _tokenized("web", "docs"),
    _tokenized("code", "copied", "same_tok"),
    _tokenized("held", "others", validation="True", sample_count="12"),
    Declared(
        "mix",
        "mixture",
        {"train": '{":web": 0.7, ":code": 0.3}', "validation": '[":held"]', "shuffle": '{"io_block_size": 8}'},
    ),
    Declared("model", "train_lm", TRAIN),
    Declared(
        "score",
        "lm_eval",
        {
            "checkpoint": '":model"',
            "tasks": '["goes_on"]',
            "task_files": '["task.yaml"]',
            "data": '{"questions": ":questions"}',
            "num_fewshot": "0",
            "batch_size": "4",
        },
    ),
)
# Fixed versions, so that any one of them can be given another.
PIPELINE = tuple(Declared(t.name, t.rule, {**t.attrs, "version": '"2026.01.30"'}) for t in _PIPELINE)
