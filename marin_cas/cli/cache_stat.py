"""`marin cache stat`: how much the cache holds."""

from __future__ import annotations

from dataclasses import asdict

import click

from marin_cas.cache.usage import stat
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.ui import out, values, words

_WORDS = {
    "blobs": "blobs",
    "blob_bytes": "bytes in blobs",
    "keys": "keys",
    "results": "results",
    "attempts": "other attempts",
    "leases": "being built",
    "trees_bytes": "bytes in trees/ not shared with blobs",
    "work_bytes": "bytes in work/",
    "scratch_bytes": "bytes in scratch/",
}


@click.command("stat")
@output_option("text", "json")
def command(output: str) -> None:
    """Count what the cache holds; nothing is hashed."""
    usage = asdict(stat(Session().cache))
    if output == "json":
        out.data(values.dumps(usage))
        return
    rows = [
        [text, words.size(usage[name]) if name.endswith("bytes") else f"{usage[name]:,}"]
        for name, text in _WORDS.items()
    ]
    out.data("\n".join(words.table(rows)))
