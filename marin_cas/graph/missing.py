"""The errors for labels that name nothing, with what was probably meant; the disk is walked only on this path."""

from __future__ import annotations

import os
from collections.abc import Iterable

from marin_cas.errors import Location, RequestError, did_you_mean
from marin_cas.graph.loading import PackageLoader
from marin_cas.label import Label
from marin_cas.lang.values import Package


def unknown_package(
    loader: PackageLoader, label: Label, where: Location | None = None, notes: Iterable[str] = ()
) -> RequestError:
    """No `BUILD.marin` in the label's folder."""
    folder = loader.root / label.package
    if folder.is_dir():
        message = f"no package `//{label.package}` for `{label}`: its folder has no `BUILD.marin`"
    else:
        message = f"no package `//{label.package}` for `{label}`: there is no such folder"
    return RequestError(message, where=where, notes=notes, hint=_package_hint(loader, label))


def _package_hint(loader: PackageLoader, label: Label) -> str | None:
    # `//exp/tiny` for `//exp:tiny`, `//exp/data:x.txt` for `//exp:data/x.txt`: the package is a folder above.
    default_name = label.name == label.package.rpartition("/")[2]
    folder, rest = label.package, ""
    while folder:
        folder, _, piece = folder.rpartition("/")
        rest = f"{piece}/{rest}" if rest else piece
        if loader.has_package(folder):
            names = [rest] if default_name else [f"{rest}/{label.name}"]
            for name in names:
                if name in loader.package(folder).declarations or (loader.root / folder / name).exists():
                    return f"did you mean `//{folder}:{name}`?"
            break
    packages = loader.packages("")
    close = did_you_mean(f"//{label.package}", [f"//{name}" for name in packages])
    if close or len(packages) > 12:
        return close
    known = ", ".join(f"`//{name}`" for name in packages)
    return f"packages here: {known}" if known else "write a `BUILD.marin` there"


def unknown_target(
    loader: PackageLoader, package: Package, label: Label, where: Location | None = None, notes: Iterable[str] = ()
) -> RequestError:
    """The package has neither a target nor a source file of that name."""
    names = list(package.declarations)
    folder = loader.root / label.path.rpartition("/")[0]
    prefix = label.name.rpartition("/")[0]
    if folder.is_dir():
        found = sorted(entry for entry in os.listdir(folder) if not entry.startswith(".") and entry != "BUILD.marin")
        names += [f"{prefix}/{entry}" if prefix else entry for entry in found]
    hint = did_you_mean(label.name, names)
    hint = hint.replace("`", f"`//{label.package}:", 1) if hint else _listing(package)
    message = f"no target `{label}`: `{package.build_file}` declares none of that name, and there is no such file"
    return RequestError(message, where=where, notes=notes, hint=hint)


def _listing(package: Package) -> str | None:
    names = sorted(package.declarations)
    if not names:
        return f"`{package.build_file}` declares no target"
    rest = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"targets there: {', '.join(f'`:{name}`' for name in names[:12])}{rest}"
