"""The configuration: workspace file, the user's file, MARIN_* variables and flags, in rising order.

Unknown keys and wrong types are refused where they stand; each value remembers where it came from.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin_cas.errors import Location, RequestError, did_you_mean

WORKSPACE_FILE = "marin.toml"
PROGRESS = ("auto", "plain", "none")
_UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", 1)
    for suffix, base in (("", 1024), ("iB", 1024), ("B", 1000))
}
_AGES = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class Config:
    """`jobs` and `ram` are None for what the machine has, `compilation_cache` for a folder in the cache, `max_size`
    (bytes) and `max_age` (seconds) for no limit; `gc_grace` is in seconds.

    `sources` says, for each field, where its value came from.
    """

    cache: str = "cache"
    jobs: int | None = None
    ram: int | None = None
    keep_going: bool = False
    progress: str = "auto"
    locked: bool = False
    define: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    pass_env: tuple[str, ...] = ()
    compilation_cache: str | None = None
    max_size: int | None = None
    max_age: float | None = None
    gc_grace: float = 86400.0
    sources: Mapping[str, str] = field(default_factory=dict)


class _Wrong(Exception):
    """A value of the wrong type: the text says what was due."""


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _Wrong("a text that is not empty")
    return value


def _jobs(value: object) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if type(value) is not int or value < 1:
        raise _Wrong("a whole number of at least 1")
    return value


def _bytes(value: object) -> int:
    if type(value) is int and value > 0:
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", value) if isinstance(value, str) else None
    if not match or match[2] not in _UNITS or float(match[1]) <= 0:
        raise _Wrong("a number of bytes, or a text such as `8GiB`")
    return int(float(match[1]) * _UNITS[match[2]])


def _limit(value: object) -> int:
    return 0 if value in (0, "0") and not isinstance(value, bool) else _bytes(value)


def _seconds(value: object) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", value) if isinstance(value, str) else None
    if not match or match[2] not in _AGES:
        raise _Wrong("a time such as `90min`, `12h` or `30d`")
    return float(match[1]) * _AGES[match[2]]


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("1", "true", "yes", "0", "false", "no"):
        return value.lower() in ("1", "true", "yes")
    raise _Wrong("true or false")


def _progress(value: object) -> str:
    if value not in PROGRESS:
        raise _Wrong("one of " + ", ".join(f"`{choice}`" for choice in PROGRESS))
    return str(value)


def _define(value: object) -> dict[str, str]:
    if isinstance(value, str):
        pairs = [pair.partition("=") for pair in value.split(",") if pair]
        if any(not name or not equals for name, equals, _ in pairs):
            raise _Wrong("pairs such as `name=value`, separated by commas")
        return {name: text for name, _, text in pairs}
    if not isinstance(value, Mapping) or any(not isinstance(text, str) for text in value.values()):
        raise _Wrong("a table of texts")
    return dict(value)


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [name for name in value.split(",") if name]
    if not isinstance(value, list | tuple) or any(not isinstance(name, str) or not name for name in value):
        raise _Wrong("a list of variable names")
    return tuple(value)


# What each setting means, for people.
SETTINGS = {
    "cache": "the folder of the store, below the workspace's root unless it is absolute",
    "jobs": "how many actions run at once; where left out, as many as this machine's cores hold",
    "ram": "the memory that running actions may take together, such as `8GiB`; where left out, this machine's",
    "keep_going": "after a failure, go on with what does not need it",
    "progress": "`auto` (redrawn on a terminal, else plain lines), `plain` or `none`",
    "locked": "refuse to build where the environment is not the one of marin.lock",
    "define": "names that select() asks for, and their values",
    "profile": "the section [profile.NAME] to take on top; select() can ask for it too",
    "pass_env": "variables of the environment that every tool may see; they never bear identity",
    "compilation_cache": "where JAX keeps compiled programs for later runs; where left out, `jax` in the cache",
    "max_size": "the bytes that the cache may have, such as `50GiB`; each build ends with bringing it below that",
    "max_age": "how long what no root leads to is kept unused, such as `30d`, whenever something is collected",
    "gc_grace": "what was made or used within this time is never collected, such as `12h`; where left out, a day",
}

_READERS: dict[str, Callable[[object], Any]] = {
    "cache": _text,
    "jobs": _jobs,
    "ram": _bytes,
    "keep_going": _bool,
    "progress": _progress,
    "locked": _bool,
    "define": _define,
    "profile": _text,
    "pass_env": _names,
    "compilation_cache": _text,
    "max_size": _limit,
    "max_age": _seconds,
    "gc_grace": _seconds,
}


class _Layers:
    """The values gathered so far, each later layer over the earlier ones; `define` is merged name by name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def put(self, key: str, value: object, source: str, where: Location | None, shown: str) -> None:
        try:
            read = _READERS[key](value)
        except _Wrong as due:
            raise RequestError(f"`{shown}` must be {due}, not `{_shown(value)}`", where=where) from None
        if key == "define":
            self.values[key] = {**self.values.get(key, {}), **read}
        else:
            self.values[key] = read
        self.sources[key] = source


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class _File:
    """One TOML file: `name` as shown, `table` its part that is ours (under `prefix`), `text` to find lines in."""

    name: str
    table: Mapping[str, Any]
    text: str
    prefix: str = ""

    def where(self, key: str, section: str = "") -> Location:
        """The line where `key` of `[section]` stands, as well as the text shows it."""
        begins = re.compile(rf"[\"']?{re.escape(key)}[\"']?\s*[=.]")
        wanted, current = self.prefix + section, ""
        for number, line in enumerate(self.text.splitlines(), 1):
            line = line.strip()
            if header := re.match(r"\[+\s*([^\]]*?)\s*\]", line):
                current = header[1].replace('"', "").replace("'", "").replace(" ", "") + "."
                if current == f"{wanted}{key}." or current.startswith(f"{wanted}{key}."):
                    return Location(self.name, number)
            elif current == wanted and begins.match(line):
                return Location(self.name, number)
        return Location(self.name)


