"""Who may depend on a target: the meaning of a visibility list. A package always sees its own targets."""

from __future__ import annotations

from dataclasses import dataclass

from marin_cas.errors import did_you_mean
from marin_cas.graph.unfit import Unfit
from marin_cas.label import parse_label

PUBLIC, PRIVATE = "//visibility:public", "//visibility:private"


@dataclass(frozen=True, slots=True)
class Visibility:
    """`packages` may see the target, and all packages at and below `trees`; `public`: all may."""

    public: bool = False
    packages: frozenset[str] = frozenset()
    trees: tuple[str, ...] = ()

    def allows(self, package: str) -> bool:
        if self.public or package in self.packages:
            return True
        return any(not tree or package == tree or package.startswith(tree + "/") for tree in self.trees)


def parse_visibility(specs: tuple[str, ...], package: str) -> Visibility:
    """The visibility that `specs` mean in a BUILD file of `package`. Raises Unfit for what is not one."""
    public, packages, trees = False, set[str](), list[str]()
    for spec in specs:
        if spec in (PUBLIC, PRIVATE):
            public = public or spec == PUBLIC
            continue
        try:
            label = parse_label(spec, package)
        except ValueError as error:
            raise Unfit(f"has {error}") from None
        if label.repo or label.name not in ("__pkg__", "__subpackages__"):
            known = [PUBLIC, PRIVATE, f"//{label.package}:__pkg__", f"//{label.package}:__subpackages__"]
            raise Unfit(
                f"has `{spec}`, which is none of `{PUBLIC}`, `{PRIVATE}`, `//package:__pkg__` and "
                "`//package:__subpackages__`",
                hint=did_you_mean(spec, known),
            )
        if label.name == "__pkg__":
            packages.add(label.package)
        else:
            trees.append(label.package)
    return Visibility(public, frozenset(packages), tuple(trees))
