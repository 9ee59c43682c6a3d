"""`kind(regex, x)`: those of `x` whose kind matches: `tokenized rule`, `tokenized`, or `source file`."""

from __future__ import annotations

import re

from marin_cas.graph.target import Node, SourceFile
from marin_cas.query.verb import EXPRESSION, REGEX, Nodes, Verb, matching
from marin_cas.query.world import World


def texts(node: Node) -> tuple[str, ...]:
    # The bare rule name too, so that `^tokenized$` means what it says.
    return ("source file",) if isinstance(node, SourceFile) else (f"{node.kind} rule", node.kind)


def answer(world: World, regex: re.Pattern[str], x: Nodes) -> Nodes:
    return matching(world, x, regex, texts)


VERB = Verb("kind", (("regex", REGEX), ("x", EXPRESSION)), answer)