def read_toml(path: Path, shown: str) -> _File | None:
    """The file at `path`, or None when there is none. RequestError with the line when it is not TOML."""
    try:
        text = path.read_bytes().decode("utf-8")
        return _File(shown, tomllib.loads(text), text)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        raise RequestError("the file is not UTF-8", where=Location(shown)) from None
    except OSError as error:
        raise RequestError(f"`{shown}` cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        message = re.sub(r" \(at .*\)$", "", str(error))
        where = Location(shown, int(line[1]) if line else 0)
        raise RequestError(f"not TOML: {message[:1].lower()}{message[1:]}", where=where) from None


def user_config_path(environ: Mapping[str, str]) -> Path | None:
    """Where the user's `config.toml` would be; None when the environment names no home."""
    if sys.platform != "linux":
        # The XDG rule is written out above all for speed: importing platformdirs costs a tenth of a no-op build.
        import platformdirs

        return platformdirs.user_config_path("marin-cas") / "config.toml"
    if base := environ.get("XDG_CONFIG_HOME"):
        return Path(base) / "marin-cas" / "config.toml"
    home = environ.get("HOME")
    return Path(home) / ".config" / "marin-cas" / "config.toml" if home else None


def workspace_file(root: Path) -> _File | None:
    """The workspace's configuration: `marin.toml`, or the table `[tool.marin]` of `pyproject.toml`, not both."""
    own = read_toml(root / WORKSPACE_FILE, WORKSPACE_FILE)
    try:
        # Most parents of a folder are no workspace: look for the name before parsing a file that is not ours.
        mentions = b"marin" in (root / "pyproject.toml").read_bytes()
    except OSError:
        mentions = False
    project = read_toml(root / "pyproject.toml", "pyproject.toml") if mentions else None
    table = project.table.get("tool", {}).get("marin") if project else None
    if project is None or table is None:
        return own
    if own is not None:
        raise RequestError(
            "the workspace is configured twice: in `marin.toml` and in `[tool.marin]` of `pyproject.toml`",
            where=Location(WORKSPACE_FILE),
            hint="keep one of them",
        )
    if not isinstance(table, Mapping):
        raise RequestError("`tool.marin` must be a table", where=project.where("marin", "tool."))
    return _File("pyproject.toml", table, project.text, "tool.marin.")


def config_files(root: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Every file whose content or absence the configuration depends on: the no-op check watches them."""
    user = user_config_path(environ)
    return (root / WORKSPACE_FILE, root / "pyproject.toml", *((user,) if user else ()))


def load_config(root: Path, flags: Mapping[str, object], environ: Mapping[str, str]) -> Config:
    """The configuration of the workspace at `root`. `flags` maps fields to values, None for those not given."""
    files = [file for file in (workspace_file(root), _user_file(environ)) if file]
    layers = _Layers()
    profiles: dict[str, list[tuple[_File, Mapping[str, Any]]]] = {}
    for file in files:
        plain = {key: value for key, value in file.table.items() if key != "profile" or isinstance(value, str)}
        _put_table(layers, file, plain, "")
        sections = file.table.get("profile")
        if isinstance(sections, Mapping):
            for name, section in sections.items():
                if not isinstance(section, Mapping):
                    raise RequestError(f"`profile.{name}` must be a table", where=file.where(name, "profile."))
                profiles.setdefault(name, []).append((file, section))
        elif sections is not None and not isinstance(sections, str):
            raise RequestError("`profile` must be a name or tables `[profile.NAME]`", where=file.where("profile"))
    # Every section is checked, not only the one in use: a typo must not wait for the day it is chosen.
    for name, parts in profiles.items():
        for file, section in parts:
            _put_table(_Layers(), file, section, f"profile.{name}.")
    outer = _Layers()
    _put_environment(outer, environ)
    for key, value in flags.items():
        if value is not None:
            shown = "--" + key.replace("_", "-")
            outer.put(key, value, shown, None, shown)
    chosen = outer.values.get("profile", layers.values.get("profile"))
    if chosen is not None:
        if chosen not in profiles:
            hint = did_you_mean(chosen, profiles) or f"add a section `[profile.{chosen}]` to `{WORKSPACE_FILE}`"
            raise RequestError(f"there is no profile `{chosen}`", hint=hint)
        for file, section in profiles[chosen]:
            _put_table(layers, file, section, f"profile.{chosen}.")
    define = {**layers.values.get("define", {}), **outer.values.get("define", {})}
    values = {**layers.values, **outer.values, **({"define": define} if define else {})}
    return Config(**values, sources={**dict.fromkeys(_READERS, "default"), **layers.sources, **outer.sources})


def _user_file(environ: Mapping[str, str]) -> _File | None:
    path = user_config_path(environ)
    return read_toml(path, str(path)) if path else None


def _put_table(layers: _Layers, file: _File, table: Mapping[str, Any], prefix: str) -> None:
    for key, value in table.items():
        if key not in _READERS or (prefix and key == "profile"):
            known = [name for name in _READERS if not (prefix and name == "profile")]
            hint = did_you_mean(key, known) or "known keys: " + ", ".join(f"`{name}`" for name in known)
            raise RequestError(f"unknown key `{prefix}{key}`", where=file.where(key, prefix), hint=hint)
        where = file.where(key, prefix)
        layers.put(key, value, f"{where}{f' [{prefix[:-1]}]' if prefix else ''}", where, prefix + key)


def _put_environment(layers: _Layers, environ: Mapping[str, str]) -> None:
    known = {f"MARIN_{key.upper()}": key for key in _READERS}
    for variable in sorted(environ):
        if variable in known:
            if environ[variable]:
                layers.put(known[variable], environ[variable], variable, None, variable)
        elif variable.startswith("MARIN_") and not variable.startswith("MARIN_CAS_"):
            # Other programs own variables of this name too (MARIN_PREFIX): only what looks like a slip is refused.
            import difflib

            if close := difflib.get_close_matches(variable, known, n=1, cutoff=0.85):
                raise RequestError(f"unknown variable `{variable}`", hint=f"did you mean `{close[0]}`?")


def cache_folder(root: Path, config: Config) -> Path:
    """The cache's folder; a relative one is below the workspace, wherever it was named."""
    return root / os.path.expanduser(config.cache)
