"""`marin refs`: what each `name@version` means in this cache."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import click

from marin_cas.cache.refs import Ref
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.ui import out, values, words


@click.command("refs")
@click.argument("pattern", metavar="[PATTERN]", required=False)
@output_option("text", "json")
def command(pattern: str | None, output: str) -> None:
    """List what `name@version` means here: what was published, and what builds had last (weak, it moves).

    PATTERN is a name as the list shows it, where `*` stands for any text (a name alone for all its versions), or
    targets: `//exp:tiny`, `//exp/...`. Dev versions stand below their user: `users/ann/exp/tiny@dev`.

    \b
    marin refs
    marin refs 'exp/*@2026.*'
    """
    session = Session()
    found = sorted(session.cache.refs.all(), key=lambda ref: (ref.name, not ref.published, ref.user))
    if pattern is not None and pattern.startswith(("//", ":")):
        labels = {str(label) for label in session.expand([pattern])}
        found = [ref for ref in found if ref.label in labels]
    elif pattern is not None:
        found = [ref for ref in found if _matches(ref, pattern)]
    if output == "json":
        out.data(values.dumps([ref_json(ref) for ref in found]))
        return
    for line in words.table([_row(ref) for ref in found]):
        out.data(line)
    if not found:
        out.note("there are no such refs in this cache" if pattern else "there are no refs in this cache")


def ref_json(ref: Ref) -> dict[str, object]:
    """A ref as data: `ref` is what finds it, `key` None where it is not known."""
    return {
        "ref": ref.text,
        "name": ref.name,
        "published": ref.published,
        "fingerprint": ref.fingerprint.hex(),
        "key": None if ref.key is None else ref.key.hex,
        "label": ref.label,
        "user": ref.user,
        "host": ref.host,
        "time": ref.time,
    }


def _matches(ref: Ref, pattern: str) -> bool:
    texts = {ref.name, ref.text}
    if "@" not in pattern:
        texts |= {text.rpartition("@")[0] for text in texts}
    return any(fnmatchcase(text, pattern) for text in texts)


def _row(ref: Ref) -> list[str]:
    if not ref.published:
        return ["weak", ref.text, ref.fingerprint.hex()[:12], ref.label]
    said = f"{ref.label}  by {ref.user}@{ref.host}, {words.when(ref.time)} ({words.ago(ref.time, time.time())})"
    return ["published", ref.text, ref.fingerprint.hex()[:12], said]
