"""Which files of a dataset's repo are a split of a subset: as its README says, or as its files are called.

What is decided here follows from the commit alone. Where a repo's README has `configs`, they say it. Else a file
belongs to the split that a folder above it, or else its own name, is called after; where none is, all are `train`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from marin_cas.errors import did_you_mean
from marin_cas.tools.documents import SUFFIXES
from marin_cas.worker.context import ToolError

README = "README.md"
README_MAX = 4 << 20
_SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARD = re.compile(r"(.+?)[-_.]\d{5}-of-\d{5}")
_WORD = re.compile(r"[A-Za-z]+")


def choose_split(paths: Sequence[str], readme: Callable[[], bytes], subset: str, split: str, where: str) -> list[str]:
    """The paths, in order. ToolError, with what there is, when there is no such split or subset. `readme` reads it."""
    configs = _configs(readme(), where) if README in paths else []
    found = _of_config(_config(configs, subset, where), paths, where) if configs else _by_name(paths, subset, where)
    wanted = canonical(split)
    if not found.get(wanted):
        names = [name for name, files in found.items() if files]
        shown = f"there {'is' if len(names) == 1 else 'are'} {_listed(names)}" if names else "there are no data files"
        of = f" of subset `{subset}`" if subset else ""
        raise ToolError(
            f"the {where} has no split `{split}`{of}",
            hint=did_you_mean(split, names) or f"{shown}; or say which files with `glob`",
        )
    return found[wanted]


def canonical(split: str) -> str:
    """`val` and `dev` are `validation`, and so on; other names stay."""
    return next((name for name, words in _SPLITS.items() if split.lower() in words), split)


# By the README.


def _configs(readme: bytes, where: str) -> list[Mapping[str, Any]]:
    """The `configs` of the front matter that say which files they are made of."""
    import yaml

    text = readme.decode("utf-8", "replace").replace("\r\n", "\n").lstrip("\ufeff")
    if not text.startswith("---\n"):
        return []
    head = text[4:].partition("\n---")[0]
    try:
        front = yaml.safe_load(head)
    except yaml.YAMLError as error:
        raise ToolError(f"the front matter of `{README}` of the {where} is no YAML: {error}") from None
    configs = front.get("configs") if isinstance(front, dict) else None
    if not isinstance(configs, list):
        return []
    return [config for config in configs if isinstance(config, dict) and config.get("data_files")]


def _config(configs: Sequence[Mapping[str, Any]], subset: str, where: str) -> Mapping[str, Any]:
    names = [str(config.get("config_name", "default")) for config in configs]
    if subset:
        if subset in names:
            return configs[names.index(subset)]
        raise ToolError(
            f"the {where} has no subset `{subset}`", hint=did_you_mean(subset, names) or f"there are {_listed(names)}"
        )
    for config, name in zip(configs, names, strict=True):
        if config.get("default") is True or name == "default" or len(configs) == 1:
            return config
    raise ToolError(f"the {where} has subsets, and none is the default: say which `subset`", hint=_listed(names))


def _of_config(config: Mapping[str, Any], paths: Sequence[str], where: str) -> dict[str, list[str]]:
    files, folder = config["data_files"], str(config.get("data_dir") or "").strip("/")
    if isinstance(files, dict):
        rows = list(files.items())
    elif isinstance(files, list) and all(isinstance(each, dict) for each in files):
        rows = [(each.get("split", "train"), each.get("path")) for each in files]
    else:
        rows = [("train", files)]
    found: dict[str, list[str]] = {}
    for split, patterns in rows:
        chosen: dict[str, None] = {}
        for pattern in [patterns] if isinstance(patterns, str) else patterns or ():
            if "://" in str(pattern):
                raise ToolError(f"the README of the {where} names files elsewhere: `{pattern}`")
            whole = f"{folder}/{pattern}" if folder else str(pattern).removeprefix("./")
            matches = _regex(whole).fullmatch
            chosen.update(dict.fromkeys(path for path in paths if matches(path)))
        found.setdefault(canonical(str(split)), []).extend(path for path in paths if path in chosen)
    return found


def _regex(pattern: str) -> re.Pattern[str]:
    """Patterns as `datasets` has them: `*`, `**`, `?`, `[...]`, `{a,b}`."""
    out: list[str] = []
    place = 0
    while place < len(pattern):
        char = pattern[place]
        if pattern.startswith("**/", place):
            out.append("(?:[^/]+/)*")
            place += 3
            continue
        if pattern.startswith("**", place):
            out.append(".*")
            place += 2
            continue
        end = pattern.find("]" if char == "[" else "}", place + 2)
        if char == "[" and end > 0:
            body = pattern[place + 1 : end].replace("\\", "\\\\")
            out.append(f"[^{body[1:]}]" if body[0] == "!" else f"[{body}]")
            place = end
        elif char == "{" and end > 0:
            out.append("(?:" + "|".join(map(re.escape, pattern[place + 1 : end].split(","))) + ")")
            place = end
        else:
            out.append("[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char))
        place += 1
    return re.compile("".join(out), re.DOTALL)


# By the names of the files.


def _by_name(paths: Sequence[str], subset: str, where: str) -> dict[str, list[str]]:
    data = [path for path in paths if path.endswith(SUFFIXES)]
    if subset:
        folder = next((f for f in (subset, f"data/{subset}") if any(p.startswith(f"{f}/") for p in data)), None)
        if folder is None:
            folders = sorted({path.split("/")[0] for path in data if "/" in path})
            raise ToolError(
                f"the {where} has no subset `{subset}`: its README names none, and no folder of data is called so",
                hint=did_you_mean(subset, folders) or (f"its folders: {_listed(folders)}" if folders else None),
            )
        data = [path for path in data if path.startswith(f"{folder}/")]
        inside = len(folder) + 1
    else:
        inside = 0
    found: dict[str, list[str]] = {}
    for path in data:
        split = _split_of(path[inside:])
        if split:
            found.setdefault(split, []).append(path)
    return found or {"train": data}


def _split_of(path: str) -> str | None:
    """The split that a path names: its folders from the outside, then its own name."""
    *folders, name = path.split("/")
    for folder in folders:
        if split := _named(folder):
            return split
    if shard := _SHARD.match(name):
        return _named(shard[1]) or (shard[1] if folders[-1:] == ["data"] else None)
    return _named(next(name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)))


def _named(text: str) -> str | None:
    words = {word.lower() for word in _WORD.findall(text)}
    return next((split for split, known in _SPLITS.items() if words.intersection(known)), None)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(f"`{name}`" for name in names[:12]) + (", ..." if len(names) > 12 else "")
