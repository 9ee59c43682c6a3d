"""The committed table of lm-eval's tasks is what the installed one says, and every task set of Marin is in it."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import pytest

from marin_cas.analysis.tasks import SCHEMAS
from marin_cas.tools import eval_table
from marin_cas.tools.eval_definitions import GROUP, TAG, find

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    return eval_table.generate()


def test_the_committed_table_is_what_the_generator_writes(table: dict[str, Any]) -> None:
    committed = SCHEMAS / f"lm_eval-{version('lm-eval')}.json"
    assert committed.read_text(encoding="utf-8") == eval_table.text(table)
    assert json.loads(committed.read_text(encoding="utf-8")) == table


@pytest.mark.parametrize(
    ("name", "members"), [("mmlu", 57), ("mmlu_stem_tasks", 19), ("bbh_cot_fewshot", 27), ("minerva_math", 7)]
)
def test_the_tool_finds_in_a_group_what_the_table_has(table: dict[str, Any], name: str, members: int) -> None:
    names = list(table["tasks"])

    def of_table(name: str) -> set[str]:
        if name in table["tasks"]:
            return {name}
        return {leaf for m in table["groups"][name] for leaf in of_table(names[m] if isinstance(m, int) else m)}

    def of_tool(name: str) -> set[str]:
        definition = find(name, {})
        if definition.kind == TAG:
            return set(definition.members)
        if definition.kind == GROUP:
            return {leaf for member in definition.config()["task"] for leaf in of_tool(member)}
        return {name}

    assert of_tool(name) == of_table(name)
    assert len(of_tool(name)) == members
