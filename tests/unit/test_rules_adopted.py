"""Data that lies elsewhere: it is what marin.lock says of it, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from marin_cas.errors import MarinError
from marin_cas.label import Label
from tests.identity.analysed import analysed, fingerprint
from tests.identity.space import lock

ONE, OTHER = f"{'1' * 64}-80, 2 files, 10 bytes", f"{'2' * 64}-80, 2 files, 10 bytes"
LOADS = """
load("@marin//rules:data.bzl", "adopted", "hf_download", "pretokenized", "raw_download", "tokenized", "tokenizer")
load("@marin//rules:mixture.bzl", "mixture")
"""
HUB = 'hf_download(name = "t", hf_id = "me/%s", revision = "main", pin = "%s")\n'


def declared(root: Path, text: str, **prefixes: str):
    (root / "exp").mkdir(parents=True, exist_ok=True)
    (root / "exp/BUILD.marin").write_text(LOADS + text)
    return analysed(
        root, lock=replace(lock(), prefix={f"{name.replace('_', '://')}/": m for name, m in prefixes.items()})
    )


def prints(root: Path, text: str, *names: str, **prefixes: str) -> list[bytes]:
    analysis = declared(root, text, **prefixes)
    return [fingerprint(analysis, f"//exp:{name}") for name in names]


TREES = """
hf_download(name = "hub", hf_id = "me/words", revision = "main", pin = "gs://bucket")
hf_download(name = "other_hub", hf_id = "me/others", revision = "v2", urls_glob = ["*"], pin = "gs://bucket/")
raw_download(name = "raw", urls = ["https://x.org/a"], pin = "gs://bucket")
raw_download(name = "bare", pin = "s3://mirror")
adopted(name = "tree", source = "s3://mirror/")
adopted(name = "tok", source = "gs://bucket", kind = "tokenizer")
"""
CACHES = """
tokenizer(name = "tok", files = ":folder")
adopted(name = "folder", source = "s3://tok/")
tokenized(name = "a", source = "me/words", tokenizer = ":tok", pin = "gs://cache", component = "c")
pretokenized(name = "b", repo_id = "me/cache", tokenizer = ":tok", pin = "gs://cache/")
adopted(name = "c", source = "gs://cache", kind = "tokenized", tokenizer = ":tok")
adopted(name = "d", source = "gs://cache", kind = "tokenized", tokenizer = ":tok", validation = True)
mixture(name = "mix", train = {":a": 1})
"""


def test_it_is_what_the_lock_says_and_nothing_else(tmp_path: Path) -> None:
    names = ("hub", "other_hub", "raw", "bare", "tree", "tok")
    same = prints(tmp_path, TREES, *names, gs_bucket=ONE, s3_mirror=ONE)
    assert len(set(same)) == 1, "whatever is declared, and wherever it lies"
    changed = prints(tmp_path, TREES, *names, gs_bucket=OTHER, s3_mirror=ONE)
    assert [a == b for a, b in zip(same, changed, strict=True)] == [False, False, False, True, True, False]
    action = declared(tmp_path, TREES, gs_bucket=ONE, s3_mirror=ONE).actions["//exp:hub"]
    assert action.params == {"sources": [{"name": "", "manifest": ONE}]} and action.inputs == {}
    assert not action.toolchain


def test_a_cache_that_lies_elsewhere_is_looked_through(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    a, b, c, d = prints(tmp_path, CACHES, *names, gs_cache=ONE, s3_tok=ONE)
    assert a == b == c != d
    analysis = declared(tmp_path, CACHES, gs_cache=ONE, s3_tok=ONE)
    action = analysis.actions["//exp:a"]
    assert action.tool == "pretokenized" and set(action.inputs) == {"files", "tokenizer"}
    assert "//exp:a#source" not in analysis.actions, "what is pinned is not fetched from where it came from"
    assert a not in prints(tmp_path, CACHES, *names, gs_cache=OTHER, s3_tok=ONE)
    assert a not in prints(tmp_path, CACHES, *names, gs_cache=ONE, s3_tok=OTHER)
    [component] = analysis.target(Label("exp", "mix")).providers["MixtureInfo"]["components"]
    assert component["name"] == "c"


HELD = """
load("@marin//rules:resources.bzl", "cpu")
tokenizer(name = "tok", files = ":folder")
adopted(name = "folder", source = "s3://tok/", resources = cpu(cpu = 3))
adopted(name = "kind", source = "s3://tok/", kind = "tokenizer", resources = cpu(cpu = 3))
hf_download(name = "hub", hf_id = "me/words", revision = "main", pin = "s3://tok", resources = cpu(cpu = 3))
raw_download(name = "raw", pin = "s3://tok", resources = cpu(cpu = 3))
tokenized(name = "a", source = "me/words", tokenizer = ":tok", pin = "s3://tok", resources = cpu(cpu = 3))
pretokenized(name = "b", repo_id = "me/cache", tokenizer = ":tok", pin = "s3://tok", resources = cpu(cpu = 3))
adopted(name = "c", source = "s3://tok", kind = "tokenized", tokenizer = ":tok", resources = cpu(cpu = 3))
"""


def test_the_targets_resources_are_for_its_own_action(tmp_path: Path) -> None:
    actions = declared(tmp_path, HELD, s3_tok=ONE).actions
    held = {id: action.resources.cpu for id, action in actions.items()}
    own = {f"//exp:{name}": 3 for name in ("folder", "kind", "hub", "raw", "a", "b", "c")}
    assert held == own | {f"//exp:{name}#pin": 1 for name in ("a", "b", "c")}


def test_until_it_is_locked_it_is_provisional(tmp_path: Path) -> None:
    analysis = declared(tmp_path, TREES)
    assert [str(need) for need in analysis.actions["//exp:hub"].unresolved] == ["gs://bucket/"]
    assert analysis.actions["//exp:hub"].provisional


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HUB % ("w", "somewhere"), "`pin` is `somewhere`, neither a URL nor an absolute path"),
        (HUB % ("w", "ftp://x/y"), "is not a URL that can be fetched"),
        (HUB % ("w", "https://x.org/y"), "cannot be listed over https://"),
        ('raw_download(name = "t")', "provide exactly one of `function` and `urls`"),
        ('raw_download(name = "t", function = "f.py:f", urls = ["https://x/y"], pin = "/a")', "provide exactly one of"),
        ('adopted(name = "t")', "needs the attribute `source`"),
        ('adopted(name = "t", source = "")', "`source` is empty"),
        ('adopted(name = "t", source = "a/b")', "`source` is `a/b`, neither a URL nor an absolute path"),
        ('adopted(name = "t", source = "/a/", kind = "cache")', 'is `"cache"`, not one of `"tree"`'),
        ('adopted(name = "t", source = "/a/", kind = "tokenized")', "needs the `tokenizer` that it was made with"),
        ('adopted(name = "t", source = "/a/", validation = True)', '`validation` goes with `kind = "tokenized"`'),
        ('adopted(name = "t", source = "/a/", component = "x")', '`component` goes with `kind = "tokenized"`'),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(MarinError) as caught:
        declared(tmp_path, text)
    assert message in caught.value.render(), caught.value.render()
    assert "exp/BUILD.marin:4" in caught.value.render()
