"""The documentation's scripts, and the BUILD files that say the same: the very artifacts, one by one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import CHECKOUT, Mini


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Mini:
    """What this repo declares, with a cache of its own."""
    root = tmp_path_factory.mktemp("repo")
    shutil.copytree(CHECKOUT / "exp", root / "exp", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("BUILD.marin", "marin.lock", "marin.toml"):
        if Path(CHECKOUT, name).exists():
            shutil.copy(CHECKOUT / name, root / name)
    home = tmp_path_factory.mktemp("home")
    return Mini(root, home)


def prints(repo: Mini, pattern: str) -> dict[str, tuple[str, bool]]:
    """Fingerprint by artifact, and whether it is provisional."""
    records = repo.ok("aquery", f"deps({pattern})", "--output", "json").json
    return {each["artifact"]: (each["fingerprint"], each["provisional"]) for each in records if each["artifact"]}


@pytest.mark.parametrize(
    ("script", "target"),
    [
        ("exp/dclm_1b.py:build", "//exp:dclm_1b"),
        ("exp/dclm_1b.py:build_gpu", "//exp:dclm_1b_gpu"),
        ("exp/dclm_7b.py:build", "//exp:dclm_7b"),
    ],
)
def test_a_script_declares_what_the_build_file_declares(repo: Mini, script: str, target: str) -> None:
    written, declared = prints(repo, target), prints(repo, script)
    # Three corpora, 16 and 7 validation sets, what each group of them is made from, the training.
    assert len(declared) == 32 and all(provisional for _, provisional in declared.values())
    assert declared == {artifact: written[artifact] for artifact in declared}
    # There the tokenizer is a target of its own.
    assert [artifact.partition("@")[0] for artifact in set(written) - set(declared)] == ["exp/dclm/llama3"]


def test_what_a_script_needs_of_the_lock_is_told(repo: Mini) -> None:
    ran = repo.run("build", "exp/dclm_7b.py:build", code=2)
    assert "marin lock" in ran.err and "meta-llama/Meta-Llama-3.1-8B" in ran.err
    planned = repo.ok("build", "-n", "exp/dclm_7b.py:build")
    assert "tpu v4-128 x4: 64 hosts, 256 chips" in planned.out
