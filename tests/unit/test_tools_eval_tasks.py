"""Tasks of lm-eval: found by name without its index, and read from the action's inputs alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marin_cas.tools.eval_data import Data
from marin_cas.tools.eval_tasks import leaves, load_tasks, renamed
from marin_cas.tools.lm_eval import model_folder, scores
from marin_cas.worker.context import ToolError

CHOICE = """
task: choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: questions/test.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: answer
num_fewshot: 1
fewshot_split: test
metric_list:
  - metric: acc
"""
ROWS = [{"context": f"question {n}", "choices": ["yes", "no"], "answer": n % 2} for n in range(6)]
ARC = [
    {"id": str(n), "question": f"which {n}?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"}
    for n in range(4)
]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "hf"))


def folder(root: Path, **files: object) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name.replace("__", ".")
        rows = content if isinstance(content, list) else None
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) if rows else str(content))
    return root


def task(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_fewshot": None, "task_alias": "", "task_kwargs": {}} | fields


def load(root: Path, *wanted: dict[str, Any], yaml: str | None = CHOICE, **data: Path) -> dict[str, Any]:
    definitions = folder(root / "definitions", t__yaml=yaml) if yaml else None
    return load_tasks(wanted, definitions, Data(data, {}), root / "scratch")


def refused(root: Path, *wanted: dict[str, Any], yaml: str | None = CHOICE, **data: Path) -> ToolError:
    with pytest.raises(ToolError) as caught:
        load(root, *wanted, yaml=yaml, **data)
    return caught.value


def test_a_local_definition_reads_a_data_input(tmp_path: Path) -> None:
    questions = folder(tmp_path / "q", test__jsonl=ROWS)
    loaded = load(tmp_path, task("choice"), task("choice", task_alias="two", num_fewshot=2), questions=questions)
    assert list(loaded) == ["choice", "two"]
    assert [row["context"] for row in loaded["two"].test_docs()] == [row["context"] for row in ROWS]
    assert [loaded[name].config.num_fewshot for name in loaded] == [1, 2]
    assert [loaded[name].config.task for name in loaded] == ["choice", "two"]


def test_a_bundled_task_reads_the_data_of_its_name(tmp_path: Path) -> None:
    data = folder(tmp_path / "arc", train__jsonl=ARC, validation__jsonl=ARC, test__jsonl=ARC)
    loaded = load(tmp_path, task("arc_easy"), yaml=None, arc_easy=data)["arc_easy"]
    assert [row["question"] for row in loaded.test_docs()] == [row["question"] for row in ARC]
    assert loaded.doc_to_text(ARC[0]).startswith("Question: which 0?")


def test_task_kwargs_change_a_definition(tmp_path: Path) -> None:
    questions = folder(tmp_path / "q", test__jsonl=ROWS)
    loaded = load(tmp_path, task("choice", task_kwargs={"description": "Answer."}), questions=questions)
    assert loaded["choice"].config.description == "Answer."


def test_a_hub_dataset_is_refused_with_the_attribute_to_add(tmp_path: Path) -> None:
    error = refused(tmp_path, task("arc_challenge"), yaml=None)
    assert "`allenai/ai2_arc`" in error.message and 'data = {"arc_challenge":' in (error.hint or "")


def test_unknown_tasks_groups_and_data(tmp_path: Path) -> None:
    questions = folder(tmp_path / "q", test__jsonl=ROWS)
    assert refused(tmp_path, task("chioce"), questions=questions).hint == "did you mean `choice`?"
    error = refused(tmp_path, task("choice"), question=questions)
    assert "`questions/test.jsonl`" in error.message and error.hint == "did you mean `question`?"
    error = refused(tmp_path, task("choice"), questions=folder(tmp_path / "other", tset__jsonl=ROWS))
    assert "not in `questions`" in error.message and error.hint == "did you mean `tset.jsonl`?"
    assert refused(tmp_path, task("choice", task_kwargs={"test_split": "nope"}), questions=questions).hint


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("task: [", "not a task definition"),
        ("- a\n", "not a task definition"),
        ("dataset_path: json\n", "no file of `task_files` defines a task"),
        (CHOICE.replace("questions/", "/etc/"), "does not start with a name in `data`"),
        (CHOICE.replace("questions/", "questions/../../"), "does not start with a name in `data`"),
        (CHOICE.replace("multiple_choice", "loglikelihood_rolling"), "loglikelihood_rolling"),
        (CHOICE.replace("doc_to_text: context", "doc_to_text: !function nowhere.f"), "cannot load the task"),
    ],
)
def test_definitions_that_are_wrong(tmp_path: Path, yaml: str, message: str) -> None:
    questions = folder(tmp_path / "q", test__jsonl=ROWS)
    assert message in refused(tmp_path, task("choice"), yaml=yaml, questions=questions).message


GROUP = """
group: both
task:
  - choice
  - task: choice
    task_alias: again
    description: "Think."
