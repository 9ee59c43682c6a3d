"""What is declared in Python and in a BUILD file is the same: every rule, with generated attributes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from marin_cas import api
from marin_cas.analysis.lock import lock_text
from marin_cas.api import workshop
from marin_cas.api.lowering import lowered
from marin_cas.api.step import ArtifactStep
from marin_cas.lang.loader import Loader
from tests.identity.analysed import analysed
from tests.identity.space import LOADS, RULES, all_rules, lock

MORE = 'load("@marin//rules:data.bzl", "adopted")\n'
FUNCTION = "def f(ctx):\n    pass\n"

text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8) | st.sampled_from(
    ["\n", '"', "\\", "$x", "a"]
)
name = st.text("abcz_", min_size=1, max_size=4)
number = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1e-3, 1e22, 3.0])
integer = st.integers(-(1 << 62), 1 << 62)
plain = st.recursive(
    st.none() | st.booleans() | integer | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
version = st.sampled_from(["dev", "my-dev", "2026.06.28", "2026.06.28.2"])
revision = st.sampled_from(["main", "v1", "0123456", "0123456789abcdef0123456789abcdef01234567"])


def some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A dict with any of these."""
    return st.fixed_dictionaries({}, optional=optional)


class Ref(str):
    """The label of a target in a BUILD file; the step of that name in Python."""


def generated() -> st.SearchStrategy[list[tuple[str, str, dict[str, Any]]]]:
    """Targets of every rule as rule, name and attributes, whatever they need before them."""

    def target(rule: str, called: str, fixed: Mapping[str, Any], drawn: st.SearchStrategy[dict[str, Any]]):
        return drawn.map(lambda found: (rule, called, {**fixed, **found}))

    function = {"function": "f.py:f"}
    model = st.fixed_dictionaries(
        {"type": st.just("llama"), "hidden_dim": st.sampled_from([8, 16]), "max_seq_len": st.just(16)},
        optional={"tie_word_embeddings": st.booleans(), "initializer_range": st.floats(0.01, 1.0)},
    ).map(lambda fields: {**fields, "num_heads": 1, "num_kv_heads": 1})
    optimizer = some(learning_rate=st.floats(1e-6, 1.0), warmup=st.integers(2, 5), beta1=st.floats(0.1, 0.9))
    return st.tuples(
        target("hf_download", "fetched", {"hf_id": "me/words"}, st.fixed_dictionaries({"revision": revision})),
        target("raw_download", "drawn", function, some(params=st.dictionaries(text, plain, max_size=3))),
        target("raw_download", "urls", {"urls": ["https://h/a.jsonl", "gs://b/x/"]}, some(tags=st.lists(name))),
        target("py_action", "made", {**function, "inputs": {"a": Ref("drawn")}}, some(params=st.just({"x": [1, 1.0]}))),
        target(
            "trained_tokenizer",
            "trained",
            {"paths": ["a.txt", "sub/b.txt"], "vocab_size": 300},
            some(min_frequency=st.integers(1, 9), eos=st.sampled_from(["", "<e>"]), text_key=st.sampled_from(["t"])),
        ),
        target("tokenizer", "named", {"files": "me/llama@v1"}, some(version=version)),
        target("adopted", "far", {"source": "gs://b/y/"}, some(tags=st.lists(name))),
        target(
            "tokenized",
            "corpus",
            {"raw": Ref("fetched"), "glob": "*.jsonl", "tokenizer": Ref("trained")},
            some(text_key=text.filter(bool), sample_count=st.integers(1, 9), component=name),
        ),
        target(
            "tokenized",
            "held",
            {"paths": ["a.txt"], "tokenizer": Ref("trained"), "validation": True},
            some(sample_count=st.integers(1, 9)),
        ),
        target("tokenized", "hub", {"source": "me/set@v2", "tokenizer": "me/llama"}, some(split=st.just("train"))),
        target(
            "pretokenized",
            "ready",
            {"repo_id": "me/cache", "tokenizer": "me/llama"},
            some(revision=revision, folder=name, validation=st.booleans()),
        ),
        target(
            "mixture",
            "mixed",
            {"validation": [Ref("held")]},
            st.fixed_dictionaries(
                {"train": st.floats(0.01, 9.0).map(lambda weight: {Ref("corpus"): weight})},
                optional={
                    "shuffle": st.booleans() | st.just({"io_block_size": 3}),
                    "stop_strategy": st.sampled_from(["restart", "all_exhausted"]),
                },
            ),
        ),
        target(
            "train_lm",
            "model",
            {
                "datasets": Ref("mixed"),
                "batch_size": 2,
                "seq_len": 8,
                "num_train_steps": 6,
                "evals": {"tasks": ["piqa"], "every": 2},
                "resources": {"device": "cpu", "cpu": 2.0},
            },
            st.fixed_dictionaries(
                {"model": model, "optimizer": optimizer, "z_loss_weight": st.floats(0.0, 1.0)},
                optional={
                    "seed": st.integers(0, 9),
                    "mp": st.sampled_from(["f32", "p=f32,c=bfloat16"]),
                    "env_vars": st.just({"XLA_FLAGS": "x", "WANDB_MODE": "offline"}),
                    "version": version.filter(lambda version: version.endswith("dev")),
                },
            ),
        ),
        target(
            "lm_eval",
            "scores",
            {"checkpoint": Ref("model"), "task_files": ["t.yaml"]},
            st.fixed_dictionaries(
                {"tasks": st.sampled_from([["mine"], [{"name": "mine", "num_fewshot": 2, "task_alias": "x"}]])},
                optional={"limit": st.integers(1, 9), "nproc": st.integers(1, 4)},
            ),
        ),
    ).map(list)


