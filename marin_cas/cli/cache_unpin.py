"""`marin cache unpin`: takes a pin back."""

from __future__ import annotations

import click

from marin_cas.cache.roots import Pin
from marin_cas.cli.session import Session
from marin_cas.errors import RequestError, did_you_mean
from marin_cas.label import parse_label
from marin_cas.ui import out


@click.command("unpin")
@click.argument("what", metavar="WHAT")
def command(what: str) -> None:
    """Let something go that was pinned. WHAT is as `marin cache roots` lists it, or a part of its key or digest."""
    session = Session()
    pins = list(session.cache.roots.pins())
    found = _find(session, pins, what)
    for pin in found:
        session.cache.roots.unpin(pin.what)
        out.note(f"not pinned any more: {pin.what}")
    session.cache.sync()


def _find(session: Session, pins: list[Pin], what: str) -> list[Pin]:
    names = {what}
    if what.startswith(("//", ":")):
        try:
            names.add(str(parse_label(what, session.package)))
        except ValueError as error:
            raise RequestError(str(error)) from None
    found = [pin for pin in pins if pin.what in names]
    prefix = what.partition("-")[0].lower()
    if not found and len(prefix) >= 4:
        found = [
            pin
            for pin in pins
            if any(each.hex.startswith(prefix) for each in (*pin.keys, *pin.digests)) or pin.what.startswith(prefix)
        ]
    if not found:
        hint = did_you_mean(what, [pin.what for pin in pins]) or "`marin cache roots` lists what is pinned"
        raise RequestError(f"`{what}` is not pinned", hint=hint)
    if len(found) > 1:
        raise RequestError(
            f"`{what}` is {len(found)} pins",
            hint="name one of them: " + ", ".join(f"`{pin.what}`" for pin in found[:4]),
        )
    return found
