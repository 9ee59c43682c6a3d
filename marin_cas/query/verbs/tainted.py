"""`tainted()`: the targets whose current result is tainted, or was made from something that is.

The cache knows, and a query only reads the workspace: whoever asks hands in a function that tells.
"""

from __future__ import annotations

from marin_cas.label import Label
from marin_cas.query.verb import Nodes, Verb
from marin_cas.query.world import World


def answer(world: World) -> Nodes:
    found = [label for label in world.tainted() if _declared(world, label)]
    world.require(found)
    return Nodes.of(found)


def _declared(world: World, label: Label) -> bool:
    """Targets come and go, and the cache remembers all."""
    return world.loader.has_package(label.package) and label.name in world.package(label.package).declarations


VERB = Verb("tainted", (), answer)
