"""Tasks of lm-eval: found by name without its index, and read from the action's inputs alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marin_cas.tools.eval_tasks import load_tasks
from marin_cas.tools.lm_eval import scores
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
    return load_tasks(wanted, definitions, data, root / "scratch")


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
    assert "is a group" in refused(tmp_path, task("mmlu")).message
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
