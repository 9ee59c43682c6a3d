"""`filter(regex, x)`: those of `x` whose label, written in full, matches."""

from __future__ import annotations

import re

from marin_cas.query.verb import EXPRESSION, REGEX, Nodes, Verb, matching
from marin_cas.query.world import World


def answer(world: World, regex: re.Pattern[str], x: Nodes) -> Nodes:
    return matching(world, x, regex, lambda node: (str(node.label),))


VERB = Verb("filter", (("regex", REGEX), ("x", EXPRESSION)), answer)
