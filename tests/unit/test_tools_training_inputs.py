"""Components of a training: what is incomplete, unequal or too short is said before anything heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin_cas.tools.levanter_inputs import check_components, read_components
from marin_cas.worker.context import ToolError


def cache(folder: Path, split: str = "train", **ledger: Any) -> Path:
    for array in ("data", "offsets"):
        (folder / split / "input_ids" / array).mkdir(parents=True)
        (folder / split / "input_ids" / array / "zarr.json").write_text("{}")
    fields = {
        "total_num_rows": 3,
        "is_finished": True,
        "field_counts": {"input_ids": 640},
        "metadata": {"preprocessor_metadata": {"tokenizer": "aa" * 32}},
    }
    (folder / split / "shard_ledger.json").write_text(json.dumps(fields | ledger))
    return folder


def entry(name: str, weight: float = 1.0, validation: bool = False) -> dict[str, Any]:
    return {"name": name, "input": name, "weight": weight, "validation": validation}


def refusal(folder: Path, tokenizer: str = "aa" * 32, seq_len: int = 64, **fields: Any) -> str:
    with pytest.raises(ToolError) as caught:
        components = read_components([entry("web", **fields)], {"web": folder})
        check_components(components, tokenizer=tokenizer, seq_len=seq_len)
    return caught.value.message


def test_training_components_come_first_and_each_kind_by_name(tmp_path: Path) -> None:
    names = {"b": False, "é": False, "a": True, "z": False, "A": True}
    folders = {n: cache(tmp_path / n, "validation" if held_out else "train") for n, held_out in names.items()}
    components = read_components([entry(n, 1.0, held_out) for n, held_out in names.items()], folders)
    assert [component.name for component in components] == ["b", "z", "é", "A", "a"]
    assert {component.tokens for component in components} == {640}
    check_components(components, tokenizer="aa" * 32, seq_len=64)


@pytest.mark.parametrize(
    "lost",
    ["shard_ledger.json", "input_ids/data/zarr.json", "input_ids/offsets/zarr.json"],
)
def test_a_component_without_one_of_its_files_is_incomplete(tmp_path: Path, lost: str) -> None:
    (cache(tmp_path / "web") / "train" / lost).unlink()
    assert f"component `web` is incomplete: it has no `train/{lost}`" in refusal(tmp_path / "web")


def test_a_ledger_that_is_not_one_or_not_finished_is_incomplete(tmp_path: Path) -> None:
    (cache(tmp_path / "torn") / "train" / "shard_ledger.json").write_text('{"is_fin')
    assert "component `web` is incomplete: its `train/shard_ledger.json` cannot be read" in refusal(tmp_path / "torn")
    assert "says that it is not finished" in refusal(cache(tmp_path / "unfinished", is_finished=False))


def test_a_validation_set_must_have_its_own_split(tmp_path: Path) -> None:
    assert "it has no `validation/shard_ledger.json`" in refusal(cache(tmp_path / "web"), validation=True)


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    assert "another tokenizer than the mixture's" in refusal(cache(tmp_path / "web"), tokenizer="bb" * 32)


def test_fewer_tokens_than_one_sequence_are_refused_where_they_would_be_read(tmp_path: Path) -> None:
    folder = cache(tmp_path / "web")
    assert "has 640 tokens, fewer than one sequence of 641" in refusal(folder, seq_len=641)
    check_components(
        read_components([entry("web", 0.0)], {"web": folder}), tokenizer="aa" * 32, seq_len=641
    )  # never read


def test_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, marin_cas.tools.train_lm\n"
        "print([m for m in ('jax', 'levanter', 'numpy', 'transformers') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
