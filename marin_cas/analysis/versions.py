"""What must hold of versions and fingerprints once all is analysed: nothing fixed is made from what may move."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise

from marin_cas.action import Action
from marin_cas.errors import RequestError
from marin_cas.graph.graph import Graph
from marin_cas.graph.target import Target
from marin_cas.label import Label
from marin_cas.lang.values import IDENTITY
from marin_cas.versions import is_dev

_DIGITS = re.compile(r"[0-9a-fA-F]{12,64}")


def check_versions(graph: Graph, runs: Collection[Label]) -> Iterator[RequestError]:
    """One error for each dev version that a fixed one is made from; `runs` are the targets that run actions.

    What runs nothing and states no version (an alias, a mixture) has none: it is what it leads to.
    """
    found = _Versions(graph, runs)
    for target in graph.targets.values():
        if found.version(target) is not None and not found.moves(target):
            for path in found.paths_to_dev(target):
                yield found.error([*found.above(target), *path])


def check_expected(targets: Iterable[Target], actions: Mapping[str, Action]) -> Iterator[RequestError]:
    """One error for each target whose fingerprint is not the `expected_fingerprint` that it states. One that is still
    provisional is let pass: it cannot be built."""
    for target in targets:
        expected = target.attrs.get("expected_fingerprint")
        if not expected or target.rule.native:
            continue
        action = actions.get(str(target.label))
        if not _DIGITS.fullmatch(expected):
            yield RequestError(
                f"`{target.label}`: the expected fingerprint `{expected}` cannot be one",
                where=target.location,
                notes=target.chain,
                hint="give its first 12 hex digits, or more, as `marin why` shows them",
            )
        elif action is None:
            yield RequestError(
                f"`{target.label}` runs nothing of its own, so it has no fingerprint to expect",
                where=target.location,
                notes=target.chain,
                hint="leave `expected_fingerprint` out",
            )
        elif not action.provisional and not action.fingerprint.hex().startswith(expected.lower()):
            yield RequestError(
                f"the fingerprint of `{target.label}` is not the expected one",
                where=target.location,
                notes=(f"expected  {expected}", f"it is     {action.fingerprint.hex()}", *target.chain),
                hint=f"`marin why {target.label}` says what has changed; undo it, or expect the new one",
            )


class _Versions:
    def __init__(self, graph: Graph, runs: Collection[Label]) -> None:
        self.graph, self.runs = graph, runs

    @cached_property
    def _users(self) -> Mapping[Label, list[Target]]:
        users: dict[Label, list[Target]] = {}
        for user in self.graph.targets.values():
            for below in self.below(user):
                users.setdefault(below.label, []).append(user)
        return users

    def version(self, target: Target) -> str | None:
        """None for what has no version of its own."""
        if target.rule.native or (target.label not in self.runs and "version" not in target.given):
            return None
        return target.attrs.get("version")

    def moves(self, target: Target) -> bool:
        version = self.version(target)
        return version is not None and is_dev(version)

    def below(self, target: Target) -> Iterator[Target]:
        """The targets that it is made from, each once."""
        labels = {edge.label: None for edge in target.deps if _bears_identity(target, edge.attr)}
        return (self.graph.targets[label] for label in labels if label in self.graph.targets)

    def paths_to_dev(self, target: Target) -> Iterator[list[Target]]:
        """For each dev version below it, with nothing that has a version between, the way there."""
        paths, seen = [[target]], {target.label}
        while paths:
            path = paths.pop()
            for below in self.below(path[-1]):
                if below.label in seen:
                    continue
                seen.add(below.label)
                if self.moves(below):
                    yield [*path, below]
                elif self.version(below) is None:
                    paths.append([*path, below])

    def above(self, target: Target) -> list[Target]:
        """The way from a fixed version that nothing else fixed is made from down to `target`, without it."""
        path = [target]
        while above := next((user for user in self._users.get(path[0].label, ()) if not self.moves(user)), None):
            path.insert(0, above)
        while self.version(path[0]) is None:
            del path[0]
        return path[:-1]

    def error(self, path: list[Target]) -> RequestError:
        fixed, dev = path[0], path[-1]
        upper = next(target for target in reversed(path[:-1]) if self.version(target) is not None)
        return RequestError(
            f"`{fixed.label}` has the fixed version `{self.version(fixed)}`, and is made from `{dev.label}`, whose "
            f"version `{self.version(dev)}` may move",
            where=fixed.location,
            notes=[self._step(one, other) for one, other in pairwise(path)],
            hint=f"give `{dev.label}` a fixed `version`, or let that of `{upper.label}` be a dev one",
        )

    def _step(self, user: Target, below: Target) -> str:
        version = self.version(below)
        of = f" (`{version}`)" if version else ""
        return f"{user.location}: `{user.label}` -> `{below.label}`{of}"


def _bears_identity(target: Target, attr: str) -> bool:
    spec = target.rule.attrs.get(attr)
    return spec is None or spec.bears == IDENTITY
