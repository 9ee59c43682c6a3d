"""`marin cache cat`: a file as it is, a tree as a listing, a recipe in words."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from marin_cas.cache.cache import Cache
from marin_cas.cli.session import Session
from marin_cas.cli.stored import stored
from marin_cas.digest import Digest, hash_file
from marin_cas.disk import disk_problems
from marin_cas.encoding import EncodingError, decode
from marin_cas.errors import IntegrityError, RequestError
from marin_cas.store.base import MissingBlob, wrong_blob
from marin_cas.tree.entries import DirEntry, FileEntry, Tree
from marin_cas.ui import out, values, words

_HEX = re.compile(r"([0-9a-f]{4,64})(?:-\d+)?", re.IGNORECASE)
_HEADER = re.compile(rb"(marin-cas [a-z]+ \d+)\n")
# Above this a blob is no record, and is printed a piece at a time.
_IN_MEMORY = 64 << 20
_PIECE = 1 << 20


@click.command("cat")
@click.argument("what", metavar="WHAT")
@click.option("--raw", is_flag=True, help="Print a record's bytes as they are stored.")
def command(what: str, raw: bool) -> None:
    """Print a file's bytes; a tree is listed, a recipe told in words. All is checked before it is printed.

    WHAT is a digest or a key (its recipe), cut short if it is one of a kind; or, as for `marin cache get`, a target or
    a `name@version`, with `%OUTPUT` and a path inside.

    With --raw, `marin cache cat --raw KEY | b3sum` prints the key again.

    \b
    marin cache cat //exp:tiny%hf
    marin cache cat //exp:tiny%hf/config.json
    marin cache cat 3f29c1d0
    """
    session = Session()
    match = _HEX.fullmatch(what)
    if match:
        _print(session.cache, _find(session.cache, match[1].lower()), raw)
        return
    found = stored(session, what)
    try:
        _print(session.cache, found.digest, raw)
    except MissingBlob as missing:
        raise found.gone(missing) from None


def _print(cache: Cache, digest: Digest, raw: bool) -> None:
    if digest.size > _IN_MEMORY:
        _stream(cache, digest)
        return
    data = cache.store.read(digest)
    if data is None:
        raise MissingBlob(digest)
    lines = None if raw else _lines(data)
    if lines is None:
        out.raw(data)
    else:
        out.data("\n".join(lines))


def _stream(cache: Cache, digest: Digest) -> None:
    path = cache.store.path(digest)
    if path is None:
        raise MissingBlob(digest)
    with disk_problems(path), open(path, "rb") as file:
        if hash_file(path, exclusive=True) != digest:
            raise wrong_blob(digest, "its bytes have another digest")
        while piece := file.read(_PIECE):
            out.raw(piece)


def _find(cache: Cache, prefix: str) -> Digest:
    known = [prefix] if len(prefix) == 64 else {hexed for hexed, _ in cache.store.files() if hexed.startswith(prefix)}
    if len(known) > 1:
        raise RequestError(f"{len(known)} digests begin with `{prefix}`", hint="give more digits")
    digest = next((digest for hexed in known if (digest := cache.store.known(hexed)) is not None), None)
    if digest is None:
        raise RequestError(f"the store has no blob whose digest begins with `{prefix}`")
    return digest


def _lines(data: bytes) -> list[str] | None:
    """A record for people, None for what is none."""
    match = _HEADER.match(data)
    if not match:
        return None
    header = f"# {match[1].decode()}"
    try:
        return [header, *words.table(list(_rows(Tree.parse(data))))]
    except IntegrityError:
        pass
    try:
        value = decode(data[match.end() :])
    except EncodingError:
        return None
    if isinstance(value, dict):
        return [header, *values.lines(value)]
    return [header, *map(values.leaf, value if isinstance(value, list | tuple) else [value])]


def _rows(tree: Tree) -> Iterator[list[str]]:
    for entry in tree.entries:
        name = out.visible(entry.name)
        match entry:
            case FileEntry(digest=digest, executable=executable):
                yield ["x" if executable else "f", digest.short, words.size(digest.size), name]
            case DirEntry(digest=digest):
                yield ["d", digest.short, "", f"{name}/"]
            case _:
                yield ["l", "", "", f"{name} -> {out.visible(entry.target)}"]
