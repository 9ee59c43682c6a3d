"""The rule and the macros of evaluation: what is scored on what, with which data, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marin_cas.action import Action, Built
from marin_cas.analysis.analysis import Analysis
from marin_cas.errors import MarinError
from tests.unit.test_rules_pipeline import action, analysed
from tests.unit.test_rules_train import MIX, train

NAMES = (
    *("BASE_GENERATION_TASKS", "CORE_TASKS", "CORE_TASKS_PLUS_LEADERBOARD", "KEY_GENERATION_TASKS"),
    *("KEY_MULTIPLE_CHOICE_TASKS", "MMLU_PRO_5_SHOT", "OPEN_LM_LEADERBOARD_GEN", "OPEN_LM_LEADERBOARD_MCQ"),
    *("core_tasks", "default_eval", "default_key_evals", "eval_suite", "eval_task"),
)
LOAD = f'load("@marin//rules:eval.bzl", {", ".join(map(json.dumps, NAMES))})\n'
TRAINED = MIX + train() + train("exporting", export_every="2")


def ev(**attrs: str) -> str:
    fields = {"checkpoint": '":m"', "tasks": '["piqa"]'} | attrs
    return f'\nlm_eval(name = "t", {", ".join(f"{k} = {v}" for k, v in fields.items())})\n'


def made(root: Path, build: str, target: str = "t", **files: str) -> Action:
    return action(root, LOAD + TRAINED + build, target, **files)


def all_of(root: Path, build: str, target: str = "t") -> Analysis:
    return analysed(root, LOAD + TRAINED + build, f"//:{target}")


def refusal(root: Path, build: str) -> str:
    with pytest.raises(MarinError) as caught:
        made(root, build)
    assert "BUILD.marin:" in caught.value.render()
    return caught.value.render()


def downloads(analysis: Analysis) -> dict[str, Any]:
    return {a.params["repo_id"]: a.id for a in analysis.actions.values() if a.tool == "hf_download"}  # type: ignore[misc]


def test_the_data_of_bundled_tasks_is_downloaded_at_the_locks_commit(tmp_path: Path) -> None:
    analysis = all_of(tmp_path, ev(tasks='["arc_easy", "arc_challenge", "mmlu"]'))
    assert downloads(analysis) == {"allenai/ai2_arc": "//:t#data.allenai.ai2_arc", "cais/mmlu": "//:t#data.cais.mmlu"}
    scoring = analysis.actions["//:t"]
    assert scoring.params["hub"] == {"allenai/ai2_arc": "hub.0", "cais/mmlu": "hub.1"}
    assert scoring.inputs["hub.1"] == Built("//:t#data.cais.mmlu", "files", "tree")
    assert scoring.provisional  # the lock does not say which commit


def test_data_may_be_given_by_task_by_group_or_by_dataset(tmp_path: Path) -> None:
    tasks = '["arc_easy", "mmlu", "piqa"]'
    data = '{"arc_easy": ":raw", "mmlu": ":raw", "baber/piqa": ":raw"}'
    analysis = all_of(tmp_path, ev(tasks=tasks, data=data))
    assert downloads(analysis) == {}
    scoring = analysis.actions["//:t"]
    assert (scoring.params["data"], scoring.params["hub"]) == (["arc_easy", "mmlu"], {"baber/piqa": "hub.0"})
    assert set(scoring.inputs) == {"hf", "data.arc_easy", "data.mmlu", "hub.0"}


def test_two_evaluations_share_what_they_download(tmp_path: Path) -> None:
    build = ev() + ev(limit="3").replace('name = "t"', 'name = "u"')
    analysis = analysed(tmp_path, LOAD + TRAINED + build + 'filegroup(name = "none", srcs = [])', "//:t")
    other = analysed(tmp_path, LOAD + TRAINED + build, "//:u")
    assert analysis.actions["//:t#data.baber.piqa"].fingerprint == other.actions["//:u#data.baber.piqa"].fingerprint
    assert analysis.actions["//:t"].fingerprint != other.actions["//:u"].fingerprint


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"tasks": '["pqia"]'}, "there is no task `pqia` in the locked lm-eval; did you mean"),
        ({"tasks": '["wikitext"]'}, "`wikitext` scores whole documents"),
        ({"tasks": '["squadv2"]'}, "`squadv2` is a task in Python"),
        ({"tasks": '["humaneval"]'}, 'allow it with `eval_task("humaneval", unsafe_code = True)`'),
        ({"tasks": '[eval_task("piqa", generation = True)]'}, "its answers are chosen, not written"),
        ({"tasks": '[eval_task("piqa", -1)]'}, "`num_fewshot` of `piqa` is negative"),
        ({"tasks": '[{"name": "piqa", "shots": 1}]'}, "a task has no field `shots`"),
        ({"tasks": "[3]"}, "what `eval_task()` gives"),
        ({"checkpoint": '":mix"'}, "neither a training nor a tree"),
        ({"every": "2"}, "exports its last step only; to export other steps it would be trained again, 6 steps and 96"),
        ({"checkpoint": '":exporting"', "every": "3"}, "exports every 2 steps; to export other steps it would be"),
        ({"checkpoint": '":raw"', "every": "3"}, "is one model, not a training with exports"),
        ({"engine_kwargs": '{"max_model_len": 3}'}, "are for the backend `vllm`"),
        ({"data": '{"allenai/ai2_arc": ":raw"}'}, "no task here reads the dataset `allenai/ai2_arc`"),
        ({"backend": '"vlm"'}, "did you mean"),
        ({"max_gen_toks": "0"}, "`max_gen_toks` is 0"),
    ],
)
def test_what_is_wrong_is_refused_where_it_is_written(tmp_path: Path, attrs: dict[str, str], message: str) -> None:
    assert message in refusal(tmp_path, ev(**attrs))


def test_what_is_not_asked_for_is_not_in_the_key(tmp_path: Path) -> None:
    """What an evaluation had before there was a choice, it has now."""
    params = made(tmp_path, ev(tasks='["q"]', task_files='["q.yaml"]'), **{"q.yaml": "task: q\n"}).params
    assert sorted(params) == sorted(
        ["apply_chat_template", "batch_size", "data", "limit", "max_seq_len", "mp", "nproc", "tasks"]
    )
    assert params["tasks"] == [{"name": "q", "num_fewshot": None, "task_alias": "", "task_kwargs": {}}]


def test_each_export_is_scored_by_an_action_of_its_own(tmp_path: Path) -> None:
    analysis = all_of(tmp_path, ev(checkpoint='":exporting"', every="4", data='{"piqa": ":raw"}'))
    scored = {id: a.inputs["hf"] for id, a in analysis.actions.items() if a.tool == "lm_eval"}
    assert scored == {
        "//:t#4": Built("//:exporting", "hf.4", "tree"),
        "//:t": Built("//:exporting", "hf", "tree"),
    }
    (target,) = (found for label, found in analysis.targets.items() if str(label) == "//:t")
    assert sorted(target.outputs) == ["samples", "samples.4", "scores", "scores.4"]


def test_evals_of_a_training_are_a_target_beside_it(tmp_path: Path) -> None:
    suite = 'eval_suite(["piqa"], 2, data = {"piqa": ":raw"}, limit = 5)'
    analysis = analysed(tmp_path, LOAD + MIX + train(evals=suite), "//:m.evals")
    assert {id for id in analysis.actions if id.startswith("//:m")} == {
        "//:m",
        "//:m.evals",
        "//:m.evals#2",
        "//:m.evals#4",
    }
    assert analysis.actions["//:m.evals"].params["limit"] == 5
    assert sorted(analysis.actions["//:m"].outputs) == ["hf", "hf.2", "hf.4", "metrics", "native"]


def test_other_tasks_and_multiples_of_the_exports_never_train_again(tmp_path: Path) -> None:
    found = set()
    for number, (tasks, every) in enumerate([('["piqa"]', 4), ('["arc_easy"]', 4), ('["piqa"]', 2)]):
        suite = f"eval_suite({tasks}, {every})"
        build = MIX + train(evals=suite, export_every="2")
        found.add(analysed(tmp_path / f"{number}", LOAD + build, "//:m.evals").actions["//:m"].fingerprint)
    assert len(found) == 1
    with pytest.raises(MarinError, match="take a multiple of its `export_every`"):
        analysed(tmp_path, LOAD + MIX + train(evals='eval_suite(["piqa"], 3)', export_every="2"), "//:m.evals")


@pytest.mark.parametrize(
    ("evals", "message"),
    [
        ('["piqa"]', "write it with `eval_suite(tasks, every)`"),
        ('{"tasks": ["piqa"]}', "write it with `eval_suite(tasks, every)`"),
        ('eval_suite(["piqa"], 0)', "`every` of `evals`"),
        ('eval_suite(["piqa"], 2, lmit = 3)', "did you mean `limit`?"),
    ],
)
def test_wrong_evals_of_a_training(tmp_path: Path, evals: str, message: str) -> None:
    with pytest.raises(MarinError) as caught:
        analysed(tmp_path, LOAD + MIX + train(evals=evals), "//:m.evals")
    assert message in caught.value.render()


SETS = {
    "CORE_TASKS": 13,
    "KEY_GENERATION_TASKS": 6,
    "KEY_MULTIPLE_CHOICE_TASKS": 3,
    "CORE_TASKS_PLUS_LEADERBOARD": 15,
    "BASE_GENERATION_TASKS": 4,
    "OPEN_LM_LEADERBOARD_MCQ": 4,
    "OPEN_LM_LEADERBOARD_GEN": 2,
    "[MMLU_PRO_5_SHOT]": 1,
}


@pytest.mark.parametrize("name", SETS)
def test_every_task_set_of_marin_is_known_to_the_locked_lm_eval(tmp_path: Path, name: str) -> None:
    tasks: Any = made(tmp_path, ev(tasks=name)).params["tasks"]
    assert len(tasks) == SETS[name]


def test_default_evals_take_what_the_documentation_says(tmp_path: Path) -> None:
    build = (
        'default_eval(name = "t", step = ":m", max_eval_instances = 7)\n'
        'default_key_evals(name = "key", step = ":m", resource_config = tpu("v6e-8"), model_name = "tiny")\n'
    )
    core = made(tmp_path / "1", build)
    assert (core.resources.variant, core.params["limit"], len(core.params["tasks"])) == ("v4-8", 7, 13)  # type: ignore[arg-type]
    written = made(tmp_path / "2", build, "key_generation")
    assert (written.params["backend"], written.params["engine_kwargs"]) == (
        "vllm",
        {"max_model_len": 4096, "max_gen_toks": 4096},
    )
    assert written.artifact == "evaluation/lm_evaluation_harness/tiny/key_generation@dev"
    chosen = made(tmp_path / "3", build, "key_multiple_choice")
    assert chosen.resources.variant == "v6e-8" and "backend" not in chosen.params
    aliases = [task["task_alias"] for task in chosen.params["tasks"]]  # type: ignore[union-attr, index]
    assert aliases == ["mmlu_0shot", "mmlu_5shot", "truthqa"]
