"""The examples of docs/key-format.md, run as they stand, give the keys that marin-cas gives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from marin_cas.analysis.code import code_identity
from marin_cas.digest import Digest
from marin_cas.recipe import Input, Recipe

PAGE = (Path(__file__).parents[2] / "docs" / "key-format.md").read_text(encoding="utf-8")


def example(heading: str) -> str:
    found = re.search(r"^```python\n(.*?)^```$", PAGE.split(f"{heading}\n", 1)[1], re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_a_key_computed_by_hand():
    documents = Input("tree", Digest(bytes(32), 120))
    params = {"glob": "*.jsonl", "sample_count": None, "split": "train", "text_key": "text"}
    recipe = Recipe("tokenize", 1, params, {"documents": documents}, {"cache": "tree"}, {}, {"tokenizers": "0.22.2"})
    assert printed(example("### An example, by hand")) == recipe.key().hex


def test_a_code_identity_computed_by_hand(tmp_path: Path):
    program = example("## Code identity")
    source = re.search(r"^source = '''(.*?)'''$", program, re.MULTILINE | re.DOTALL)
    assert source
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "clean.py").write_text(source[1])
    assert printed(program) == code_identity(tmp_path, "corpus/clean.py:keep", ["python"]).digest.hex()


def test_the_digest_of_hello():
    assert Digest.of(b"hello").hex in PAGE
