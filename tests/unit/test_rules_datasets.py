"""The real graphs of this workspace: what DCLM's baselines are made from, asked without a network or a heavy import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marin_cas.action import Action
from marin_cas.analysis.analysis import Analysis, analyse
from marin_cas.analysis.lock import read_lock
from marin_cas.analysis.sources import Sources
from marin_cas.cache.stats import StatCache
from marin_cas.graph.graph import load_graph
from marin_cas.graph.pattern import expand
from marin_cas.lang.loader import Loader
from tests.identity.analysed import fingerprint

ROOT = Path(__file__).parents[2]
NAMES = ("dclm_1b", "dclm_1b_gpu", "dclm_7b")
EVALS = tuple(f"{name}.evals" for name in NAMES)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    loader = Loader(ROOT, ROOT / "rules")
    graph = load_graph(loader, expand(loader, [f"//exp:{name}" for name in (*NAMES, *EVALS)]), {}, None)
    return analyse(graph, loader, read_lock(ROOT), Sources(ROOT, StatCache(tmp_path_factory.mktemp("state") / "s.db")))


def action(real: Analysis, name: str) -> Action:
    return real.actions[f"//exp/dclm:{name}"]


def params(real: Analysis, name: str) -> Any:
    return action(real, name).params


def named(real: Analysis) -> dict[str, str]:
    """The target's own name to its artifact's."""
    targets = (each.target for each in real.targets.values() if not each.target.rule.native)
    return {target.label.name: f"{target.attrs['artifact']}@{target.attrs['version']}" for target in targets}


def test_the_trainings_are_those_of_the_documentation(real: Analysis) -> None:
    one, seven = params(real, "dclm_1b"), params(real, "dclm_7b")
    assert (one["batch_size"], one["seq_len"], one["num_train_steps"], one["z_loss_weight"]) == (256, 2048, 54931, 1e-4)
    assert (seven["batch_size"], seven["num_train_steps"], seven["z_loss_weight"]) == (2048, 33378, 5e-6)
    fields = ("hidden_dim", "intermediate_dim", "num_heads", "num_kv_heads", "num_layers", "max_seq_len")
    assert [one["model"][field] for field in fields] == [2048, 8192, 16, 16, 24, 2048]
    assert [seven["model"][field] for field in fields] == [4096, 11008, 32, 32, 32, 2048]
    fields = ("learning_rate", "weight_decay", "warmup", "min_lr_ratio")
    assert [one["optimizer"][field] for field in fields] == [3e-3, 0.033, 5000, 0.1]
    assert [seven["optimizer"][field] for field in fields] == [2e-3, 0.05, 5000, 0.1]
    weights = {each["name"]: each["weight"] for each in one["components"] if not each["validation"]}
    assert weights == {"dclm_baseline-llama3": 3.8, "starcoderdata-llama3": 0.25, "proofpile_2-llama3": 0.055}
    held_out = [each["name"] for each in one["components"] if each["validation"]]
    assert len(held_out) == 23 and {"paloma/4chan-llama3", "uncheatable_eval/bbc_news-llama3"} <= set(held_out)
    assert one["export_every"] == 10000


def test_artifacts_have_the_names_that_people_know(real: Analysis) -> None:
    names = named(real)
    assert all(name.endswith("@2026.06.28") for name in names.values()), "no fixed version depends on a dev one"
    assert names["dclm_1b"] == "checkpoints/dclm_1b_1x@2026.06.28"
    assert names["dclm_7b"] == "checkpoints/dclm_7b_1x_how_to@2026.06.28"
    assert names["paloma/wikitext_103"] == "paloma/wikitext_103-llama3@2026.06.28"


def test_what_a_training_runs_on_is_not_what_it_is(real: Analysis) -> None:
    assert fingerprint(real, "//exp/dclm:dclm_1b") == fingerprint(real, "//exp/dclm:dclm_1b_gpu")
    assert fingerprint(real, "//exp/dclm:dclm_1b") != fingerprint(real, "//exp/dclm:dclm_7b")


def test_exports_are_scored_where_the_documentation_scores_them(real: Analysis) -> None:
    scored = [id for id in real.actions if id.startswith("//exp/dclm:dclm_1b.evals") and "#data." not in id]
    steps = [f"//exp/dclm:dclm_1b.evals#{step}" for step in range(10000, 54931, 10000)]
    assert sorted(scored) == sorted(["//exp/dclm:dclm_1b.evals", *steps])
    assert "//exp/dclm:dclm_7b.evals#30000" in real.actions


def test_nothing_is_made_up(real: Analysis) -> None:
    """The repo has no line in its lock that nobody could resolve, and what is open is visibly so."""
    needs = {str(need) for each in real.actions.values() for need in each.unresolved}
    assert {
        "dataset mlfoundations/dclm-baseline-1.0@a3b142c",
        "dataset bigcode/starcoderdata@9fc30b5",
        "dataset EleutherAI/proof-pile-2@901a927",
        "dataset allenai/paloma@65cd6fc",
        "model meta-llama/Meta-Llama-3.1-8B@main",
    } <= needs
    assert sum("uncheatable_eval/master/data/" in need for need in needs) == 7
    assert all(action(real, name).provisional for name in NAMES)


def test_patterns_pass_them_over(real: Analysis) -> None:
    loader = Loader(ROOT, ROOT / "rules")
    found = {str(label) for label in expand(loader, ["//...", "//exp:all"])}
    assert "//exp:tiny" in found and not [label for label in found if "dclm" in label]
    settings = action(real, "dclm_1b").settings
    assert settings["tags"] == ["DCLM_1B_1X"], "a word for patterns is none for runs"
