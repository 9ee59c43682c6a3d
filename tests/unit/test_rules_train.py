"""The rules of training and of mixtures: what starts from what, what bears identity, what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marin_cas.action import Action, Built
from marin_cas.errors import MarinError
from tests.unit.test_rules_pipeline import action, analysed

MODEL = "llama(hidden_dim = 8, num_heads = 1, num_kv_heads = 1, max_seq_len = 16{more})"


def train(name: str = "m", model: str = "", **attrs: str) -> str:
    fields = {
        "datasets": '":mix"',
        "batch_size": "2",
        "num_train_steps": "6",
        "seq_len": "8",
        "z_loss_weight": "0.0",
        "model": model if model[:1] == "{" else MODEL.format(more=model and f", {model}"),
        "optimizer": "adam()",
    } | attrs
    return f'\ntrain_lm(name = "{name}", {", ".join(f"{k} = {v}" for k, v in fields.items() if v)})\n'


MIX = '\nmixture(name = "mix", train = {":a": 1}, validation = [":val"])\n'


def made(root: Path, build: str, target: str = "m") -> Action:
    return action(root, MIX + build, target)


def refusal(root: Path, build: str, target: str = "m") -> str:
    with pytest.raises(MarinError) as caught:
        made(root, build, target)
    assert "BUILD.marin:" in caught.value.render()
    return caught.value.render()


@pytest.mark.parametrize("name", ["optimizer", "datasets", "batch_size", "seq_len", "num_train_steps"])
def test_what_a_training_is_has_no_default(tmp_path: Path, name: str) -> None:
    assert f"needs the attribute `{name}`" in refusal(tmp_path, train(**{name: ""}))
    written = train()
    assert "needs the attribute `model`" in refusal(tmp_path, written.replace(f"model = {MODEL.format(more='')}, ", ""))


def test_tokenized_sets_with_weights_are_a_mixture(tmp_path: Path) -> None:
    inline = made(tmp_path / "1", train(datasets='{":a": 3, ":b": 1}', validation='[":val"]'))
    build = '\nmixture(name = "two", train = {":b": 1.0, ":a": 3.0}, validation = [":val"])\n'
    assert inline.fingerprint == made(tmp_path / "2", build + train(datasets='":two"')).fingerprint
    one = made(tmp_path / "3", train(datasets='":a"'))
    assert one.fingerprint == made(tmp_path / "4", train(datasets='{":a": 1}')).fingerprint


def test_validation_sets_are_added_to_those_of_the_mixture(tmp_path: Path) -> None:
    more = 'tokenized(name = "w", raw = ":raw", glob = "w.jsonl", tokenizer = ":tok", validation = True)\n'
    found: Any = made(tmp_path, more + train(validation='[":w"]')).params["components"]
    assert [(c["name"], c["weight"], c["validation"]) for c in found] == [
        ("a", 1.0, False),
        ("val", 0.0, True),
        ("w", 0.0, True),
    ]


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"seq_len": "17"}, "`seq_len` is 17, and the model's `max_seq_len` is 16"),
        ({"datasets": '":tok"'}, "neither a mixture nor a tokenized set"),
        ({"datasets": '{":mix": 2}'}, "has a weight"),
        ({"datasets": '{":mix": 1, ":a": 1}'}, "`//:mix` is neither a mixture nor a tokenized set"),
        ({"datasets": "{}"}, "`train` is empty"),
        ({"datasets": '{":a": -1, ":b": 2}'}, "the weight of `//:a` is negative"),
        ({"datasets": '{":a": 0}'}, "add up to 0"),
        ({"datasets": '{":a": float("nan")}'}, "`datasets.:a` is not a finite number"),
        ({"datasets": '{":a": 1, ":other": 1}'}, "`//:a` and `//:other` were tokenized with different ones"),
        ({"validation": '[":val"]'}, "two components are named `val`"),
        ({"validation": '[":b"]'}, "`//:b` is a training set"),
        ({"tensor_parallel_size": "0"}, "`tensor_parallel_size` is 0"),
        ({"env_vars": '{"WANDB_API_KEY": "x"}'}, "name it in `secrets`"),
        ({"env_vars": '{"NPROC": "2"}'}, "`NPROC` is set by `train_lm`"),
        ({"init_weights_only": "True"}, "goes with `init_from`"),
        ({"optimizer": "adam(max_grad_norm = float('nan'))"}, "`optimizer.max_grad_norm` is not a finite number"),
        ({"model": "head_dim = float('nan')"}, "`model.head_dim` is not a finite number"),
        ({"model": '{"type": "lama"}'}, "did you mean `llama`?"),
        ({"optimizer": '{"type": "adamm"}'}, "did you mean `adam`?"),
        ({"optimizer": '{"type": "muon", "momentm": 0.9}'}, "did you mean `momentum`?"),
    ],
)
def test_what_is_wrong_is_refused_where_it_is_written(tmp_path: Path, attrs: dict[str, str], message: str) -> None:
    assert message in refusal(tmp_path, train(**attrs))


START = train("start")


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"model": "num_layers = 3"}, "`num_layers` of `//:start` is 32, and that of `model` is 3"),
        ({"model": "tie_word_embeddings = True"}, "`tie_word_embeddings` of `//:start` is false"),
        ({"optimizer": '{"type": "lion"}'}, "`//:start` was trained with `adam`, whose state is none for `lion`"),
        ({"datasets": '":other"'}, "`//:start` was trained with another tokenizer"),
        ({"init_from": '":tok2_notes"'}, "neither a training nor a tree with a Hugging Face model"),
    ],
)
def test_another_model_optimizer_or_tokenizer_is_no_start(tmp_path: Path, attrs: dict[str, str], message: str) -> None:
    more = '\nfilegroup(name = "tok2_notes", srcs = ["f.py"])\n'
    assert message in refusal(tmp_path, START + more + train(**{"init_from": '":start"'} | attrs))


def test_another_family_is_no_start(tmp_path: Path) -> None:
    qwen = train("m", init_from='":start"').replace("model = llama(", "model = qwen3(")
    load = '\nload("@marin//rules:models.bzl", "qwen3")\n'
    assert "`//:start` is a `llama`, and `model` is a `qwen3`" in refusal(tmp_path, load + START + qwen)


def test_the_name_of_the_input_says_what_is_taken_of_a_start(tmp_path: Path) -> None:
    whole = made(tmp_path / "1", START + train(init_from='":start"')).inputs
    weights = made(
        tmp_path / "2", START + train(init_from='":start"', init_weights_only="True", optimizer='{"type": "lion"}')
    )
    hf = made(tmp_path / "3", train(init_from='":raw"')).inputs
    assert whole["init"] == weights.inputs["init_weights"] == Built("//:start", "native", "tree")
    assert hf["init_hf"] == Built("//:raw", "files", "tree")
    assert not {"init_weights", "init_hf"} & whole.keys()


def test_what_changes_no_shape_may_differ_from_the_start(tmp_path: Path) -> None:
    more = 'gradient_checkpointing = False, rope = {"type": "llama3"}, initializer_range = 0.01, upcast_attn = True'
    assert "init" in made(tmp_path, START + train(model=more, init_from='":start"')).inputs


def test_variables_that_change_no_weight_stay_out_of_the_key(tmp_path: Path) -> None:
    plain = made(tmp_path / "1", train())
    told = made(tmp_path / "2", train(env_vars='{"WANDB_ENTITY": "us", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".9"}'))
    flags = made(tmp_path / "3", train(env_vars='{"XLA_FLAGS": "--x", "WANDB_ENTITY": "us"}'))
    assert told.fingerprint == plain.fingerprint != flags.fingerprint
    assert told.settings["env_vars"] == {"WANDB_ENTITY": "us", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".9"}
    assert (flags.env, flags.settings["env_vars"]) == ({"XLA_FLAGS": "--x"}, {"WANDB_ENTITY": "us"})


def test_a_run_is_told_to_wandb_by_its_key_alone(tmp_path: Path) -> None:
    told = made(tmp_path, train(tags='["x"]', wandb_group='"g"', run_id='"first"', secrets='["TOKEN"]'))
    assert told.secrets == ("TOKEN", "WANDB_API_KEY?")
    assert {name: told.settings[name] for name in ("wandb_project", "wandb_group", "run_id", "tags")} == {
        "wandb_project": "marin",
        "wandb_group": "g",
        "run_id": "first",
        "tags": ["x"],
    }
    assert made(tmp_path / "1", train()).settings["run_id"] == "m"
    assert made(tmp_path / "2", train(secrets='["WANDB_API_KEY"]')).secrets == ("WANDB_API_KEY",)


def test_a_mixture_without_further_options_has_the_key_it_had(tmp_path: Path) -> None:
    assert "mixture" not in made(tmp_path / "1", train()).params
    build = (
        '\nmixture(name = "o", train = {":a": 1, ":b": 1}, max_train_batches = {":b": 4}, mixture_block_size = 8, '
        'stop_strategy = "first_exhausted", shuffle = %s)\n'
    )
    found = made(tmp_path / "2", build % "True" + train(datasets='":o"')).params
    assert found["mixture"] == {
        "max_train_batches": {"b": 4},
        "mixture_block_size": 8,
        "stop_strategy": "first_exhausted",
    }
    assert found["shuffle"] is True
    assert made(tmp_path / "3", build % "False" + train(datasets='":o"')).params["shuffle"] is False


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ("shuffle = 3", "True (everything), False (nothing)"),
        ('max_train_batches = {":b": 1}', "`//:b` is not in `train`"),
        ('max_train_batches = {":a": 1.5}', "must be a positive integer"),
        ("mixture_block_size = 0", "must be at least 1"),
        ('stop_strategy = "restrat"', "did you mean"),
    ],
)
def test_wrong_options_of_a_mixture(tmp_path: Path, attrs: str, message: str) -> None:
    assert message in refusal(tmp_path, f'mixture(name = "m", train = {{":a": 1}}, {attrs})\n')


def test_every_analysed_target_says_what_it_trained_on_and_how_long(tmp_path: Path) -> None:
    info = analysed(tmp_path, MIX + train(export_every="2"), "//:m")
    (found,) = (target.providers["CheckpointInfo"] for label, target in info.targets.items() if str(label) == "//:m")
    assert (found["steps"], found["tokens"], found["export_every"]) == (6, 96, 2)
    assert list(found["exports"]) == ["2", "4"]
    assert found["optimizer"]["type"] == "adam"


HELD = 'tokenized(name = "{name}", {source}, tokenizer = ":tok", validation = True{more})\n'


@pytest.mark.parametrize(
    ("source", "more"),
    [
        ('raw = ":raw", glob = "a.jsonl"', ""),
        ('raw = ":raw", glob = "a.jsonl"', ', sample_count = 5, text_key = "other"'),
        ('raw = ":again", glob = "a.jsonl"', ""),
    ],
)
def test_a_validation_set_that_is_also_trained_on(tmp_path: Path, source: str, more: str) -> None:
    again = 'raw_download(name = "again", function = "f.py:make")\n'
    build = again + HELD.format(name="held", source=source, more=more)
    for use in (
        'mixture(name = "m", train = {":a": 1}, validation = [":held"])\n',
        train(datasets='{":a": 1}', validation='[":held"]'),
        train(validation='[":held"]'),
    ):
        message = refusal(tmp_path, build + use)
        assert "the validation set `//:held` is also trained on: `//:a` is made from the same documents" in message


def test_other_documents_or_a_weight_of_nothing_are_held_out(tmp_path: Path) -> None:
    build = HELD.format(name="held", source='raw = ":raw", glob = "held.jsonl"', more="")
    made(tmp_path / "1", build + train(datasets='{":a": 1}', validation='[":held"]'))
    build = HELD.format(name="held", source='raw = ":raw", glob = "a.jsonl"', more="")
    made(tmp_path / "2", build + train(datasets='{":a": 0, ":b": 1}', validation='[":held"]'))
