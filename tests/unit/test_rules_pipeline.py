"""The rules of data, mixtures and evaluation: what they refuse, and what gets into a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marin_cas.action import Action, Built, Source
from marin_cas.analysis.analysis import Analysis, analyse
from marin_cas.analysis.lock import Lock
from marin_cas.analysis.sources import Sources
from marin_cas.cache.cache import open_cache
from marin_cas.errors import MarinError
from marin_cas.graph.graph import load_graph
from marin_cas.label import Label, parse_label
from marin_cas.lang.loader import Loader

RULES = Path(__file__).resolve().parents[2] / "rules"
DISTRIBUTIONS = (
    *("tokenizers", "transformers", "marin-levanter", "marin-haliax", "tensorstore", "jax", "jaxlib", "optax"),
    *("lm-eval", "datasets"),
)
LOCK = Lock({**dict.fromkeys(DISTRIBUTIONS, "1"), "marin-levanter": "0.2.227.dev40316220070", "lm-eval": "0.4.13"})
LOADS = """
load("@marin//rules:data.bzl", "py_action", "raw_download", "tokenized", "tokenizer", "trained_tokenizer")
load("@marin//rules:eval.bzl", "lm_eval")
load("@marin//rules:mixture.bzl", "mixture")
load("@marin//rules:models.bzl", "adam", "llama")
load("@marin//rules:resources.bzl", "cpu", "gpu", "tpu")
load("@marin//rules:train.bzl", "train_lm")
"""
BASE = """
raw_download(name = "raw", function = "f.py:make")
trained_tokenizer(name = "tok", raw = ":raw", glob = "*.jsonl", vocab_size = 300)
trained_tokenizer(name = "tok2", raw = ":raw", glob = "*.jsonl", vocab_size = 301)
tokenized(name = "a", raw = ":raw", glob = "a.jsonl", tokenizer = ":tok")
tokenized(name = "b", raw = ":raw", glob = "b.jsonl", tokenizer = ":tok")
tokenized(name = "val", raw = ":raw", glob = "v.jsonl", tokenizer = ":tok", validation = True)
tokenized(name = "other", raw = ":raw", glob = "a.jsonl", tokenizer = ":tok2")
"""
TRAIN = """
train_lm(
    name = "m", datasets = ":mix", batch_size = 2, num_train_steps = 1, seq_len = 8, z_loss_weight = 0,
    model = llama(hidden_dim = 8, num_heads = 1, num_kv_heads = 1), optimizer = adam(),
)
"""


def analysed(root: Path, build: str, target: str, **files: str) -> Analysis:
    sources = {"BUILD.marin": LOADS + BASE + build, "marin.toml": "", "f.py": "def make(ctx):\n    pass\n", **files}
    for name, text in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    loader = Loader(root, RULES)
    graph = load_graph(loader, [parse_label(target)])
    return analyse(graph, loader, LOCK, Sources(root, open_cache(root / "cache").stats))


def action(root: Path, build: str, target: str, **files: str) -> Action:
    return analysed(root, build, f"//:{target}", **files).actions[f"//:{target}"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ('tokenized(name = "t", tokenizer = ":tok")', "exactly one of `source`, `paths` or `raw` (with `glob`)"),
        ('trained_tokenizer(name = "t", vocab_size = 300)', "exactly one of `raw` (with `glob`) or `paths`"),
        ('tokenized(name = "t", tokenizer = ":tok", raw = ":raw")', "`raw` and `glob` must be given together"),
        ('tokenized(name = "t", tokenizer = ":tok", paths = ["f.py"], glob = "x")', "must be given together"),
        (
            'tokenized(name = "t", tokenizer = ":tok", raw = ":raw", glob = "x", paths = ["f.py"])',
            "exactly one of",
        ),
        ('tokenized(name = "t", tokenizer = ":raw", raw = ":raw", glob = "x")', "TokenizerInfo"),
        ('tokenized(name = "t", tokenizer = ":tok", raw = ":a", glob = "x", sample_count = 0)', "at least 1"),
        ('trained_tokenizer(name = "t", raw = ":raw", glob = "x", vocab_size = 256)', "at least 257"),
        ('py_action(name = "t", function = "f.py:make", code = "declared")', "needs a `revision`"),
        ('py_action(name = "t", function = "f.py:make", revision = 2)', 'goes with `code = "declared"`'),
        ('py_action(name = "t", function = "f.py:mkae")', "did you mean `make`?"),
        ('mixture(name = "t", train = {})', "`train` is empty"),
        ('mixture(name = "t", train = {":a": 0.0})', "add up to 0"),
        ('mixture(name = "t", train = {":a": 1, ":b": -1})', "negative"),
        ('mixture(name = "t", train = {":a": 1, ":other": 1})', "different ones"),
        ('mixture(name = "t", train = {":a": 1}, validation = [":b"])', "training set"),
        ('mixture(name = "t", train = {":a": 1, ":val": 1})', "validation set"),
        ('mixture(name = "t", train = {":a": 1, ":raw": 1})', "TokenizedInfo"),
        ('mixture(name = "t", train = {":a": 1}, shuffle = {"window": 3})', "no key `window`"),
        ('mixture(name = "t", train = {":a": 1}, shuffle = {"window_blocks": 0})', "positive integer"),
        (
            'tokenized(name = "c", raw = ":raw", glob = "x", tokenizer = ":tok", component = "a")\n'
            'mixture(name = "t", train = {":a": 1, ":c": 1})',
            "two components are named `a`",
        ),
        ('lm_eval(name = "t", checkpoint = ":m", tasks = [])', "name at least one task"),
        ('lm_eval(name = "t", checkpoint = "f.py", tasks = ["piqa"])', "neither a training nor a tree"),
        ('lm_eval(name = "t", checkpoint = ":m", tasks = [{"nam": "x"}])', "no field `nam`"),
        ('lm_eval(name = "t", checkpoint = ":m", tasks = [{"name": "x", "num_fewshot": 0.5}])', "of type int"),
        ('lm_eval(name = "t", checkpoint = ":m", tasks = ["x", "x"])', "`task_alias`"),
        ('lm_eval(name = "t", checkpoint = ":m", tasks = ["x"], limit = 0)', "at least 1"),
        ('raw_download(name = "t", function = "f.py:make", resources = tpu("v9-8"))', "there is no TPU `v9-8`"),
        ('raw_download(name = "t", function = "f.py:make", resources = tpu("v4-8", slice_count = 0))', "at least 1"),
        ('raw_download(name = "t", function = "f.py:make", resources = gpu("H100", count = 0))', "at least 1"),
    ],
)
def test_refusals_name_the_thing_and_the_place(tmp_path: Path, build: str, message: str) -> None:
    with pytest.raises(MarinError) as caught:
        analysed(tmp_path, 'mixture(name = "mix", train = {":a": 1})' + TRAIN + build, "//:t")
    assert message in caught.value.render()
    assert "BUILD.marin:" in caught.value.render() or "f.py" in caught.value.render()


def components(root: Path, build: str) -> list[dict[str, Any]]:
    return list(action(root, build + TRAIN, "m").params["components"])  # type: ignore[arg-type]


def test_components_are_in_order_of_their_names_training_before_validation(tmp_path: Path) -> None:
    one = components(tmp_path / "1", 'mixture(name = "mix", train = {":b": 1, ":a": 3}, validation = [":val"])')
    two = components(tmp_path / "2", 'mixture(name = "mix", validation = [":val"], train = {":a": 3.0, ":b": 1})')
    assert one == two
    assert [(c["name"], c["weight"], c["validation"]) for c in one] == [
        ("a", 3.0, False),
        ("b", 1.0, False),
        ("val", 0.0, True),
    ]


def test_a_component_has_the_artifacts_name_unless_it_has_its_own(tmp_path: Path) -> None:
    build = """
