"""`marin cache equate`: one result stands for another key too, because somebody says that the difference is none."""

from __future__ import annotations

import re

import click

from marin_cas.action import Built
from marin_cas.cache.equating import Place, equate
from marin_cas.cache.tainting import tainted_results
from marin_cas.cli.decision import because_option, who
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.cli.what import action_of, find
from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError
from marin_cas.errors import BuildError, RequestError
from marin_cas.recipe import Recipe
from marin_cas.result import Result
from marin_cas.scheduler.local import LocalCache
from marin_cas.ui import out, values


@click.command("equate")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW", required=False)
@because_option
@click.option("--revoke", is_flag=True, help="Take it back; then only NEW is given.")
@output_option("text", "json")
def command(old: str, new: str | None, because: str, revoke: bool, output: str) -> None:
    """Let the result of OLD stand for NEW, which has none, instead of building NEW.

    For a difference that does not matter: a renamed variable in a function, a parameter that spells the default out.
    OLD is a key, a target or a `name@version`; NEW most often a target whose key has changed (`marin why NEW` shows
    what changed, and the key that it had before). A taint of OLD reaches NEW too.

    \b
    marin cache equate 3f29c1d0 //exp:tiny --because "only a variable was renamed"
    marin cache equate --revoke //exp:tiny --because "the order of documents was not the same"
    """
    if (new is not None) is revoke:
        raise click.UsageError("with `--revoke` only NEW is given" if revoke else "give OLD and NEW")
    session = Session()
    if new is None:
        _revoke(session, old, because, output)
        return
    source = _old(session, old)
    place, action = _place(session, new)
    result = equate(session.cache, source, place, because, who())
    local = LocalCache(session.cache, session.root)
    if action is not None:
        local.record(action, result, place.producer_keys.difference(result.producer_keys))
    session.cache.sync()
    if output == "json":
        record = {"old": source.key.hex, "new": result.key.hex, "label": result.label, "because": because, "who": who()}
        out.data(values.dumps(record))
        return
    out.data(f"{result.key.short}  {result.label}  {result.note}")


def _old(session: Session, text: str) -> Result:
    found = find(session, text)
    if found.hash is not None:
        raise RequestError(f"`{text}` is a digest, and the key of a result is wanted")
    if len(found.keys) != 1:
        raise RequestError(f"`{text}` has {len(found.keys)} keys: name one of them")
    [key] = found.keys
    blame = tainted_results(session.cache).get(key.hex)
    result = LocalCache(session.cache).by_key(key)
    if blame is not None or result is None:
        why = "" if blame is None else f": {blame.taint.said()}"
        raise BuildError(f"the result of `{text}` is tainted, or made from something that is{why}")
    return result


def _place(session: Session, text: str):
    """NEW as a place for a result, and its action when it is a target."""
    match = re.fullmatch(r"([0-9a-fA-F]{4,64})(?:-\d+)?", text)
    if match is not None:
        return Place(_recipe(session, match[1].lower())), None
    action, standings = action_of(session, text)
    built = standings.inputs(action)
    waits = next((s.action for n, s in action.inputs.items() if isinstance(s, Built) and n not in built), None)
    if waits is not None:
        raise BuildError(
            f"the key of `{action.id}` is not known until `{waits}` is built",
            where=action.location,
            hint=f"`marin build {waits}`, or equate that one first",
        )
    results = (standings.results[producer] for producer in action.producers())
    place = Place(
        action.recipe(built),
        action.id,
        action.artifact,
        action.fingerprint,
        action.outcome,
        frozenset(name for name, spec in action.outputs.items() if spec.reporting),
        frozenset(key for result in results for key in (result.key.hash, *result.producer_keys)),
    )
    refusal = LocalCache(session.cache, session.root).refusal(action)
    if refusal is not None:
        raise refusal
    return place, action


def _recipe(session: Session, prefix: str) -> Recipe:
    """The recipe of a key that has no result, if it is in the store."""
    store = session.cache.store
    found = {hexed: entry.stat().st_size for hexed, entry in store.files() if hexed.startswith(prefix)}
    recipes: list[Recipe] = []
    for hexed, size in found.items():
        try:
            recipes.append(Recipe.parse(store.read(Digest(bytes.fromhex(hexed), size)) or b""))
        except EncodingError:
            continue
    if len(recipes) != 1:
        raise RequestError(
            f"{len(recipes) or 'no'} recipes in the store begin with `{prefix}`",
            hint="name NEW by its label" if not recipes else "give more digits",
        )
    return recipes[0]


def _revoke(session: Session, text: str, because: str, output: str) -> None:
    found = find(session, text)
    revoked = [
        result for key in found.keys if (result := session.cache.actions.revoke(key, because, who())) is not None
    ]
    if not revoked:
        raise RequestError(f"{found} is not equated with anything")
    session.cache.sync()
    if output == "json":
        record = {"revoked": [result.key.hex for result in revoked], "because": because, "who": who()}
        out.data(values.dumps(record))
        return
    for result in revoked:
        out.data(f"{result.key.short}  {result.label}  has no result any more; it was {result.note}")
