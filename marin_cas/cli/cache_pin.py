"""`marin cache pin`: a person keeps something, whatever is collected."""

from __future__ import annotations

import time

import click

from marin_cas.cache.roots import Pin
from marin_cas.cli.decision import who
from marin_cas.cli.session import Session
from marin_cas.cli.what import What, find
from marin_cas.digest import Digest
from marin_cas.errors import RequestError
from marin_cas.recipe import TREE
from marin_cas.tree.walk import first_missing
from marin_cas.ui import out


@click.command("pin")
@click.argument("what", metavar="WHAT")
@click.option("--because", default="", metavar="TEXT", help="Why; `marin cache roots` shows it.")
@click.option("--deps", is_flag=True, help="Keep everything that it was made from, too.")
def command(what: str, because: str, deps: bool) -> None:
    """Keep something: `marin cache gc` never gives up its bytes, and a size budget neither.

    WHAT is a target (`//exp:model`, what it is built as now), a `name@version`, a key, or the digest of a file or tree.
    Hex may be cut short. `marin cache unpin` lets it go; `marin cache roots` lists pins.

    \b
    marin cache pin //exp:model --because "in the paper"
    marin cache pin tokenizer@1.2 --deps
    """
    session = Session()
    cache = session.cache
    found = find(session, what)
    if deps and found.hash is not None:
        raise RequestError(
            "a digest does not say what it was made from", hint="pin the target or the key with `--deps`"
        )
    digests = (_digest(session, found.hash),) if found.hash is not None else ()
    name = found.text if found.hash is None else found.hash.hex()
    # Marked as used first: a collection that is under way sees it then, or has deleted before the look below.
    with cache.gate.shared():
        for key in found.keys:
            cache.actions.touch(key)
    cache.roots.pin(Pin(name, found.keys, digests, deps, " ".join(because.split()), who(), time.time()))
    cache.sync()
    out.note(f"pinned: {found}")
    if _is_hollow(session, found):
        out.note("its bytes are gone: a build makes them again, and then they are kept")


def _digest(session: Session, hash: bytes) -> Digest:
    path = session.cache.store.root / hash.hex()[:2] / hash.hex()
    for each in (path, path.with_name(f"{path.name}.x")):
        if each.exists():
            return Digest(hash, each.stat().st_size)
    for hexed in session.cache.actions.all_keys():
        choice = session.cache.actions.standing_of(hexed).choice
        for output in () if choice is None else choice.result.outputs.values():
            if output.digest.hash == hash:
                return output.digest
    raise RequestError(f"the store has nothing with the digest `{hash.hex()[:12]}`")


def _is_hollow(session: Session, found: What) -> bool:
    for key in found.keys:
        result = session.cache.actions.result(key)
        for output in () if result is None else result.outputs.values():
            if not output.reporting and first_missing(session.cache.store, output.kind, output.digest) is not None:
                return True
    return found.hash is not None and first_missing(session.cache.store, TREE, _digest(session, found.hash)) is not None
