"""Which files of a dataset's repo are a split: by its README, or by what its files are called."""

from __future__ import annotations

import pytest

from marin_cas.tools.hub_layout import choose_split
from marin_cas.worker.context import ToolError

README = """---
license: mit
configs:
- config_name: plain
  default: true
  data_files:
  - split: train
    path: data/plain/train-*
  - split: dev
    path: [data/plain/dev-*.parquet, "more/{a,b}-[0-9].parquet"]
- config_name: all
  data_files: "**/*.parquet"
- config_name: below
  data_dir: data
  data_files: {train: plain/train-*, test: x.parquet}
---
# Words
"""
PATHS = [
    "README.md",
    "data/plain/dev-0.parquet",
    "data/plain/train-0.parquet",
    "data/plain/train-1.parquet",
    "data/x.parquet",
    "more/a-1.parquet",
    "more/b-x.parquet",
    "more/c-1.parquet",
]


def chosen(paths: list[str], split: str = "train", subset: str = "", readme: str = "# nothing\n") -> list[str]:
    return choose_split(paths, lambda: readme.encode(), subset, split, "dataset `a/b`")


@pytest.mark.parametrize(
    ("subset", "split", "expected"),
    [
        ("", "train", ["data/plain/train-0.parquet", "data/plain/train-1.parquet"]),
        ("plain", "validation", ["data/plain/dev-0.parquet", "more/a-1.parquet"]),
        ("plain", "dev", ["data/plain/dev-0.parquet", "more/a-1.parquet"]),
        ("all", "train", [path for path in PATHS if path.endswith(".parquet")]),
        ("below", "train", ["data/plain/train-0.parquet", "data/plain/train-1.parquet"]),
        ("below", "test", ["data/x.parquet"]),
    ],
)
def test_by_the_readme(subset: str, split: str, expected: list[str]) -> None:
    assert chosen(PATHS, split, subset, README) == expected


@pytest.mark.parametrize(
    ("paths", "split", "subset", "expected"),
    [
        (["shard_0/local_1/x.jsonl.zst", "README.md"], "train", "", ["shard_0/local_1/x.jsonl.zst"]),
        (["arxiv/train/a.jsonl.zst", "arxiv/validation/a.jsonl.zst"], "validation", "",
         ["arxiv/validation/a.jsonl.zst"]),
        (["python/train-00000-of-00002.parquet", "rust/train-00001-of-00002.parquet"], "train", "rust",
         ["rust/train-00001-of-00002.parquet"]),
        (["data/train/test_cases.jsonl", "data/test/train_cases.jsonl"], "train", "", ["data/train/test_cases.jsonl"]),
        (["en/c4-train.00000-of-01024.json.gz", "en/c4-validation.00000-of-00008.json.gz"], "validation", "en",
         ["en/c4-validation.00000-of-00008.json.gz"]),
        (["val.jsonl", "training.jsonl", "extra.jsonl", "dev.csv"], "val", "", ["val.jsonl"]),
        (["data/held-00000-of-00001.parquet", "data/train-00000-of-00001.parquet"], "held", "",
         ["data/held-00000-of-00001.parquet"]),
        (["data/de/train.txt", "de/x.csv"], "train", "de", ["data/de/train.txt"]),
    ],
)  # fmt: skip
def test_by_the_names(paths: list[str], split: str, subset: str, expected: list[str]) -> None:
    assert chosen(paths, split, subset) == expected


@pytest.mark.parametrize(
    ("paths", "split", "subset", "readme", "message", "hint"),
    [
        (PATHS, "test", "plain", README, "no split `test` of subset `plain`", "there are `train`, `validation`"),
        (PATHS, "train", "plian", README, "no subset `plian`", "did you mean `plain`?"),
        (PATHS, "tarin", "", README, "no split `tarin`", "did you mean `train`?"),
        (["a/x.jsonl"], "train", "b", "", "no subset `b`: its README names none", "its folders: `a`"),
        (
            ["a/x.jsonl"],
            "validation",
            "",
            "",
            "no split `validation`",
            "there is `train`; or say which files with `glob`",
        ),
        (["a/x.csv"], "train", "", "", "no split `train`", "there are no data files"),
        (["README.md", "a.jsonl"], "train", "", "---\na: [\n---\n", "is no YAML", ""),
        (
            ["README.md", "a.jsonl"],
            "train",
            "",
            "---\nconfigs: [{config_name: x, data_files: a*}, {config_name: y, data_files: b*}]\n---\n",
            "has subsets, and none is the default",
            "`x`, `y`",
        ),
        (
            ["README.md", "a.jsonl"],
            "train",
            "",
            "---\nconfigs: [{data_files: 'hf://datasets/x/y/a.jsonl'}]\n---\n",
            "names files elsewhere",
            "",
        ),
    ],
)
def test_what_is_not_there_is_said(paths, split, subset, readme, message, hint) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        chosen(paths, split, subset, readme)
    assert hint in (caught.value.hint or "")