tokenized(name = "x", raw = ":raw", glob = "x", tokenizer = ":tok", artifact = "tokens/x")
tokenized(name = "y", raw = ":raw", glob = "y", tokenizer = ":tok", artifact = "tokens/y", component = "first")
mixture(name = "mix", train = {":x": 1, ":y": 1})
"""
    assert [c["name"] for c in components(tmp_path, build)] == ["first", "tokens/x"]


def test_a_mixture_runs_nothing(tmp_path: Path) -> None:
    found = analysed(tmp_path, 'mixture(name = "mix", train = {":a": 1})', "//:mix")
    assert found.target(Label("", "mix")).actions == ()


def test_names_tags_and_placement_are_in_no_key(tmp_path: Path) -> None:
    plain = action(tmp_path / "plain", "", "a").fingerprint
    build = """
tokenized(
    name = "renamed", raw = ":raw", glob = "a.jsonl", tokenizer = ":tok",
    artifact = "x/y", component = "z", tags = ["t"], resources = %s, version = "other-dev",
)
"""
    for number, held in enumerate(
        ['cpu(cpu = 2, ram = "9g")', 'tpu("v4-128", slice_count = 4)', 'gpu("H100", count = 8)']
    ):
        assert action(tmp_path / f"{number}", build % held, "renamed").fingerprint == plain


@pytest.mark.parametrize(
    "change",
    [
        'text_key = "t"',
        "sample_count = 3",
        "validation = True",
        'glob = "b.jsonl"',
        'tokenizer = ":tok2"',
    ],
)
def test_each_identity_attribute_of_tokenized_is_in_the_key(tmp_path: Path, change: str) -> None:
    attrs = {"raw": '":raw"', "glob": '"a.jsonl"', "tokenizer": '":tok"'}
    name, _, value = change.partition(" = ")
    written = ", ".join(f"{k} = {v}" for k, v in (attrs | {name: value}).items())
    changed = action(tmp_path / "2", f'tokenized(name = "t", {written})', "t").fingerprint
    assert changed != action(tmp_path / "1", "", "a").fingerprint


def test_files_of_the_workspace_are_one_tree(tmp_path: Path) -> None:
    build = 'tokenized(name = "t", paths = glob(["docs/*.jsonl"]), tokenizer = ":tok")'
    files = {"docs/b.jsonl": "b", "docs/a.jsonl": "a"}
    made = action(tmp_path, build, "t", **files)
    documents = made.inputs["documents"]
    assert isinstance(documents, Source) and documents.paths == ("docs/a.jsonl", "docs/b.jsonl")
    assert made.params["glob"] == "**"


def test_functions_with_a_declared_revision_have_no_code_in_their_key(tmp_path: Path) -> None:
    build = 'py_action(name = "t", function = "f.py:make", code = "declared", revision = 4)'
    before = action(tmp_path / "1", build, "t")
    after = action(tmp_path / "2", build, "t", **{"f.py": "def make(ctx):\n    return 1\n"})
    assert before.fingerprint == after.fingerprint
    assert before.params["code"] == 4 and before.code is not None and after.code != before.code
    traced = action(tmp_path / "3", 'py_action(name = "t", function = "f.py:make")', "t")
    assert isinstance(traced.params["code"], bytes)


def test_an_evaluation_takes_definitions_and_data_as_inputs(tmp_path: Path) -> None:
    build = (
        'mixture(name = "mix", train = {":a": 1})'
        + TRAIN
        + """
lm_eval(
    name = "t", checkpoint = ":m", task_files = ["t.yaml"], data = {"q": ":raw"},
    tasks = ["x", {"name": "x", "task_alias": "x5", "num_fewshot": 5}],
)
"""
    )
    made = action(tmp_path, build, "t", **{"t.yaml": "task: x\n"})
    assert isinstance(made.inputs["hf"], Built) and made.inputs["hf"].output == "hf"
    assert isinstance(made.inputs["task_files"], Source)
    assert isinstance(made.inputs["data.q"], Built)
    assert made.outcome == "sampled" and made.heavy
    first, second = made.params["tasks"]  # type: ignore[misc]
    assert (first["num_fewshot"], first["task_alias"]) == (None, "")
    assert (second["num_fewshot"], second["task_alias"]) == (5, "x5")
    assert set(made.toolchain) >= {"lm-eval", "marin-levanter", "marin-haliax", "jax", "jaxlib", "optax"}
