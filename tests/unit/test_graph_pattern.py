"""Patterns to labels, over workspaces on disk."""

from __future__ import annotations

import pytest

from marin_cas.errors import RequestError
from marin_cas.graph.pattern import expand
from marin_cas.lang.loader import Loader

FILES = {
    "BUILD.marin": 'filegroup(name = "top")\n',
    "exp/BUILD.marin": 'filegroup(name = "tiny")\nfilegroup(name = "exp")\n'
    'filegroup(name = "slow", tags = ["manual"])\n',
    "exp/clean.py": "",
    "exp/sub/BUILD.marin": 'filegroup(name = "sub")\n',
    "exp2/BUILD.marin": 'filegroup(name = "other")\n',
    "exp/data/x.txt": "",
    "plain/readme.txt": "",
}


@pytest.fixture
def loader(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Loader(tmp_path, tmp_path / "rules")


@pytest.mark.parametrize(
    ("package", "patterns", "labels"),
    [
        ("", ["//exp:tiny"], "//exp:tiny"),
        ("", ["//exp"], "//exp:exp"),
        ("exp", [":tiny"], "//exp:tiny"),
        ("exp", ["tiny"], "//exp:tiny"),
        ("exp", ["sub"], "//exp/sub:sub"),
        ("", ["exp"], "//exp:exp"),
        ("", ["exp:tiny"], "//exp:tiny"),
        ("", ["exp/tiny"], "//exp:tiny"),
        ("exp", ["//:top"], "//:top"),
        ("", [":top"], "//:top"),
        ("", ["//exp:all"], "//exp:exp //exp:tiny"),
        ("exp", [":all"], "//exp:exp //exp:tiny"),
        ("", ["//exp/..."], "//exp:exp //exp:tiny //exp/sub:sub"),
        ("", ["//exp/...:all"], "//exp:exp //exp:tiny //exp/sub:sub"),
        ("exp", ["..."], "//exp:exp //exp:tiny //exp/sub:sub"),
        ("exp", ["sub/..."], "//exp/sub:sub"),
        ("", ["//..."], "//:top //exp:exp //exp:tiny //exp/sub:sub //exp2:other"),
        ("", ["..."], "//:top //exp:exp //exp:tiny //exp/sub:sub //exp2:other"),
        ("", ["//exp/...", "-//exp:tiny"], "//exp:exp //exp/sub:sub"),
        ("", ["//...", "-//exp/..."], "//:top //exp2:other"),
        ("", ["//exp/...", "-//exp/...", "//exp:tiny"], "//exp:tiny"),
        ("", ["//exp2:other", "//exp:slow", "//exp2:other"], "//exp2:other //exp:slow"),
        ("", ["//exp:all", "-//exp:slow"], "//exp:exp //exp:tiny"),
        ("", ["exp/"], "//exp:exp //exp:tiny"),
        ("exp2", ["//exp/"], "//exp:exp //exp:tiny"),
        ("exp", ["sub/", "-//exp2/"], "//exp/sub:sub"),
        ("exp", ["."], "//exp:exp //exp:tiny"),
        ("exp", ["./tiny"], "//exp:tiny"),
        ("exp", ["./sub"], "//exp/sub:sub"),
        ("exp", [".:tiny"], "//exp:tiny"),
        ("exp", ["./..."], "//exp:exp //exp:tiny //exp/sub:sub"),
        ("exp", ["../exp2:other"], "//exp2:other"),
        ("exp/sub", ["../"], "//exp:exp //exp:tiny"),
        ("exp", [".."], "//:top"),
        ("exp", ["..:top"], "//:top"),
        ("", ["//"], "//:top"),
    ],
)
def test_patterns(loader, package, patterns, labels):
    assert " ".join(map(str, expand(loader, patterns, package))) == labels


def test_manual_targets_and_files_on_request(loader):
    assert [str(x) for x in expand(loader, ["//exp:all"], manual=True)] == ["//exp:exp", "//exp:slow", "//exp:tiny"]
    assert [str(x) for x in expand(loader, ["clean.py"], "exp", files=True)] == ["//exp:clean.py"]


@pytest.mark.parametrize(
    ("patterns", "says", "hint"),
    [
        (["//exp:tinny"], "no target `//exp:tinny`", "did you mean `//exp:tiny`?"),
        (["//exp:zzz"], "no target `//exp:zzz`", "targets there: `:exp`, `:slow`, `:tiny`"),
        (["//expp:tiny"], "no package `//expp`", "did you mean `//exp`?"),
        (["//exp/tiny"], "no package `//exp/tiny`", "did you mean `//exp:tiny`?"),
        (["//exp2"], "no target `//exp2:exp2`", "`//exp2:all` names all of its targets; targets there: `:other`"),
        (["plain/"], "its folder has no `BUILD.marin`", "did you mean `//:plain`?"),
        (["exp/data/"], "no package `//exp/data`", "did you mean `//exp:data`?"),
        (["../x"], "`../x` is outside of the workspace", None),
        (["/tmp/x"], "begins at the machine's root", None),
        (["//plain:x"], "its folder has no `BUILD.marin`", "packages here: `//`, `//exp`, `//exp/sub`, `//exp2`"),
        (["//typo/..."], "no packages at or below `//typo`", None),
        (["//typo:all"], "no package `//typo`", None),
        (["//exp:tiny", "-//exp:tinny"], "no target `//exp:tinny`", "did you mean `//exp:tiny`?"),
        (["-//exp:tiny"], "only takes targets away", None),
        (["//exp:clean.py"], "is a source file, not a target", None),
        (["//exp:sub/x"], "no target `//exp:sub/x`", None),
        (["//a//b"], "is not a label", None),
        (["//../a/..."], "is not a label", None),
        (["@marin//rules:data.bzl"], "hold rule files, no targets", None),
        ([""], "it is empty", None),
        (["-"], "it is empty", None),
    ],
)
def test_patterns_that_name_nothing(loader, patterns, says, hint):
    with pytest.raises(RequestError) as caught:
        expand(loader, patterns)
    assert says in caught.value.message
    if hint:
        assert caught.value.hint == hint
