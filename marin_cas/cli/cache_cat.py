"""`marin cache cat`: a blob as it is, or a record in words."""

from __future__ import annotations

import os
import re

import click

from marin_cas.cli.session import Session
from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError, decode
from marin_cas.errors import RequestError
from marin_cas.ui import out, values

_HEADER = re.compile(rb"(marin-cas [a-z]+ \d+)\n")


@click.command("cat")
@click.argument("name", metavar="DIGEST")
@click.option("--raw", is_flag=True, help="Print a record's bytes as they are stored.")
def command(name: str, raw: bool) -> None:
    """Print a blob; a record (a recipe, a tree) is decoded. DIGEST may be a key, and cut short if it is one of a kind.

    With --raw, `marin cache cat --raw KEY | b3sum` prints the key again.
    """
    session = Session()
    digest = _find(session, name)
    data = session.cache.store.read(digest)
    if data is None:
        raise RequestError(f"`{name}`: the store does not have it any more")
    record = None if raw else _decoded(data)
    if record is None:
        out.raw(data)
    else:
        header, value = record
        out.data(f"# {header}\n{value}")


def _find(session: Session, name: str) -> Digest:
    prefix = name.partition("-")[0].removeprefix("~").lower()
    if not re.fullmatch(r"[0-9a-f]{4,64}", prefix):
        raise RequestError(f"`{name}` is not a digest", hint="give at least 4 of its hex digits")
    found = {hexed: entry.path for hexed, entry in session.cache.store.files() if hexed.startswith(prefix)}
    if not found:
        raise RequestError(f"the store has no blob whose digest begins with `{prefix}`")
    if len(found) > 1:
        raise RequestError(f"{len(found)} digests begin with `{prefix}`", hint="give more digits")
    [(hexed, path)] = found.items()
    return Digest(bytes.fromhex(hexed), os.stat(path).st_size)


def _decoded(data: bytes) -> tuple[str, str] | None:
    match = _HEADER.match(data)
    if not match:
        return None
    try:
        value = decode(data[match.end() :])
    except EncodingError:
        return None
    if isinstance(value, dict):
        return match[1].decode(), "\n".join(values.lines(value))
    lines = value if isinstance(value, list | tuple) else [value]
    return match[1].decode(), "\n".join(values.leaf(line) for line in lines)
