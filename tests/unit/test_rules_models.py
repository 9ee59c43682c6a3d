"""The model and optimizer functions are those of the locked Levanter; the sizes are those of Marin's experiments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from marin_cas.analysis.lock import read_lock
from marin_cas.analysis.schema import SCHEMAS, expand

ROOT = Path(__file__).parents[2]
LOCK = read_lock(ROOT)
TEXT = (ROOT / "rules" / "models.bzl").read_text(encoding="utf-8")
RULES: dict[str, Any] = {}
exec(TEXT, RULES)  # what Starlark and Python share
ROOTS = json.loads((SCHEMAS / f"levanter-{LOCK.toolchain['marin-levanter']}.json").read_text())["roots"]

# max_seq_len, hidden, intermediate, heads, kv heads, layers
SIZES = {
    "llama_nano": (512, 32, 128, 2, 2, 2),
    "llama_30m": (1024, 128, 448, 2, 2, 4),
    "llama_50m": (1024, 192, 448, 2, 2, 4),
    "llama_75m": (1024, 256, 896, 4, 4, 8),
    "llama_150m": (1024, 512, 1792, 8, 8, 6),
    "llama_300m": (1024, 768, 2688, 12, 12, 12),
    "llama_600m": (1024, 1024, 3584, 16, 8, 24),
    "llama_1_4b": (4096, 2048, 7168, 16, 8, 16),
    "llama_1_9b": (4096, 2048, 7168, 16, 8, 24),
    "llama_3_2_1b": (4096, 2048, 8192, 32, 8, 16),
    "llama_3_5b": (4096, 2560, 8960, 20, 10, 32),
    "llama_8b": (4096, 4096, 14336, 32, 8, 32),
    "llama_8b_old_rotary": (4096, 4096, 14336, 32, 8, 32),
    "llama_3_1_8b": (4096, 4096, 14336, 32, 8, 32),
    "llama_13b": (4096, 5120, 13824, 40, 8, 40),
    "llama_24b": (4096, 6144, 16384, 48, 16, 56),
    "llama_32b": (4096, 5120, 27648, 40, 8, 64),
    "llama_56b": (4096, 8192, 28672, 64, 8, 64),
    "llama_70b": (4096, 8192, 28672, 64, 8, 80),
}
FIELDS = ("max_seq_len", "hidden_dim", "intermediate_dim", "num_heads", "num_kv_heads", "num_layers")


def expanded(root: str, fields: dict[str, Any]) -> dict[str, Any]:
    return expand(root, fields, lock=LOCK, where=None, what=root)


def test_there_is_a_function_for_each_model_and_optimizer_that_trains() -> None:
    functions = set(re.findall(r"^def (\w+)\(\*\*fields\)", TEXT, re.MULTILINE))
    assert functions == {*ROOTS["levanter.LmConfig"]["choices"], *ROOTS["levanter.OptimizerConfig"]["choices"]}
    for name in functions:
        assert RULES[name](a=1) == {"type": name, "a": 1}


def test_what_levanter_registers_besides_is_refused_with_a_reason() -> None:
    assert sorted(ROOTS["levanter.LmConfig"]["refused"]) == [
        "gpt2_hyena",
        "mixtral",
        "modernbert",
        "snowball",
        "whisper",
    ]


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_that_of_the_table(name: str) -> None:
    config = expanded("levanter.LmConfig", RULES[name])
    assert tuple(config[field] for field in FIELDS) == SIZES[name]
    assert config["type"] == "llama"
    rope = config["rope"]["type"]
    assert rope == ("llama3" if name in ("llama_3_2_1b", "llama_8b", "llama_3_1_8b") else "default")
    assert config["tie_word_embeddings"] == (name == "llama_3_2_1b")


def test_there_are_no_other_sizes() -> None:
    assert {name for name, value in RULES.items() if name.startswith("llama_") and isinstance(value, dict)} == set(
        SIZES
    )


def test_the_rotary_embeddings_of_llama_3_1() -> None:
    rope = expanded("levanter.LmConfig", RULES["llama_3_1_8b"])["rope"]
    assert (rope["theta"], rope["factor"], rope["original_max_position_embeddings"]) == (500000.0, 8.0, 8192)
    assert (rope["high_freq_factor"], rope["low_freq_factor"]) == (4.0, 1.0)
