"""The command line in this process: for tests that run it a hundred times."""

from __future__ import annotations

import io
import os
from contextlib import chdir, redirect_stderr, redirect_stdout

from marin_cas.cli.main import main
from tests.cli.conftest import TRACEBACK, Mini, Ran


def run_inside(mini: Mini, *args: str, cwd: str = "", code: int | None = 0) -> Ran:
    """As `Mini.run`, without a process of its own (the actions have theirs all the same). None allows any exit code."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    environ = dict(os.environ)
    os.environ.clear()
    os.environ.update(mini.environ())
    try:
        with chdir(mini.root / cwd), redirect_stdout(out), redirect_stderr(err):
            got = main(args)
    finally:
        os.environ.clear()
        os.environ.update(environ)
    said = Ran(got, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]
    assert TRACEBACK not in said.out + said.err, said.err
    assert not list((mini.root / "cache").glob("bug-*")), said.err
    assert code is None or got == code, f"exit {got}\n{said.out}\n{said.err}"
    return said
