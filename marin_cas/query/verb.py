"""A verb of the query language: its name, what it takes, and the function that answers it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from marin_cas.label import Label
from marin_cas.query.world import World

# Kinds of parameters: an expression (given as Nodes), a plain word (str), a regular expression, a whole number.
EXPRESSION, WORD, REGEX, NUMBER = "expression", "word", "regex", "number"


@dataclass(frozen=True, slots=True)
class Nodes:
    """A set of labels; `topological` when it is best shown in that order, else it is shown in order of labels."""

    labels: frozenset[Label]
    topological: bool = False

    @classmethod
    def of(cls, labels: Iterable[Label], topological: bool = False) -> Nodes:
        return cls(frozenset(labels), topological)

    def keep(self, labels: Iterable[Label]) -> Nodes:
        """A selection of these, in the same order."""
        return Nodes(frozenset(labels), self.topological)


@dataclass(frozen=True, slots=True)
class Verb:
    """`parameters` are (name, kind); the last `optional` of them may be left out, and are then not passed.

    `walks` says that it follows dependencies, so that the graph below its arguments has to be loaded.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    answer: Callable[..., Nodes]
    optional: int = 0
    walks: bool = False

    @property
    def usage(self) -> str:
        names = [name for name, _ in self.parameters]
        least = len(names) - self.optional
        return f"{self.name}({', '.join(names[:least])}{''.join(f'[, {name}]' for name in names[least:])})"


def matching(world: World, nodes: Nodes, pattern: re.Pattern[str], texts: Callable[[Any], Iterable[str]]) -> Nodes:
    """Those nodes of which one of the texts has a match anywhere in it."""
    search = pattern.search
    return nodes.keep(label for label in nodes.labels if any(search(text) for text in texts(world.node(label))))
