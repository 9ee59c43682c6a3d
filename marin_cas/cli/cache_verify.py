"""`marin cache verify`: hashes blobs again."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from marin_cas.cache.verify import VerifyReport, verify
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.errors import IntegrityError
from marin_cas.ui import out, values, words


@click.command("verify")
@click.option(
    "--sample", type=click.FloatRange(0, 1, min_open=True), metavar="SHARE", help="Check this share only, such as 0.1."
)
@click.option("--repair", is_flag=True, help="Remove wrong blobs, so that they are built again.")
@output_option("text", "json")
def command(sample: float | None, repair: bool, output: str) -> None:
    """Hash every blob again; exit 4 when one is not what its digest says.

    Results whose bytes are gone (hollow ones) are listed too: they are no damage, and are built again when needed.
    """
    session = Session()
    report = verify(session.cache, sample, _progress() if sys.stderr.isatty() else None, repair=repair)
    if output == "json":
        out.data(values.dumps(_record(report)))
    else:
        _tell(report)
    if not report.ok:
        raise IntegrityError(
            f"{words.count(len(report.wrong), 'blob')} of the store have other bytes than their digests say",
            hint="`marin cache verify --repair` removes them; what needs them is then built again",
        )


def _tell(report: VerifyReport) -> None:
    for wrong in report.wrong:
        out.data(f"wrong   {wrong.digest[:12]}  `{wrong.path}` has the bytes of {wrong.found[:12]}")
    for path in report.entries:
        out.data(f"damaged {path}")
    for hollow in report.hollow:
        out.data(f"hollow  {hollow.key.short}  {hollow.label}: its output `{hollow.output}` lacks {hollow.blob.short}")
    removed = f", removed {report.removed}" if report.removed else ""
    out.note(
        f"checked {words.count(report.files, 'file')}, {words.size(report.bytes)}: {len(report.wrong)} wrong{removed}"
    )


def _record(report: VerifyReport) -> dict[str, object]:
    return {
        "files": report.files,
        "bytes": report.bytes,
        "wrong": [{"digest": each.digest, "path": each.path, "found": each.found} for each in report.wrong],
        "hollow": [
            {"label": each.label, "key": each.key, "output": each.output, "blob": each.blob} for each in report.hollow
        ],
        "damaged_entries": report.entries,
        "removed": report.removed,
    }


def _progress() -> Callable[[int, int], None]:
    """A counter that is redrawn in place, at most once a hundredth of the way."""
    shown = -1

    def tell(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // max(1, total)
        if percent != shown:
            shown = percent
            sys.stderr.write(f"\r{percent} %" if done < total else "\r     \r")
            sys.stderr.flush()

    return tell
