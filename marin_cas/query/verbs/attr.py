"""`attr(name, regex, x)`: those targets of `x` whose attribute matches, defaults included.

Text of a value: a string as it is, True and False, numbers as Python writes them, a label in full, a list as
`[a, b]`, a dict as `{k: v}`. An attribute that no known rule has is refused: it is a misspelt one.
"""

from __future__ import annotations

import re
from typing import Any

from marin_cas.errors import RequestError, did_you_mean
from marin_cas.graph.target import Node, SourceFile
from marin_cas.query.verb import EXPRESSION, REGEX, WORD, Nodes, Verb, matching
from marin_cas.query.world import World


def text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(text(item) for item in value) + "]"
    return str(value)


def answer(world: World, name: str, regex: re.Pattern[str], x: Nodes) -> Nodes:
    if name == "name":
        return matching(world, x, regex, lambda node: (node.label.name,) if not isinstance(node, SourceFile) else ())
    rules = {node.rule.name: node.rule for label in x.labels if not isinstance(node := world.node(label), SourceFile)}
    if name != "visibility" and rules and not any(name in rule.attrs for rule in rules.values()):
        known = {attr for rule in (*world.loader.rules().values(), *rules.values()) for attr in rule.attrs}
        if name not in known:
            raise RequestError(
                f"`attr`: no rule has an attribute `{name}`", where="query", hint=did_you_mean(name, known)
            )

    def texts(node: Node) -> tuple[str, ...]:
        if isinstance(node, SourceFile):
            return ()
        value = list(node.visibility) if name == "visibility" else node.attrs.get(name)
        return () if value is None else (text(value),)

    return matching(world, x, regex, texts)


VERB = Verb("attr", (("name", WORD), ("regex", REGEX), ("x", EXPRESSION)), answer)
