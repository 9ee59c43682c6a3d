"""`marin.lock`: versions and contents that enter keys, one sorted line an entry, changed only on purpose.

`[toolchain]` names distributions; `python` may be left out, then the running version enters the keys of the rules that
list it. `[hub]` maps a repo's revision to its commit, `[url]` a URL to its content, `[prefix]` a folder of a bucket to
the digest of its manifest. A person reviews a change here as the one line that it is.
"""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from marin_cas.errors import Location, RequestError, did_you_mean

LOCK_FILE = "marin.lock"
_FORMAT = 1
HUB, URL, PREFIX = "hub", "url", "prefix"
# What a resolve phase writes, and the form of each answer.
RESOLVED = {
    HUB: re.compile(r"[0-9a-f]{40}"),
    URL: re.compile(r"[0-9a-f]{64}-\d+"),
    PREFIX: re.compile(r"[0-9a-f]{64}-\d+, \d+ files, \d+ bytes"),
}
_SECTIONS = ("format", "toolchain", *RESOLVED)


@dataclass(frozen=True, slots=True)
class Lock:
    """`toolchain` maps distributions to versions; `present` is False where the workspace has no lock file.

    `hub` maps `dataset owner/name@main` to a commit, `url` a URL to `<digest>`, `prefix` a URL that ends in `/` to
    `<digest of its manifest>, N files, N bytes`.
    """

    toolchain: Mapping[str, str] = field(default_factory=dict)
    present: bool = True
    hub: Mapping[str, str] = field(default_factory=dict)
    url: Mapping[str, str] = field(default_factory=dict)
    prefix: Mapping[str, str] = field(default_factory=dict)

    def section(self, kind: str) -> Mapping[str, str]:
        """One of the sections that a resolve phase writes."""
        return {HUB: self.hub, URL: self.url, PREFIX: self.prefix}[kind]

    def resolved(self, answers: Mapping[tuple[str, str], str]) -> Lock:
        """This lock with further answers, by section and name; those for what it has already take their place."""
        sections = {kind: dict(self.section(kind)) for kind in RESOLVED}
        for (kind, name), answer in answers.items():
            sections[kind][name] = answer
        return replace(self, present=True, **sections)

    def version(self, distribution: str, *, where: Location | None = None) -> str:
        """The version of `distribution` that keys hold. Raises RequestError when it is not locked."""
        version = self.toolchain.get(distribution)
        if version:
            return version
        if distribution == "python":
            return platform.python_version()
        raise RequestError(
            f"`{distribution}` bears identity here, but {LOCK_FILE} does not pin it"
            if self.present
            else f"there is no {LOCK_FILE}, which pins the versions that bear identity (here `{distribution}`)",
            where=where,
            hint=f"run `marin lock`, then commit {LOCK_FILE}",
        )


def read_lock(root: Path) -> Lock:
    """The workspace's lock, empty when there is none. Raises RequestError for a file that is not one."""
    try:
        with (root / LOCK_FILE).open("rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        return Lock(present=False)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(
            f"not a lock file: {error}", where=LOCK_FILE, hint="restore it from git, or run `marin lock`"
        ) from None
    for key in document:
        if key not in _SECTIONS:
            raise RequestError(f"unknown section `{key}`", where=LOCK_FILE, hint=did_you_mean(key, _SECTIONS))
    if document.get("format") != _FORMAT:
        raise RequestError(
            f"its format is {document.get('format')!r}; this marin-cas reads {_FORMAT}",
            where=LOCK_FILE,
            hint="use the marin-cas that wrote it, or run `marin lock` with this one",
        )
    sections = {kind: document.get(kind, {}) for kind in ("toolchain", *RESOLVED)}
    for kind, entries in sections.items():
        if not isinstance(entries, dict):
            raise RequestError(f"`{kind}` must be a section", where=LOCK_FILE, hint="restore it from git")
    for name, version in sections["toolchain"].items():
        if not isinstance(version, str) or not version:
            raise RequestError(f"the version of `{name}` must be text", where=LOCK_FILE, hint="run `marin lock`")
    for kind, form in RESOLVED.items():
        for name, answer in sections[kind].items():
            if not isinstance(answer, str) or not form.fullmatch(answer):
                raise RequestError(
                    f"`{answer}` cannot be what section `{kind}` says of `{name}`",
                    where=LOCK_FILE,
                    hint="remove the line and run `marin lock`",
                )
    return Lock(**sections)


def lock_text(lock: Lock) -> str:
    """The file's text: deterministic, so that equal locks are equal files."""
    lines = [
        "# Written by `marin lock`: the versions that enter keys. Commit it; a changed line rebuilds what lists it.",
        f"format = {_FORMAT}",
        "",
        "[toolchain]",
        *(f'{_toml_key(name)} = "{version}"' for name, version in sorted(lock.toolchain.items())),
    ]
    for kind in RESOLVED:
        if entries := lock.section(kind):
            lines += ["", f"[{kind}]", *(f'"{name}" = "{answer}"' for name, answer in sorted(entries.items()))]
    return "\n".join(lines) + "\n"


def _toml_key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else f'"{name}"'


def installed_lock(distributions: Iterable[str], previous: Lock) -> Lock:
    """A lock of what is installed here. `python` stays open unless it was pinned before.

    Raises EnvironmentProblem naming what is not installed and was not locked before either.
    """
    from importlib.metadata import PackageNotFoundError, version

    toolchain: dict[str, str] = {}
    missing: list[str] = []
    for name in sorted(set(distributions) | set(previous.toolchain)):
        if name == "python":
            if "python" in previous.toolchain:
                toolchain[name] = platform.python_version()
            continue
        try:
            toolchain[name] = version(name)
        except PackageNotFoundError:
            # Locking from a machine without the training extra must not drop the team's pins.
            if name in previous.toolchain:
                toolchain[name] = previous.toolchain[name]
            else:
                missing.append(name)
    if missing:
        raise RequestError(
            f"not installed here, so there is no version to lock: {', '.join(f'`{name}`' for name in missing)}",
            hint="install them (for the rules of training: `pip install 'marin-cas[train,eval]'`), then `marin lock`",
        )
    return replace(previous, toolchain=toolchain, present=True)


def write_lock(root: Path, lock: Lock) -> bool:
    """Writes the file if its text would change; says whether it did."""
    path, text = root / LOCK_FILE, lock_text(lock)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    temporary = path.with_name(LOCK_FILE + ".new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return True
