"""What users of other training pipelines suffered (shared list, section F), where no other test has it."""

from __future__ import annotations

from tests.cli.conftest import Mini

BUILD = """
load("@marin//rules:data.bzl", "raw_download", "tokenized", "trained_tokenizer")
load("@marin//rules:mixture.bzl", "mixture")
load("@marin//rules:models.bzl", "adam", "llama")
load("@marin//rules:train.bzl", "train_lm")

[
    raw_download(name = name, function = "data.py:" + name)
    for name in ["whole", "broken"]
]

trained_tokenizer(name = "tokenizer", raw = ":whole", glob = "*.jsonl", vocab_size = 270)

[
    tokenized(name = name + "_tokens", raw = ":" + name, glob = "*.jsonl", tokenizer = ":tokenizer")
    for name in ["whole", "broken"]
]

mixture(name = "mix", train = {":whole_tokens": 0.5, ":broken_tokens": 0.5})

train_lm(
    name = "model",
    batch_size = 2,
    datasets = ":mix",
    model = llama(hidden_dim = 8, intermediate_dim = 8, max_seq_len = 16, num_heads = 1, num_kv_heads = 1, num_layers = 1),
    num_train_steps = 1,
    optimizer = adam(learning_rate = 1e-3),
    seq_len = 16,
    z_loss_weight = 0.0,
)
"""  # noqa: E501
DATA = """
import json


def write(ctx, count):
    lines = [json.dumps({"text": f"line {n} of a text that is long enough"}) for n in range(count)]
    (ctx.output_path / "a.jsonl").write_text("\\n".join(lines) + "\\n")


def whole(ctx):
    write(ctx, 50)


def broken(ctx):
    write(ctx, 20)
    raise OSError("the server went away after 20 of 50 lines")
"""


def test_55_a_component_that_is_not_finished_ends_the_training_and_not_the_others(mini: Mini) -> None:
    mini.write({"BUILD.marin": BUILD, "data.py": DATA})
    mini.ok("lock")
    ran = mini.run("build", "-k", "//:model", "//:whole_tokens", "--output", "json", code=1)
    outputs = {label: sorted(target["outputs"]) for label, target in ran.json["targets"].items()}
    assert outputs == {"//:model": [], "//:whole_tokens": ["cache"]}
    assert "the server went away" in ran.err
    # Neither what was made of half the lines nor anything trained without them is there.
    for label in ("//:broken", "//:broken_tokens", "//:model"):
        assert mini.run("path", label).code != 0
    assert ran.json["counts"]["skipped"] == 2  # the tokens and the training