def starlark(value: Any) -> str:
    """Written by other code than what is tested."""
    if isinstance(value, Ref):
        return f'":{value}"'
    if isinstance(value, list):
        return "[" + ", ".join(map(starlark, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{starlark(key)}: {starlark(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def declared(targets: list[tuple[str, str, dict[str, Any]]]) -> str:
    calls = []
    for rule, called, attrs in targets:
        written = "".join(f", {attr} = {starlark(value)}" for attr, value in attrs.items())
        calls.append(f'{rule}(name = "{called}", artifact = "{called}"{written})\n')
    return f"{LOADS}{MORE}" + "".join(calls)


def steps_of(targets: list[tuple[str, str, dict[str, Any]]]) -> list[ArtifactStep[Any]]:
    steps: dict[str, ArtifactStep[Any]] = {}

    def given(value: Any) -> Any:
        if isinstance(value, Ref):
            return steps[value]
        if isinstance(value, list):
            return [given(item) for item in value]
        return {given(key): given(item) for key, item in value.items()} if isinstance(value, dict) else value

    for rule, called, attrs in targets:
        arguments = given(attrs)
        if rule == "adopted":
            steps[called] = ArtifactStep.adopt(called, "dev", arguments.pop("source"), config=arguments)
        elif rule == "train_lm":
            evals = api.EvalSuite(**arguments.pop("evals"))
            steps[called] = api.train_lm(name=called, evals=evals, **arguments)
        elif rule == "mixture":
            steps[called] = api.mixture(arguments.pop("train"), name=called, **arguments)
        else:
            steps[called] = getattr(api, rule)(called, **arguments)
    return list(steps.values())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("both") / "w"
    files = {"marin.toml": "", "marin.lock": lock_text(lock()), "f.py": FUNCTION, "a.txt": "a\n", "sub/b.txt": "b\n"}
    for path, content in (files | {"t.yaml": "task: mine\n"}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


# An example is two analyses: shrinking one takes minutes and tells little more.
@settings(max_examples=8, deadline=None, phases=[Phase.generate])
@given(targets=generated())
def test_both_front_ends_give_every_action_the_same_fingerprint(
    root: Path, targets: list[tuple[str, str, dict[str, Any]]]
) -> None:
    assert {rule for rule, _, _ in targets} == set(all_rules()), "a new rule is compared too"
    (root / "BUILD.marin").write_text(declared(targets), encoding="utf-8")
    written = {id.removeprefix("//:"): action.fingerprint for id, action in analysed(root).actions.items()}
    workshop.use(root, Loader(root, RULES))
    try:
        steps = steps_of(targets)
        found = lowered([*steps, *(step.evals for step in steps if step.evals)])
        prints = {id.partition(":")[2]: action.fingerprint for id, action in found.analysis.actions.items()}
        assert prints == written and len(prints) > len(targets)
        ran = [step for step in steps if step.name != "mixed"]
        assert {step.name: bytes.fromhex(step.fingerprint()) for step in ran} == {s.name: written[s.name] for s in ran}
    finally:
        shutil.rmtree(root / "cache", ignore_errors=True)
