"""Keys: golden vectors that no change may move, and what may and may not reach a key."""

from __future__ import annotations

import ast
import json
from dataclasses import fields, replace
from pathlib import Path

import cbor2
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError, encode
from marin_cas.recipe import Input, Pending, Recipe
from marin_cas.result import Cost, Output, Producer, Result
from marin_cas.tree.entries import Tree

GOLDEN = Path(__file__).parent.parent / "golden" / "keys-1.json"
VECTORS = json.loads(GOLDEN.read_text(encoding="utf-8"))


def _oracle(value) -> bytes:
    return cbor2.dumps(value, canonical=True)


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda v: v["name"])
def test_values_encode_as_frozen(vector):
    value = ast.literal_eval(vector["value"])
    assert encode(value).hex() == vector["encoding"]
    assert _oracle(ast.literal_eval(vector.get("folded", vector["value"]))).hex() == vector["encoding"]


@pytest.mark.parametrize("vector", VECTORS["records"], ids=lambda v: v["name"])
def test_records_hash_as_frozen(vector):
    value = ast.literal_eval(vector["value"])
    record = vector["header"].encode() + b"\n" + _oracle(value)
    assert blake3(record).hexdigest() == vector["digest"]
    assert _ours(vector["header"], value) == record


def _ours(header: str, value) -> bytes:
    if header == "marin-cas tree 1":
        return Tree.parse(header.encode() + b"\n" + encode(value)).record()
    inputs = {
        name: Input(rest[0], Digest(*rest[1])) if len(rest) == 2 else Pending(*rest)
        for name, rest in value["inputs"].items()
    }
    recipe = Recipe(**{**value, "inputs": inputs})
    return recipe.record() if header == "marin-cas recipe 1" else recipe.fingerprint_record()


def _recipe(**changes) -> Recipe:
    base = Recipe(
        tool="tokenize",
        revision=3,
        params={"text_key": "text", "limits": {"a": 1, "b": [1.0, True, None]}},
        inputs={"docs": Input("tree", Digest.of(b"docs")), "tokenizer": Input("tree", Digest.of(b"tok"))},
        outputs={"cache": "tree"},
        env={"A": "1"},
        toolchain={"tokenizers": "0.22.2"},
    )
    return replace(base, **changes)


def test_every_field_reaches_the_key():
    changed = {
        "tool": "other",
        "revision": 4,
        "params": {"text_key": "body"},
        "inputs": {"docs": Input("file", Digest.of(b"docs"))},
        "outputs": {"cache": "file"},
        "env": {},
        "toolchain": {"tokenizers": "0.22.3"},
        "version": "dev",
    }
    assert set(changed) == {f.name for f in fields(Recipe)}
    keys = {_recipe().key()} | {_recipe(**{name: value}).key() for name, value in changed.items()}
    assert len(keys) == 1 + len(changed)


@given(st.permutations(["text_key", "limits"]), st.permutations(["docs", "tokenizer"]))
def test_order_is_no_matter(params, inputs):
    base = _recipe()
    shuffled = replace(base, params={n: base.params[n] for n in params}, inputs={n: base.inputs[n] for n in inputs})
    assert shuffled.key() == base.key()


def test_a_recipe_can_be_read_back():
    assert Recipe.parse(_recipe(version="2026.06.28").record()) == _recipe(version="2026.06.28")
    for record in (b"", b"marin-cas recipe 1\n", b"marin-cas recipe 2\n\xa0", b"marin-cas recipe 1\n\xa0"):
        with pytest.raises(EncodingError):
            Recipe.parse(record)


def test_a_recipe_with_an_unbuilt_input_has_a_fingerprint_only():
    recipe = _recipe(inputs={"docs": Pending("tree", b"f" * 32, "out")})
    assert len(recipe.fingerprint()) == 32
    assert recipe.fingerprint() != _recipe().fingerprint()
    with pytest.raises(ValueError, match="`docs` is not built yet"):
        recipe.key()


def test_a_blob_that_looks_like_a_recipe_is_only_bytes():
    # The record is in the CAS under its key: equal bytes are the same blob, and the header keeps kinds apart.
    assert Digest.of(_recipe().record()) == _recipe().key()
    assert _recipe().fingerprint() != _recipe().key().hash


def test_results_round_trip():
    result = Result(
        key=_recipe().key(),
        fingerprint=_recipe().fingerprint(),
        outcome="sampled",
        outputs={"hf": Output("tree", Digest.of(b"hf")), "metrics": Output("file", Digest.of(b"m"), True)},
        producer=Producer("ann", "host", "c0ffee", True, {"python": "3.12.1"}, Digest.of(b"env")),
        started=1.5,
        finished=2.0,
        cost=Cost(0.5, 0.25, 1, 2, 3, 4, {"cpu": 1.0}),
        log=Digest.of(b"log"),
        producer_keys=(b"b" * 32, b"a" * 32),
        label="//exp:tiny",
        artifact="exp/tiny@dev",
    )
    again = Result.parse(result.record())
    assert again == replace(result, producer_keys=(b"a" * 32, b"b" * 32))
    with pytest.raises(EncodingError):
        Result.parse(result.record()[:-1])
