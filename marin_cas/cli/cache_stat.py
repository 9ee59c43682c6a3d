"""`marin cache stat`: how much the cache holds, of what kind and for whom."""

from __future__ import annotations

from dataclasses import asdict

import click

from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.ui import out, values, words

_COUNTS = {
    "blobs": "blobs",
    "keys": "keys",
    "results": "results",
    "hollow": "hollow results",
    "attempts": "other attempts",
    "leases": "being built",
}
_BYTES = {
    "outputs": "outputs of results",
    "sources": "workspace files",
    "records": "records: trees, recipes, versions",
    "reports": "logs and reports",
    "attempts": "only other attempts hold them",
    "garbage": "nothing names them (`marin cache gc`)",
}
_FOLDERS = {"trees_bytes": "trees/, copies", "work_bytes": "work/", "scratch_bytes": "scratch/"}
_SHOWN = 10


@click.command("stat")
@output_option("text", "json")
def command(output: str) -> None:
    """Count what the cache holds: by kind, by the tool that made it, and by what keeps it. Nothing but records is read.

    Of each tool and each root: its results, the bytes that they reach, and how many of these no other tool or root
    reaches.
    """
    from marin_cas.cache.usage import Share, stat

    usage = stat(Session().cache)
    if output == "json":
        out.data(values.dumps(asdict(usage)))
        return
    rows = [[text, f"{getattr(usage, name):,}"] for name, text in _COUNTS.items()]
    rows.append(["bytes in blobs", words.size(usage.blob_bytes)])
    rows += [[f"  {text}", words.size(usage.kinds[kind])] for kind, text in _BYTES.items() if usage.kinds[kind]]
    rows += [[f"bytes in {text}", words.size(getattr(usage, name))] for name, text in _FOLDERS.items()]
    out.data("\n".join(words.table(rows)))

    def tell(title: str, shares: tuple[Share, ...]) -> None:
        if not shares:
            return
        table = [[title, "results", "bytes", "alone"]]
        table += [[s.name, f"{s.results:,}", words.size(s.bytes), words.size(s.alone)] for s in shares[:_SHOWN]]
        out.data("\n" + "\n".join(words.table(table)))
        if len(shares) > _SHOWN:
            out.data(f"and {len(shares) - _SHOWN:,} more (`--output json` has all)")

    tell("by tool", usage.tools)
    tell("by root", usage.roots)
