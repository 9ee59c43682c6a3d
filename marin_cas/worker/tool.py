"""The tool's own process: confines itself, runs the tool, says how it failed. Tracebacks go to the log only."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from marin_cas.worker import landlock
from marin_cas.worker.context import Report, ToolContext, ToolError
from marin_cas.worker.job import Job

# What a tool may write; its inputs, its code and the rest of the machine it may only read.
WRITABLE = ("out", "home", "tmp", "scratch")
TOOLS = "marin_cas.tools"
_TEXT_MAX = 4000
_RUN_ID_DIGITS = 16


class _Refused(Exception):
    """The environment is not what the recipe asks for."""


def main(report_fd: int) -> int:
    """Runs the job in the working directory; returns the exit status."""
    # Those of the warm process believe in a file that one can seek in. Line by line, for a tool that is killed.
    sys.stdout = sys.__stdout__ = _stream(1)
    sys.stderr = sys.__stderr__ = _stream(2)
    os.set_inheritable(report_fd, False)
    report = Report(report_fd)
    code = 0
    try:
        _run(Job.read(Path()), report)
    except SystemExit as stop:
        code = _exit_status(stop, report)
    except BaseException as error:
        code = 1
        report.send({"failure": describe(error)})
        _print_traceback(error)
    return _finish(code, report)


def _stream(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _run(job: Job, report: Report) -> None:
    if job.confine:
        landlock.restrict([*WRITABLE, *job.writable])
    module = _load(job)
    if job.code:
        # From here on user code cannot import a workspace module that did not travel with the action.
        sys.path[:] = [entry for entry in sys.path if not leaks(entry, job.workspace)]
    context = ToolContext(
        params=job.params,
        settings=job.settings,
        inputs={name: Path("in", name) for name in job.inputs},
        outputs={name: Path("out", name) for name in job.outputs},
        scratch=Path("scratch"),
        earlier=tuple(Path("earlier", str(index)) for index in range(job.earlier)),
        code=Path("code") if job.code else None,
        report=report,
        run_id=str(job.request.get("key", ""))[:_RUN_ID_DIGITS],
    )
    module.run(context)
    if job.code:
        _refuse_leaked_modules(job.workspace)


def _load(job: Job) -> ModuleType:
    name = f"{TOOLS}.{job.tool}"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise _Refused(f"this worker has no tool `{job.tool}`") from error
        raise _Refused(f"tool `{job.tool}` needs `{error.name}`, which is not installed here") from error
    if job.revision != module.REVISION:
        raise _Refused(
            f"this worker has revision {module.REVISION} of tool `{job.tool}`, the rule asks for {job.revision}"
        )
    return module


def leaks(path: str, workspace: str | None) -> bool:
    """Whether `path` lies in the workspace, and is neither an environment inside it nor the action's own code."""
    if workspace is None or not path:
        return not path
    inside = _below(path, workspace)
    return inside and not any(_below(path, own) for own in (sys.prefix, sys.base_prefix, os.getcwd()))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _refuse_leaked_modules(workspace: str | None) -> None:
    own = os.path.dirname(sys.modules["marin_cas"].__file__ or "")
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and leaks(file, workspace) and not _below(file, own):
            raise ToolError(f"`{name}` was imported from the workspace, but is not in the action's key")


def _exit_status(stop: SystemExit, report: Report) -> int:
    if stop.code is None or stop.code == 0:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 255 or 1
    report.send({"failure": {"message": str(stop.code)}})
    return 1


def describe(error: BaseException) -> dict[str, Any]:
    """What people are told of an exception: type and text, and the innermost line of user code."""
    if isinstance(error, ToolError):
        told = {"message": error.message, "where": error.where or _user_line(error), "hint": error.hint}
        return {**told, "environment": True} if error.environment else told
    if isinstance(error, _Refused):
        hint = "use the version of marin-cas whose rules these are"
        return {"message": str(error), "hint": hint, "environment": True}
    text = _text(error)
    fields: dict[str, Any] = {
        "message": f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "where": _user_line(error),
    }
    if isinstance(error, OSError):
        fields["errno"] = error.errno
        fields["path"] = os.fspath(error.filename) if isinstance(error.filename, (str, os.PathLike)) else None
    if isinstance(error, ModuleNotFoundError):
        fields["module"] = error.name
    return fields


def _text(error: BaseException) -> str:
    """What an exception says, as much of it as people can read."""
    try:
        text = str(error)
    except Exception:  # its __str__ is the tool's
        return ""
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}... ({len(text):,} characters, its log has them all)"


def _user_line(error: BaseException) -> str | None:
    code = os.path.join(os.getcwd(), "code") + "/"
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(code):
        return f"{error.filename.removeprefix(code)}:{error.lineno}"
    place, trace = None, error.__traceback__
    while trace is not None:
        file = os.path.abspath(trace.tb_frame.f_code.co_filename)
        if file.startswith(code):
            place = f"{file.removeprefix(code)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _print_traceback(error: BaseException) -> None:
    import traceback  # only a failure pays for it

    traceback.print_exception(error)


def _finish(code: int, report: Report) -> int:
    """What the interpreter would do at its end, as a fork of the warm process leaves without it."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:  # the tool may have put anything there
                stream.flush()
    except BaseException as error:
        if not code:  # else what made it fail first has been told
            report.send({"failure": describe(error)})
        return code or 1
    return code
