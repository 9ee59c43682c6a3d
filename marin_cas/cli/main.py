"""The program: a fast path for what needs no command-line library, then the commands, behind one error boundary.

Nobody sees a traceback: what a user can do something about is a MarinError, anything else a bug, told as one line.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from marin_cas.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, MarinError
from marin_cas.ui import out


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    out.complete()
    try:
        code = _run(args)
    except MarinError as error:
        out.note(error.render())
        code = error.exit_code
    except KeyboardInterrupt:
        out.note("interrupted")
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        out.hush(sys.stdout)
        code = EXIT_OK
    except Exception as error:
        from marin_cas.cli import crash

        crash.report(error, args)
        code = EXIT_BUG
    try:
        out.flush()
    except MarinError as error:
        out.note(error.render())
        code = error.exit_code
    return code


def _run(args: list[str]) -> int:
    if args == ["--version"]:
        from marin_cas import __version__

        out.data(f"marin {__version__}")
        return EXIT_OK
    from marin_cas.cli import noop

    if noop.plain(args) and (code := noop.fast(args[1:], os.environ)) is not None:
        return code
    from marin_cas.cli import root

    # A graph of thousands of targets is all live data: looking through it for garbage again and again is a fifth of a
    # large build's start.
    gc.set_threshold(200_000, 50, 100)
    return root.run(args)
