"""What docs/rules.md says a rule gives is what analysis gives, and the page has every rule and attribute."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from marin_cas.action import Built
from marin_cas.analysis.analysis import Analysis, analyse
from marin_cas.analysis.lock import read_lock
from marin_cas.analysis.sources import Sources
from marin_cas.cache.stats import StatCache
from marin_cas.graph.graph import load_graph
from marin_cas.graph.pattern import expand
from marin_cas.lang.loader import Loader

ROOT = Path(__file__).parents[2]

# The rule that the experiment of this workspace has no use for, and a training with exports.
MORE = """
load("@marin//rules:data.bzl", "hf_download", "pretokenized", "raw_download", "tokenized", "tokenizer")
load("@marin//rules:eval.bzl", "eval_suite")
load("@marin//rules:models.bzl", "adam", "llama_nano")
load("@marin//rules:train.bzl", "train_lm")

raw_download(name = "raw", function = "f.py:f")
hf_download(name = "fetched", hf_id = "a/b", revision = "main")
pretokenized(name = "ready", repo_id = "a/b", tokenizer = ":tokenizer")
tokenizer(name = "tokenizer", files = ":raw")
tokenized(name = "tokens", raw = ":raw", glob = "*", tokenizer = ":tokenizer")
train_lm(
    name = "exporting",
    model = llama_nano,
    evals = eval_suite(["piqa"], 2, data = {"piqa": ":raw"}),
    optimizer = adam(),
    datasets = ":tokens",
    batch_size = 1,
    num_train_steps = 3,
    seq_len = 8,
    z_loss_weight = 0,
)
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("document", str(ROOT / "scripts" / "document"))
    spec = importlib.util.spec_from_loader("document", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def analysed(root: Path, patterns: list[str], state: Path) -> Analysis:
    loader = Loader(root, ROOT / "rules")
    graph = load_graph(loader, expand(loader, patterns), {}, None)
    return analyse(graph, loader, read_lock(root), Sources(root, StatCache(state)))


def test_outputs_providers_and_outcomes_are_those_of_analysis(script: ModuleType, tmp_path: Path):
    more = tmp_path / "more"
    more.mkdir()
    for name, text in {"marin.toml": "", "f.py": "def f(ctx):\n    pass\n", "BUILD.marin": MORE}.items():
        (more / name).write_text(text)
    (more / "marin.lock").write_bytes((ROOT / "marin.lock").read_bytes())
    seen = set()
    for analysis in (
        analysed(ROOT, ["//exp/..."], tmp_path / "a.db"),
        analysed(more, ["//..."], tmp_path / "b.db"),
    ):
        for target in analysis.targets.values():
            if target.target.rule.native:
                continue
            seen.add(target.kind)
            documented, providers = script.GIVES[target.kind]
            given = {re.sub(r"\.\d+$", ".<step>", name): artifact for name, artifact in target.outputs.items()}
            for name, artifact in given.items():
                kind, *notes = documented[name].split(", ")
                assert artifact.kind == kind, f"{target.label} {name}"
                assert ("reporting" in notes) == (isinstance(artifact, Built) and artifact.reporting)
            assert not [name for name in set(documented) - set(given) if "<step>" not in name], target.label
            assert set(target.providers) == {"DefaultInfo", *providers}, target.label
            outcomes = {analysis.actions[id].outcome for id in target.actions}
            assert not outcomes or outcomes == {"sampled" if target.kind in script.SAMPLED else "exact"}
    assert seen == set(script.GIVES)


def test_the_page_has_every_rule_and_attribute(script: ModuleType):
    page = script.rules_page()
    loader = Loader(ROOT, ROOT / "rules")
    from marin_cas.label import Label

    for path in (ROOT / "rules").rglob("*.bzl"):
        loader.load_bzl(Label(path.parent.relative_to(ROOT).as_posix(), path.name, "marin"))
    for rule in loader.rules().values():
        part = page.split(f"\n## {rule.name}\n", 1)[1].split("\n## ", 1)[0]
        common = page.split("\n## Attributes of every rule\n", 1)[1].split("\n## ", 1)[0]
        for name, spec in rule.attrs.items():
            row = re.search(rf"^\| `{name}` \| `{spec.kind}` \| (.*)$", part + common, re.MULTILINE)
            assert row, f"{rule.name}.{name}"
            assert f"| {spec.bears} |" in row[0]
    assert all(f"**`{name}`**" in page for name in loader.providers())
