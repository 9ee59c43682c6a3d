"""Target patterns: what a command line names, to labels.

`//exp:x`, `//exp`, `:x` and `x` (in the package at hand), `exp:x` and `exp/sub` (below it), `//exp:all` (every target
of the package), `//exp/...` and `//...` (every package at and below), `exp/x.py:build` (what a function of a Python
script returns). A leading `-` takes away from what stands before.
What a shell's completion leaves, `exp/` and `./exp`, is read as a folder: every target of its package.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from marin_cas.errors import RequestError
from marin_cas.graph.loading import PackageLoader
from marin_cas.graph.missing import unknown_package, unknown_target
from marin_cas.graph.sources import SourceFinder
from marin_cas.label import Label, parse_label
from marin_cas.lang.values import Declaration

ONE, ALL, BELOW = "one", "all", "below"
SCRIPT = ".py"
MANUAL = "manual"
_LOOKS = "a pattern looks like `//exp:name`, `//exp:all` or `//exp/...`"


@dataclass(frozen=True, slots=True)
class Pattern:
    """`kind` ONE: the target `label`; ALL: every target of its package; BELOW: those of the packages below it too."""

    text: str
    kind: str
    label: Label
    negative: bool = False


def parse_pattern(text: str, package: str = "") -> Pattern:
    """The pattern that `text` means when the working folder is in `package`. Raises RequestError."""
    negative = text.startswith("-")
    body = text[1:] if negative else text
    if not body:
        raise RequestError(f"`{text}` is not a target pattern: it is empty")
    path, colon, name = body.partition(":")
    if body.startswith("@"):
        raise RequestError(f"`{text}` is not a target pattern: `@` repositories hold rule files, no targets")
    if not path.startswith("//"):
        # `x` names a target of the package at hand, or a package below it: expand() looks which.
        path = _from_root(text, path, colon, package)
        body = f"{path}{colon}{name}"
    if path.endswith("/") and not colon:
        return Pattern(text, ALL, _folder_label(path.rstrip("/"), text), negative)
    if path.endswith("...") and path[-4:-3] == "/" and name in ("", "all"):
        return Pattern(text, BELOW, _package_label(path[2:-3].rstrip("/"), text), negative)
    if name == "all":
        return Pattern(text, ALL, _package_label(body.partition(":")[0][2:], text), negative)
    try:
        label = parse_label(body)
    except ValueError as error:
        raise RequestError(str(error), hint=_LOOKS) from None
    return Pattern(text, ONE, label, negative)


def _from_root(text: str, path: str, colon: str, package: str) -> str:
    """`path` as it is from the workspace's root; behind one that can only be a folder's stands a `/`."""
    if path.startswith("/"):
        raise RequestError(f"`{text}` is not a target pattern: it begins at the machine's root", hint=_LOOKS)
    if path.partition("/")[0] not in (".", ".."):
        return f"//{package}/{path}" if package and path else f"//{package}{path}"
    tidied = posixpath.normpath(posixpath.join(package, path))
    if tidied.partition("/")[0] == "..":
        raise RequestError(f"`{text}` is outside of the workspace")
    folder = posixpath.basename(path) in ("", ".", "..")
    return "//" if tidied == "." else f"//{tidied}{'/' if folder and not colon else ''}"


def _folder_label(path: str, text: str) -> Label:
    """The label that stands for a package in messages: `//exp/data` rather than `//exp/data:all`."""
    try:
        return parse_label(path) if path else Label("", ALL)
    except ValueError as error:
        raise RequestError(f"`{text}`: {error}", hint=_LOOKS) from None


def _package_label(package: str, text: str) -> Label:
    try:
        return parse_label(f"//{package}:all")
    except ValueError as error:
        raise RequestError(f"`{text}`: {error}") from None


def expand(
    loader: PackageLoader,
    patterns: Iterable[str],
    package: str = "",
    *,
    manual: bool = False,
    files: bool = False,
) -> tuple[Label, ...]:
    """The labels that the patterns name, each once, in order of the patterns and of labels within one.

    Targets tagged `manual` are left out of `:all` and `...` unless `manual`. A source file is refused unless `files`.
    """
    chosen: dict[Label, None] = {}
    parsed = [parse_pattern(text, package) for text in patterns]
    for pattern in parsed:
        labels = _labels(loader, pattern, package, manual or pattern.negative, files or pattern.negative)
        if pattern.negative:
            for label in labels:
                chosen.pop(label, None)
        else:
            chosen.update(dict.fromkeys(labels))
    if parsed and all(pattern.negative for pattern in parsed):
        raise RequestError(
            f"`{' '.join(pattern.text for pattern in parsed)}` only takes targets away",
            hint="name what to take them from before it, such as `//...`",
        )
    return tuple(chosen)


def _labels(loader: PackageLoader, pattern: Pattern, package: str, manual: bool, files: bool) -> list[Label]:
    if pattern.kind == ONE:
        called = loader.script(pattern.label) if pattern.label.package.endswith(SCRIPT) else None
        if called is not None:
            return list(called)
        return [_one(loader, pattern, package, files)]
    below = pattern.label.package
    if pattern.kind == ALL:
        if not loader.has_package(below):
            raise unknown_package(loader, pattern.label)
        packages = [below]
    else:
        packages = loader.packages(below)
        if not packages:
            error = unknown_package(loader, pattern.label)
            raise RequestError(f"no packages at or below `//{below}`", hint=error.hint)
    return sorted(
        declaration.label
        for name in packages
        for declaration in loader.package(name).declarations.values()
        if manual or not _is_manual(declaration)
    )


def _one(loader: PackageLoader, pattern: Pattern, package: str, files: bool) -> Label:
    label = pattern.label
    body = pattern.text.removeprefix("-")
    if not body.startswith("//") and ":" not in body:
        label = _relative(loader, body, package, label)
    if not loader.has_package(label.package):
        raise unknown_package(loader, label)
    found = loader.package(label.package)
    if label.name in found.declarations:
        return label
    if SourceFinder(loader).find(label) is None:
        error = unknown_target(loader, found, label)
        if ":" not in body and body.rpartition("/")[2] == label.package.rpartition("/")[2]:
            error.hint = f"`//{label.package}:all` names all of its targets; {error.hint}"
        raise error
    if not files:
        raise RequestError(
            f"`{label}` is a source file, not a target",
            hint=f'the targets that read it: `marin query "rdeps(//..., {label})"`',
        )
    return label


def _relative(loader: PackageLoader, body: str, package: str, otherwise: Label) -> Label:
    """`x/y` without a colon: a target or file of the package at hand, a package below, or a target in one."""
    if loader.has_package(package) and body in loader.package(package).declarations:
        return Label(package, body)
    if loader.has_package(otherwise.package):
        return otherwise
    folder, name = otherwise.package, ""
    while folder:
        folder, _, piece = folder.rpartition("/")
        name = f"{piece}/{name}" if name else piece
        if loader.has_package(folder):
            return Label(folder, name)
    return otherwise


def _is_manual(declaration: Declaration) -> bool:
    tags = declaration.attrs.get("tags")
    return isinstance(tags, list | tuple) and MANUAL in tags
