"""`marin cache verify`: reads everything in the store again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import click

from marin_cas.cache.verify import Progress, VerifyReport, verify
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.errors import IntegrityError, Interrupted
from marin_cas.ui import out, values, words

_REDRAWN_S = 0.1


def _share(context: click.Context, parameter: click.Parameter, text: str | None) -> float:
    """`0.1` and `10%`, as a number up to 1."""
    if text is None:
        return 1.0
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise click.BadParameter(f"'{text}' is not a share such as 0.1 or 10%")
    return share


@click.command("verify")
@click.option("--repair", is_flag=True, help="Remove what is wrong, so that it is built again.")
@click.option("--sample", callback=_share, metavar="SHARE", help="Check a random share of the blobs: 0.1, or 10%.")
@click.option("--restart", is_flag=True, help="Begin anew, where an earlier check was cut short.")
@output_option("text", "json")
def command(repair: bool, sample: float, restart: bool, output: str) -> None:
    """Hash every blob again; exit 4 when something is wrong.

    A check that was cut short, by Ctrl-C or a kill, goes on where it stopped. Records, entries of the action cache and
    the outputs laid out under `trees/` are checked too. Results whose bytes are gone (hollow ones) are listed: they are
    no damage, and are built again when needed. What cannot be read is told, and stays.
    """
    session = Session()
    try:
        report = verify(
            session.cache, sample, _progress() if sys.stderr.isatty() else None, repair=repair, restart=restart
        )
    except KeyboardInterrupt:
        raise Interrupted("interrupted", hint="`marin cache verify` with the same `--sample` goes on there") from None
    if output == "json":
        out.data(values.dumps(_record(report)))
    else:
        for line in _lines(report):
            out.data(line)
    _sum_up(report)
    if not report.ok:
        raise IntegrityError(
            f"{words.count(report.left, 'thing')} in the cache {'is' if report.left == 1 else 'are'} wrong",
            hint=_hint(report),
        )


def _lines(report: VerifyReport) -> Iterator[str]:
    for wrong in report.wrong:
        yield f"wrong     {wrong.digest[:12]}  `{wrong.path}` has the bytes of {wrong.found[:12]}"
    for wrong in report.unreadable:
        yield f"unread    {wrong.digest[:12]}  {wrong.why}"
    for each in report.malformed:
        what = f"output `{each.output}`" if each.output else "recipe"
        yield f"record    {each.key.short}  {each.label}: its {what}: {each.why}"
    for path in report.entries:
        yield f"entry     `{path}` is damaged and counts as absent"
    for name in report.copies:
        yield f"copy      `trees/{name}` is not what was laid out there"
    for each in report.hollow:
        yield f"hollow    {each.key.short}  {each.label}: its output `{each.output}` lacks {each.blob.short}"


def _sum_up(report: VerifyReport) -> None:
    if report.resumed is not None and report.resumed.files:
        out.note(
            f"went on with the check that began {words.when(report.resumed.began)} and had looked at "
            f"{words.count(report.resumed.files, 'file')}; `--restart` begins anew"
        )
    wrong = len(report.wrong) + len(report.unreadable)
    done = [
        f"removed {report.removed}" if report.removed else "",
        f"laid {words.count(report.laid, 'link')} of `out/` again" if report.laid else "",
        f"removed {words.count(report.unlinked, 'link')} of `out/` that led nowhere" if report.unlinked else "",
    ]
    text = f"checked {words.count(report.files, 'file')}, {words.size(report.bytes)}: {wrong} wrong"
    out.note(", ".join([text, *(each for each in done if each)]))


def _hint(report: VerifyReport) -> str:
    if report.unreadable:
        return (
            "look at `dmesg` and at the disk's health; a file that stays unreadable can be deleted, and is built again"
        )
    if report.malformed:
        return "`marin cache taint KEY --because TEXT` keeps such a result from being served"
    return "`marin cache verify --repair` removes what is wrong; what needs it is then built again"


def _record(report: VerifyReport) -> dict[str, object]:
    return {
        "files": report.files,
        "bytes": report.bytes,
        "wrong": [{"digest": each.digest, "path": each.path, "found": each.found} for each in report.wrong],
        "unreadable": [{"digest": each.digest, "path": each.path, "why": each.why} for each in report.unreadable],
        "malformed": [
            {"label": each.label, "key": each.key, "output": each.output, "why": each.why} for each in report.malformed
        ],
        "damaged_entries": report.entries,
        "wrong_copies": report.copies,
        "hollow": [
            {"label": each.label, "key": each.key, "output": each.output, "blob": each.blob} for each in report.hollow
        ],
        "removed": report.removed,
        "links_laid": report.laid,
        "links_removed": report.unlinked,
        "resumed": report.resumed is not None,
    }


def _progress() -> Callable[[Progress], None]:
    """A line that is redrawn in place: bytes, rate, what is left."""
    began = shown = time.monotonic()
    first: int | None = None

    def tell(at: Progress) -> None:
        nonlocal shown, first
        first = at.bytes if first is None else first
        now = time.monotonic()
        ended = at.files == at.all_files
        if not ended and now - shown < _REDRAWN_S:
            return
        shown = now
        rate = (at.bytes - first) / max(now - began, 1e-6)
        left = words.seconds((at.all_bytes - at.bytes) / rate) if rate else "unknown time"
        line = f"{words.size(at.bytes)} of {words.size(at.all_bytes)}, {words.size(round(rate))}/s, {left} left"
        sys.stderr.write("\r\x1b[K" if ended else f"\r\x1b[K{line}")
        sys.stderr.flush()

    return tell
