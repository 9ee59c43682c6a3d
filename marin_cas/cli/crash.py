"""A bug of ours: one line on the screen, the traceback in a file."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from marin_cas.errors import MarinError
from marin_cas.ui import out


def report(error: BaseException, argv: Sequence[str]) -> None:
    """Writes the traceback and says where; never raises."""
    what = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    lines = [f"error: a bug of marin-cas: {what}"]
    path = _write(error, argv)
    if path:
        lines.append(f"  the details are in `{path}`")
    lines.append("  hint: nothing that was stored is harmed by it; please report it with that file")
    out.note("\n".join(lines))


def _write(error: BaseException, argv: Sequence[str]) -> Path | None:
    text = f"marin {' '.join(argv)}\n\n{''.join(traceback.format_exception(error))}"
    name = f"bug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (_cache(), Path(tempfile.gettempdir())):
        try:
            if folder and folder.is_dir():
                path = folder / name
                path.write_text(text, encoding="utf-8", errors="backslashreplace")
                return path
        except OSError:
            continue
    return None


def _cache() -> Path | None:
    from marin_cas.workspace import open_workspace

    try:
        return open_workspace(Path.cwd(), {}, os.environ).cache
    except (MarinError, OSError):
        return None
