"""Why an action has no result to serve, in the terms of what its label had before."""

from __future__ import annotations

from collections.abc import Mapping

from marin_cas.action import Action, Built
from marin_cas.reasons import Code, Reason
from marin_cas.recipe import Input, Pending
from marin_cas.recipe_diff import diff
from marin_cas.scheduler.lookup import Lookup

_UNKNOWN = bytes(32)


def why_miss(action: Action, built: Mapping[str, Input], lookup: Lookup) -> Reason:
    """The reason of a miss. `built` are the inputs whose digests are known; the others wait for their producers."""
    waits = next(
        (source.action for name, source in action.inputs.items() if isinstance(source, Built) and name not in built),
        None,
    )
    before = lookup.latest(action.id)
    blame = lookup.blame(action)
    if before is None and blame is None and waits is not None:
        return Reason(Code.MISS_NEW, {"input": waits})
    unbuilt = {
        name: Pending(source.kind, _UNKNOWN, source.output)
        for name, source in action.inputs.items()
        if isinstance(source, Built) and name not in built
    }
    recipe = action.recipe({**built, **unbuilt})
    why = lookup.taint(recipe.key()) if waits is None else None
    changes = () if before is None else diff(before, recipe)
    if why is not None or blame is not None:
        name, why = ("", why) if why is not None else blame or ("", "")
        what = f"made from {name}, which is" if name else "its result is"
        detail = {"what": what, "why": why, **({"input": waits} if waits else {})}
        return Reason(Code.MISS_TAINTED, detail, changes if name else ())
    if before is None:
        return Reason(Code.MISS_NEW)
    if changes:
        return Reason(Code.MISS_CHANGED, {"input": waits} if waits else {}, changes)
    if waits is not None:
        return Reason(Code.MISS_INPUTS, {"input": waits})
    # The very recipe that the label had last, and no result: an attempt that failed, or an entry that was collected.
    return Reason(Code.MISS_NEW)
