"""Literal configs: what expands, what is refused and how the message reads."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.analysis.lock import Lock
from marin_cas.analysis.schema import SCHEMAS, expand
from marin_cas.encoding import encode
from marin_cas.errors import Location, RequestError

VERSION = "0.2.227.dev40316220070"
LOCK = Lock({"marin-levanter": VERSION})
WHERE = Location("exp/BUILD.marin", 7)
MODEL, OPTIMIZER, TRAINER = "levanter.LmConfig", "levanter.OptimizerConfig", "levanter.TrainerConfig"


def expanded(name: str, **fields: Any) -> dict[str, Any]:
    return expand(name, fields, lock=LOCK, where=WHERE, what="`//exp:tiny`, attribute `model`")


def llama(**fields: Any) -> dict[str, Any]:
    return expanded(MODEL, type="llama", **fields)


def refusal(name: str, **fields: Any) -> str:
    with pytest.raises(RequestError) as caught:
        expanded(name, **fields)
    assert caught.value.render().startswith("error: exp/BUILD.marin:7: `//exp:tiny`, attribute `model`: ")
    return caught.value.render()


def test_all_fields_are_there_with_type_and_class() -> None:
    config = llama(hidden_dim=64, num_heads=4, num_kv_heads=2)
    assert config["type"] == "llama"
    assert config["class"] == "levanter.models.llama.LlamaConfig"
    assert config["intermediate_dim"] == 11008
    assert config["rope"] == {
        "type": "default",
        "class": "levanter.layers.rotary.DefaultRotaryEmbeddingsConfig",
        "theta": 10000.0,
        "factor": 1.0,
    }
    assert "tokenizer" not in config
    encode(config)


def test_every_choice_that_needs_nothing_expands_and_has_an_encoding() -> None:
    schema = json.loads((SCHEMAS / f"levanter-{VERSION}.json").read_text())
    for root in (MODEL, OPTIMIZER):
        for choice, cls in schema["roots"][root]["choices"].items():
            config = expanded(root, type=choice)
            assert set(config) == {"type", "class", *schema["classes"][cls]["fields"]}
            encode(config)


def test_the_optimizer_is_adam_unless_another_type_is_named() -> None:
    assert expanded(OPTIMIZER, learning_rate=1)["class"] == "levanter.optim.config.AdamConfig"
    assert expanded(OPTIMIZER, type="lion")["class"] == "levanter.optim.config.LionConfig"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"learning_rate": 3}, {"learning_rate": 3.0}),
        ({"warmup": 20}, {"warmup": 20.0}),
        ({"lr_schedule": "cosine"}, {}),
        ({"lr_schedule": "cosine"}, {"lr_schedule": {"type": "cosine", "exponent": 1}}),
        ({"skip_bad_steps": True}, {"skip_bad_steps": {}}),
        ({"skip_bad_steps": 9}, {"skip_bad_steps": {"rolling_interval_length": 9}}),
        ({"weight_decay": -0.0}, {"weight_decay": 0}),
    ],
)
def test_two_spellings_of_one_optimizer_are_one(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert encode(expanded(OPTIMIZER, **one)) == encode(expanded(OPTIMIZER, **other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"rope": {"type": "linear"}}, {}),
        ({"rope": {"type": "default", "theta": 10000}}, {}),
        ({"gradient_checkpointing": "recompute"}, {"gradient_checkpointing": "full"}),
    ],
)
def test_two_spellings_of_one_model_are_one(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert encode(llama(**one)) == encode(llama(**other))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"type": "llama", "hiden_dim": 64},
            "unknown field `hiden_dim` of LlamaConfig\n  hint: did you mean `hidden_dim`?",
        ),
        ({"type": "llama", "rope": {"type": "default", "thta": 1.0}}, "unknown field `rope.thta`"),
        ({"type": "llama", "rope": {"theta": 1.0}}, "field `rope`: it has no `type`"),
        ({"type": "llama", "rope": None}, "field `rope` must be a dict of fields, not `None`"),
        ({}, "it has no `type`"),
        ({"type": "lama"}, "unknown type `lama`\n  hint: did you mean `llama`?"),
        ({"type": 3}, "its `type` `3` is not text"),
        ({"type": "mixtral"}, "`mixtral` does not train here"),
        ({"type": "llama", "hidden_dim": 64.0}, "field `hidden_dim` must be an integer, not `64.0`"),
        ({"type": "llama", "hidden_dim": True}, "field `hidden_dim` must be an integer, not `True`"),
        ({"type": "llama", "hidden_dim": "64"}, 'field `hidden_dim` must be an integer, not `"64"`'),
        ({"type": "llama", "hidden_dim": None}, "a NaN or an infinity reads as None"),
        ({"type": "llama", "num_layers": 0}, "`0` is not positive"),
        ({"type": "llama", "scan_layers": 1}, "field `scan_layers` must be True or False, not `1`"),
        ({"type": "llama", "activation_function": "sillu"}, "did you mean `silu`?"),
        ({"type": "llama", "gradient_checkpointing": "nestd"}, "did you mean `nested`?"),
        ({"type": "llama", "tokenizer": "gpt2"}, "field `tokenizer` is set by `train_lm`"),
        ({"type": "llama", "class": "x"}, "unknown field `class`"),
        ({"type": "llama", "use_qk_norm": True}, "no Hugging Face form"),
        ({"type": "llama", "num_heads": 4}, "`num_heads` 4 is not a multiple of `num_kv_heads` 32"),
        ({"type": "llama", "hidden_dim": 66, "num_heads": 4, "num_kv_heads": 2}, "not a multiple of `num_heads` 4"),
        ({"type": "llama", "hidden_dim": 12, "num_heads": 4, "num_kv_heads": 2}, "a head of size 3 is odd"),
    ],
)
def test_a_wrong_model_is_refused(fields: dict[str, Any], message: str) -> None:
    assert message in refusal(MODEL, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"learning_rate": None}, "field `learning_rate` must be a number, not `None`"),
        ({"learning_rate": "1e-3"}, 'field `learning_rate` must be a number, not `"1e-3"`'),
        ({"learning_rate": float("nan")}, "field `learning_rate` must be a number, not `nan`"),
        ({"learning_rate": float("inf")}, "field `learning_rate` must be a number, not `inf`"),
        ({"learning_rate": True}, "field `learning_rate` must be a number, not `True`"),
        ({"learning_rate": -1}, "`-1.0` is negative"),
        ({"beta1": 1.0}, "`1.0` is not in [0, 1)"),
        ({"warmup": 1}, "`1` would mean all of the steps"),
        ({"warmup": 1.5}, "neither a fraction (at most 1.0) nor a whole number of steps"),
        ({"lr_schedule": "cosin"}, "unknown type `cosin`\n  hint: did you mean `cosine`?"),
        ({"lr_schedule": {"type": "power"}}, "field `lr_schedule.batch_size` of PowerLrSchedule is required"),
        ({"cycles": [1, 2.0]}, "field `cycles[1]` must be an integer"),
        ({"cycles": 2, "cycle_length": 0.5}, "it excludes `cycle_length`"),
        ({"type": "muon", "coefficient_type": "quintik"}, "did you mean `quintic`?"),
    ],
)
def test_a_wrong_optimizer_is_refused(fields: dict[str, Any], message: str) -> None:
    assert message in refusal(OPTIMIZER, **fields)


def test_fields_of_the_trainer_that_the_rule_owns_are_refused_with_the_attribute_to_use() -> None:
    assert "field `seed` is set by `train_lm`\n  hint: use the attribute `seed`" in refusal(TRAINER, seed=1)
    assert "field `log_dir` is set by `train_lm`" in refusal(TRAINER, log_dir="x")
    assert "unknown field `sed`" in refusal(TRAINER, sed=1)
    assert expanded(TRAINER)["per_device_parallelism"] == -1
    assert expanded(TRAINER, model_averaging={"type": "ema"})["model_averaging"]["beta"] == 0.999


def test_an_unknown_version_names_those_that_have_a_schema() -> None:
    with pytest.raises(RequestError) as caught:
        expand(MODEL, {"type": "llama"}, lock=Lock({"marin-levanter": "9.9"}), where=WHERE, what="x")
    assert "no schema of `marin-levanter` 9.9" in caught.value.message
    assert VERSION in caught.value.message


def test_what_is_returned_may_be_changed_without_touching_the_next() -> None:
    first = llama()
    first["rope"]["theta"] = 1.0
    assert llama()["rope"]["theta"] == 10000.0


@given(st.dictionaries(st.text(max_size=12), st.none() | st.booleans() | st.integers() | st.floats() | st.text()))
def test_any_literal_expands_or_is_refused_as_a_request(fields: dict[str, Any]) -> None:
    for name in (MODEL, OPTIMIZER, TRAINER):
        try:
            encode(expand(name, {"type": "llama", **fields}, lock=LOCK, where=WHERE, what="x"))
        except RequestError as error:
            assert error.where == WHERE


@given(
    st.sampled_from(
        ["hidden_dim", "learning_rate", "warmup", "rope", "gradient_checkpointing", "lr_schedule", "cycles"]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "theta"]), inner),
        max_leaves=5,
    ),
)
def test_any_value_of_a_field_expands_or_is_refused_as_a_request(field: str, value: Any) -> None:
    name = MODEL if field in ("hidden_dim", "rope", "gradient_checkpointing") else OPTIMIZER
    fields = {"type": "llama", field: value} if name == MODEL else {field: value}
    try:
        encode(expand(name, fields, lock=LOCK, where=WHERE, what="x"))
    except RequestError as error:
        assert error.where == WHERE


def test_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, marin_cas.analysis.schema as s, marin_cas.analysis.lock as l\n"
        f"lock = l.Lock({{'marin-levanter': {VERSION!r}}})\n"
        f"s.expand({MODEL!r}, {{'type': 'llama'}}, lock=lock, where=None, what='x')\n"
        "print([m for m in ('jax', 'levanter', 'numpy', 'draccus') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
