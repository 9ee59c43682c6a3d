"""What a user's module imports, and whether that is the workspace's, the standard library's or a third party's.

Static imports only, those inside functions included; imports under `if TYPE_CHECKING:` never run and do not count.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from marin_cas.errors import Location, RequestError, did_you_mean


@dataclass(frozen=True, slots=True)
class Import:
    """One imported dotted name. `names` are what `from module import ...` takes, empty for a plain import."""

    module: str
    names: tuple[str, ...]
    level: int
    line: int


def imports_of(tree: ast.Module) -> tuple[Import, ...]:
    """Every import statement of a module that may run."""
    found: list[Import] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found += [Import(alias.name, (), 0, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            found.append(Import(node.module or "", names, node.level, node.lineno))
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)
    return tuple(sorted(found, key=lambda item: (item.line, item.module, item.names)))


def _is_type_checking(test: ast.expr) -> bool:
    if isinstance(test, ast.Attribute):
        return test.attr == "TYPE_CHECKING"
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def absolute_name(item: Import, module: str, is_package: bool, where: Location) -> str:
    """The dotted name that an import statement of `module` means. Raises RequestError when it leaves the workspace."""
    if not item.level:
        return item.module
    parts = module.split(".")
    keep = len(parts) - item.level + (1 if is_package else 0)
    if keep < 1:
        raise RequestError("a relative import beyond the top of the workspace", where=where, hint="import by full name")
    return ".".join(parts[:keep] + ([item.module] if item.module else []))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dotted name lies in the workspace. `path` is None for a folder without `__init__.py`."""

    name: str
    path: str | None
    is_package: bool


def locate(root: Path, name: str) -> Place | None:
    """The workspace's module or package `name`, found as Python would; None when there is none."""
    base = name.replace(".", "/")
    full = os.path.join(root, base)
    if os.path.isfile(os.path.join(full, "__init__.py")):
        return Place(name, f"{base}/__init__.py", True)
    if os.path.isfile(full + ".py"):
        return Place(name, f"{base}.py", False)
    return Place(name, None, True) if os.path.isdir(full) else None


def resolve(root: Path, name: str, item: Import, toolchain: Sequence[str], where: Location) -> Iterator[Place]:
    """The workspace modules that run when `name` is imported: its packages first, then itself and its submodules.

    Nothing for the standard library and for distributions in `toolchain`. Raises RequestError, located at the import.
    """
    top = name.partition(".")[0]
    place = locate(root, top)
    if place is not None and place.path is not None and top in sys.stdlib_module_names:
        raise RequestError(
            f"`{place.path}` hides the standard library's `{top}`, or is hidden by it",
            where=where,
            hint="rename it",
        )
    mere_folder = place is not None and place.path is None
    if place is None or (mere_folder and (top in sys.stdlib_module_names or not _is_ours(root, name, item))):
        if _check_third_party(name, toolchain, where):
            return
        if place is None:
            raise RequestError(
                f"`{name}` is neither in the workspace nor in the standard library, and not installed",
                where=where,
                hint="imports are relative to the workspace's root, or start with a dot",
            )
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        prefix = ".".join(parts[:depth])
        place = locate(root, prefix)
        if place is None:
            raise _missing(root, prefix, where)
        yield place
    for taken in item.names:
        inner = locate(root, f"{name}.{taken}") if taken != "*" else None
        if inner is not None:
            yield inner
        elif place.path is None:
            raise _missing(root, f"{name}.{taken}", where)


def _is_ours(root: Path, name: str, item: Import) -> bool:
    # A mere folder that is called like an installed package must not hide it: something importable has to be there.
    last = locate(root, name)
    if last is None or last.path is not None:
        return last is not None
    inner = [locate(root, f"{name}.{taken}") for taken in item.names]
    return any(place is not None and place.path is not None for place in inner)


def _missing(root: Path, name: str, where: Location) -> RequestError:
    package, _, last = name.rpartition(".")
    folder = os.path.join(root, package.replace(".", "/"))
    siblings = [re.sub(r"\.py$", "", entry) for entry in os.listdir(folder)] if os.path.isdir(folder) else []
    return RequestError(
        f"there is no module `{last}` in `{package.replace('.', '/')}`",
        where=where,
        hint=did_you_mean(last, siblings) or "a module that is made while the program runs cannot be traced",
    )


def _check_third_party(name: str, toolchain: Sequence[str], where: Location) -> bool:
    """Whether `name` is of the standard library or of an installed distribution; RequestError if that is not listed."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or any(_provides(distribution, top) for distribution in toolchain):
        return True
    providers = sorted(set(_packages_distributions().get(top, ())))
    if not providers:
        return False
    wanted = ", ".join(f'"{entry}"' for entry in [*toolchain, providers[0]])
    raise RequestError(
        f"`{name}` comes from `{providers[0]}`, which is not in the target's `toolchain`: another version of it would "
        "go unnoticed",
        where=where,
        hint=f"in the target: toolchain = [{wanted}]",
    )


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def _packages_distributions() -> dict[str, list[str]]:
    # One second for an environment of 250 packages, so only for what fails otherwise.
    from importlib.metadata import packages_distributions

    return dict(packages_distributions())


@functools.cache
def _provides(distribution: str, top: str) -> bool:
    if distribution == "python":
        return False
    if _normal(distribution) == _normal(top):
        return True
    # It reads mails to know distributions: a tenth of a dry-run, where no function imports anything.
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import distribution as installed

    try:
        found = installed(distribution)
    except PackageNotFoundError:
        # Not installed on this machine: its worker will tell; the key must not depend on where it is computed.
        return True
    if (listed := found.read_text("top_level.txt")) is not None:
        return top in listed.split()
    return any(file.parts and file.parts[0].partition(".")[0] == top for file in found.files or ())
