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
load("@marin//rules:data.bzl", "hf_download", "pretokenized", "raw_download", "tokenized", "tokenizer")
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


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ("", "exactly one of `function` and `urls`"),
        ('urls = ["https://h/a"], function = "f.py:f"', "exactly one of `function` and `urls`"),
        ('urls = ["https://h/a"], params = {"a": 1}', "`params` are for a `function`"),
        ('urls = ["htps://h/a"]', "did you mean `https`?"),
        ('urls = ["raw/a.txt"]', "it begins with https://"),
        ('urls = ["https://me:hidden@h/a"]', "a URL of `h` holds a user name or a password"),
        ('urls = ["https://h/a/"]', "cannot be listed over https://"),
        ('urls = ["gs:///a"]', "names no host or bucket"),
        ('urls = ["file://a/b"]', "is not an absolute path"),
        ('urls = ["gs://b/a/../c"]', "has a `.` or `..` in its path"),
        ('urls = ["https://h/a b"]', "a fragment, a space, a quote or a backslash"),
        ('urls = ["https://h/a#b"]', "a fragment, a space, a quote or a backslash"),
        ('urls = ["https://h/?x=1"]', "does not say what its file is called"),
        ('urls = ["https://h/a?x=1", "gs://b/c/a"]', "would both be stored as `a`"),
    ],
)
def test_urls_that_cannot_be_are_refused(tmp_path: Path, attrs: str, message: str) -> None:
    with pytest.raises(MarinError) as caught:
        declared(tmp_path, f'raw_download(name = "t", {attrs})\n')
    assert message in caught.value.render()
    assert "exp/BUILD.marin:3" in caught.value.render()
    assert "hidden" not in caught.value.render()


def test_a_key_holds_what_is_at_a_url_and_not_the_url(tmp_path: Path) -> None:
    content, other = "ab" * 32 + "-7", "cd" * 32 + "-7"
    text = """
raw_download(name = "one", urls = ["https://h/a", "gs://b/x/"])
raw_download(name = "mirror", urls = ["gs://b/x/", "s3://elsewhere/far/a"])
raw_download(name = "renamed", urls = ["https://h/b", "gs://b/x/"])
raw_download(name = "other", urls = ["https://other/a", "gs://b/x/"])
"""
    urls = {"https://h/a": content, "s3://elsewhere/far/a": content, "https://h/b": content, "https://other/a": other}
    locked = replace(lock(), url=urls, prefix={"gs://b/x/": f"{other}, 2 files, 9 bytes"})
    found = declared(tmp_path, text, locked)
    prints = {name: fingerprint(found, f"//exp:{name}") for name in ("one", "mirror", "renamed", "other")}
    assert prints["one"] == prints["mirror"] and len(set(prints.values())) == 3
    assert not found.actions["//exp:one"].provisional


def test_what_is_open_is_told_apart_by_what_it_asks_for_alone(tmp_path: Path) -> None:
    """The same tokenizer is one, wherever and beside whatever else it is asked for, before and after locking."""
    text = """
load("@marin//rules:mixture.bzl", "mixture")
tokenizer(name = "tok", files = "me/llama")
tokenized(name = "a", source = "me/a", tokenizer = "me/llama")
tokenized(name = "b", source = "https://h/b.jsonl", tokenizer = ":tok")
tokenized(name = "c", source = "me/c@v2", glob = "*.jsonl", tokenizer = "me/llama@main")
pretokenized(name = "d", repo_id = "me/d", tokenizer = "me/llama")
mixture(name = "mix", train = {":a": 1, ":b": 1, ":c": 1, ":d": 1})
"""
    before = declared(tmp_path, text)
    names = {"model me/llama@main", "dataset me/a@main", "https://h/b.jsonl", "dataset me/c@v2", "dataset me/d@main"}
    assert {need.name for action in before.actions.values() for need in action.unresolved} == names
    assert all(action.provisional for action in before.actions.values())
    assert before.actions["//exp:a#tokenizer"].fingerprint == before.actions["//exp:tok"].fingerprint
    assert not before.actions["//exp:a"].unresolved, "it is open through its inputs"
    hub = {name: COMMIT for name in names if " " in name}
    after = declared(tmp_path, text, replace(lock(), hub=hub, url={"https://h/b.jsonl": "ab" * 32 + "-7"}))
    assert not any(action.provisional for action in after.actions.values())
    assert not {a.fingerprint for a in before.actions.values()} & {a.fingerprint for a in after.actions.values()}


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ('source = "me/a", paths = ["a.jsonl"]', "exactly one of `source`, `paths` or `raw` (with `glob`)"),
        ('source = "me/a", split = "x", glob = "*.jsonl"', "leave `split` and `subset` out"),
        ('source = "https://h/a.jsonl", split = "train"', "`split` and `subset` are of a dataset on the Hub"),
        ('paths = ["a.jsonl"], subset = "x"', "`split` and `subset` are of a dataset on the Hub"),
        ('paths = ["a.jsonl"], glob = "*"', "`raw` and `glob` must be given together"),
        ('source = "corpus"', "neither a Hub id (`owner/name`) nor a URL nor an absolute path"),
        ('source = "a/b/c"', "neither a Hub id (`owner/name`) nor a URL nor an absolute path"),
        ('source = "ftp://h/a"', "is not a URL that can be fetched"),
        ('source = "me/a", text_key = ""', "`text_key` is empty"),
        ('source = "me/a", split = "test"', "`test` looks like a test or a validation set"),
        ('source = "me/a", glob = "data/test-*"', "looks like a test or a validation set"),
        ('paths = ["a_test.jsonl"]', "looks like a test or a validation set"),
        ('source = "https://h/x/validation.jsonl"', "looks like a test or a validation set"),
        ('source = "me/a@b c"', "`b c` is not a revision"),
        ('source = "me/a", tokenizer = "me/to/k"', "no target `//exp:me/to/k`"),
    ],
)
def test_sources_that_cannot_be_are_refused(tmp_path: Path, attrs: str, message: str) -> None:
    (tmp_path / "exp").mkdir()
    for name in ("a.jsonl", "a_test.jsonl"):
        (tmp_path / "exp" / name).write_text('{"text": "a"}\n')
    attrs = attrs if "tokenizer" in attrs else f'{attrs}, tokenizer = "me/llama"'
    with pytest.raises(MarinError) as caught:
        declared(tmp_path, f'tokenized(name = "t", {attrs})\n')
    assert message in caught.value.render()
    assert "exp/BUILD.marin:3" in caught.value.render()


def test_names_that_only_look_like_tests_are_taken(tmp_path: Path) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp/contest.jsonl").write_text('{"text": "a"}\n')
    declared(
        tmp_path,
        """
tokenized(name = "a", paths = ["contest.jsonl"], tokenizer = "me/llama")
tokenized(name = "b", source = "me/a", split = "test", validation = True, tokenizer = "me/llama")
tokenized(name = "c", source = "me/a", split = "test", allow_test_in_train = True, tokenizer = "me/llama")
tokenized(name = "d", source = "gs://test-bucket/x/", tokenizer = "me/llama")
""",
    )
