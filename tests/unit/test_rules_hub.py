"""What is fetched from elsewhere: what declarations are refused for, and what their keys hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from marin_cas.analysis.lock import Lock
from marin_cas.errors import MarinError
from tests.identity.analysed import analysed, fingerprint
from tests.identity.space import lock

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOADS = """
load("@marin//rules:data.bzl", "hf_download")
"""


def declared(root: Path, text: str, locked: Lock | None = None):
    (root / "exp").mkdir(parents=True, exist_ok=True)
    (root / "exp/BUILD.marin").write_text(LOADS + text)
    return analysed(root, lock=locked or lock())


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ('hf_id = "me/a/b", revision = "main"', "`me/a/b` is not the id of a Hub repo"),
        ('hf_id = "me/--b", revision = "main"', "is not the id of a Hub repo"),
        ('hf_id = "me/words", revision = "a b"', "`a b` is not a revision"),
        ('hf_id = "me/words", revision = ""', "`` is not a revision"),
        ('hf_id = "me/words", revision = "main", repo_type = "datasets"', "did you mean `dataset`?"),
        ('hf_id = "me/words", revision = "main", urls_glob = ["/a"]', "`/a` is not a pattern of files in a repo"),
        ('hf_id = "me/words"', "needs the attribute `revision`"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(tmp_path: Path, attrs: str, message: str) -> None:
    with pytest.raises(MarinError) as caught:
        declared(tmp_path, f'hf_download(name = "t", {attrs})\n')
    assert message in caught.value.render()
    assert "exp/BUILD.marin:3" in caught.value.render()


def test_a_lock_entry_changes_what_it_is_for_and_nothing_else(tmp_path: Path) -> None:
    text = "".join(
        f'hf_download(name = "{name}", hf_id = "me/words", revision = "{revision}")\n'
        for name, revision in (("main", "main"), ("v1", "v1"), ("whole", COMMIT))
    )
    entries = {"dataset me/words@main": COMMIT, "dataset me/words@v1": COMMIT}
    before = declared(tmp_path, text, replace(lock(), hub=entries))
    after = declared(tmp_path, text, replace(lock(), hub={**entries, "dataset me/words@main": COMMIT[::-1]}))
    open_ = declared(tmp_path, text)
    prints = [{n: fingerprint(a, f"//exp:{n}") for n in ("main", "v1", "whole")} for a in (before, after, open_)]
    assert len(set(prints[0].values())) == 1, "one commit, whatever it is called"
    assert prints[1]["v1"] == prints[1]["whole"] == prints[0]["v1"] != prints[1]["main"]
    assert len({*prints[2].values(), prints[0]["main"]}) == 3, "what is open has a fingerprint of its own"
    assert [str(need) for need in open_.actions["//exp:main"].unresolved] == ["dataset me/words@main"]
    assert open_.actions["//exp:main"].provisional and not open_.actions["//exp:whole"].provisional