aggregate_metric_list:
  - metric: acc
    weight_by_size: true
"""


def hub_repo(root: Path, configs: dict[str, dict[str, list[Any]]]) -> Path:
    """A dataset as the Hub has it: rows by split by config, and a README that says which files are whose."""
    lines = ["---", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, rows in splits.items():
            folder(root / config, **{f"{split}__jsonl": rows})
            lines += [f"  - split: {split}", f"    path: {config}/{split}.jsonl"]
    (root / "README.md").write_text("\n".join([*lines, "---", ""]))
    return root


def test_a_bundled_task_reads_the_hub_dataset_that_was_downloaded(tmp_path: Path) -> None:
    splits = {"train": ARC, "validation": ARC, "test": ARC}
    repo = hub_repo(tmp_path / "arc", {"ARC-Easy": splits, "ARC-Challenge": {**splits, "test": ARC[:1]}})
    data = Data({}, {"allenai/ai2_arc": repo})
    loaded = load_tasks([task("arc_easy"), task("arc_challenge", num_fewshot=2)], None, data, tmp_path / "scratch")
    assert [len(list(loaded[name].test_docs())) for name in ("arc_easy", "arc_challenge")] == [4, 1]
    assert loaded["arc_challenge"].config.num_fewshot == 2


def test_a_tag_stands_for_its_tasks(tmp_path: Path) -> None:
    splits = {"train": ARC, "validation": ARC, "test": ARC}
    repo = hub_repo(tmp_path / "arc", {"ARC-Easy": splits, "ARC-Challenge": splits})
    loaded = load_tasks([task("ai2_arc")], None, Data({}, {"allenai/ai2_arc": repo}), tmp_path / "scratch")
    assert sorted(loaded) == ["ai2_arc_arc_challenge", "ai2_arc_arc_easy"]


MUSR = {"narrative": "Somebody did it.", "question": "Who?", "choices": "['A', 'B']", "answer_index": 1,
        "answer_choice": "B"}  # fmt: skip


def test_a_bundled_group_at_two_numbers_of_shots(tmp_path: Path) -> None:
    splits = {name: [MUSR] * 2 for name in ("murder_mysteries", "object_placements", "team_allocation")}
    data = Data({}, {"TAUR-Lab/MuSR": hub_repo(tmp_path / "musr", {"default": splits})})
    both = [task("leaderboard_musr"), task("leaderboard_musr", num_fewshot=1, task_alias="lb_musr_1shot")]
    loaded = load_tasks(both, None, data, tmp_path / "scratch")
    assert {group.name: sorted(members) for group, members in loaded.items()} == {
        "leaderboard_musr": [
            "leaderboard_musr_murder_mysteries",
            "leaderboard_musr_object_placements",
            "leaderboard_musr_team_allocation",
        ],
        "lb_musr_1shot": [
            "lb_musr_1shot_murder_mysteries",
            "lb_musr_1shot_object_placements",
            "lb_musr_1shot_team_allocation",
        ],
    }
    assert {leaf.config.num_fewshot for leaf in leaves({"": list(loaded.values())[1]})} == {1}


def test_a_group_of_the_workspace_with_a_changed_member(tmp_path: Path) -> None:
    definitions = folder(tmp_path / "definitions", t__yaml=CHOICE, g__yaml=GROUP.replace("  - choice\n", ""))
    data = Data({"questions": folder(tmp_path / "q", test__jsonl=ROWS)}, {})
    loaded = load_tasks([task("both")], definitions, data, tmp_path / "scratch")
    ((group, members),) = loaded.items()
    assert group.config["aggregate_metric_list"][0]["weight_by_size"] is True
    assert {name: leaf.config.description for name, leaf in members.items()} == {"both_choice": "Think."}


@pytest.mark.parametrize(
    ("name", "asked", "shown", "expected"),
    [
        ("mmlu_anatomy", "mmlu", "mmlu_5shot", "mmlu_anatomy_5shot"),
        ("mmlu_stem", "mmlu", "mmlu", "mmlu_stem"),
        ("bbh_cot_fewshot_navigate", "bbh_cot_fewshot", "bbh", "bbh_navigate"),
        ("arc_easy", "ai2_arc", "arc", "arc_arc_easy"),
    ],
)
def test_tasks_of_a_group_are_called_as_levanter_calls_them(name: str, asked: str, shown: str, expected: str) -> None:
    assert renamed(name, asked, shown) == expected


def test_code_that_a_model_writes_runs_only_when_allowed(tmp_path: Path) -> None:
    questions = folder(tmp_path / "q", test__jsonl=ROWS)
    yaml = CHOICE + "unsafe_code: true\n"
    assert (
        "runs code that the model writes" in refused(tmp_path, task("choice"), yaml=yaml, questions=questions).message
    )
    definitions = folder(tmp_path / "definitions", t__yaml=yaml)
    data = Data({"questions": questions}, {})
    assert load_tasks([task("choice")], definitions, data, tmp_path / "scratch", ["choice"])


def test_a_model_is_found_in_the_folder_of_its_last_step(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"no `config.json`"):
        model_folder(tmp_path, discover=True)
    for step in (9, 100, 20):
        folder(tmp_path / "hf" / f"step-{step}", config__json="{}")
    assert model_folder(tmp_path, discover=True) == tmp_path / "hf" / "step-100"
    with pytest.raises(ToolError) as caught:
        model_folder(tmp_path, discover=False)
    assert "`step-100`" in (caught.value.hint or "")
    folder(tmp_path, config__json="{}")
    assert model_folder(tmp_path, discover=True) == tmp_path


def test_scores_of_groups_have_their_members() -> None:
    report = {
        "results": {"g": {"acc,none": 0.5}, "a": {"acc,none": 0.25}, "b": {"acc,none": 0.75}},
        "group_subtasks": {"g": ["a", "b"], "a": []},
        "versions": {}, "n-samples": {}, "n-shot": {}, "higher_is_better": {},
    }  # fmt: skip
    found = scores(report)
    assert found["groups"] == {"g": ["a", "b"]}
    assert found["tasks"]["g"] == {"acc": 0.5}


def test_scores_are_the_numbers_alone() -> None:
    report = {
        "results": {
            "t": {"alias": "t", "acc,none": 0.5, "acc_stderr,none": "N/A", "f1,strict": 1.0, "x,none": float("nan")}
        },
        "averages": {"macro_avg_acc,none": 0.5},
        "versions": {"t": 1.0, "u": "Yaml"},
        "n-samples": {"t": {"original": 4, "effective": 2}},
        "n-shot": {"t": 0},
        "higher_is_better": {"t": {"acc": True}},
        "configs": {"t": {"dataset_kwargs": "/a/path"}},
        "date": 123.4,
    }
    assert scores(report) == {
        "tasks": {"t": {"acc": 0.5, "f1,strict": 1.0}},
        "averages": {"macro_avg_acc": 0.5},
        "versions": {"t": 1.0},
        "n_samples": {"t": {"original": 4, "effective": 2}},
        "n_shot": {"t": 0},
        "higher_is_better": {"t": {"acc": True}},
    }
