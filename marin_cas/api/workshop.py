"""The workspace that a Python program declares steps in, and the place in its files where it does.

A command hands over its own (`use`); a program that runs by itself gets the one around the current folder, or around
its own file.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

from marin_cas.errors import Location, MarinError, RequestError
from marin_cas.lang.loader import Loader
from marin_cas.workspace import Workspace, open_workspace, rules_folder

_OURS = str(Path(__file__).resolve().parent.parent) + os.sep
# What is typed into an interpreter is declared in no file.
UNFILED = "__main__.py"


@dataclass(frozen=True, slots=True)
class Workshop:
    """`root` is None outside of a workspace: constants can be read there, and nothing be built."""

    root: Path | None
    loader: Loader


_current: Workshop | None = None


def use(root: Path, loader: Loader) -> None:
    """Declare in this workspace from now on."""
    global _current
    _current = Workshop(root, loader)


def current() -> Workshop:
    """The workspace at hand, found at the first call."""
    global _current
    if _current is None:
        try:
            found = open_here()
        except RequestError:
            _current = Workshop(None, Loader(rules_folder().parent, rules_folder()))
        else:
            _current = Workshop(found.root, Loader(found.root, rules_folder(), cache=found.cache))
        _speak_plainly()
    return _current


def open_here() -> Workspace:
    """The workspace at hand, configured. Raises RequestError where there is none."""
    if _current is not None and _current.root is not None:
        return open_workspace(_current.root, {}, os.environ)
    try:
        return open_workspace(Path.cwd(), {}, os.environ)
    except RequestError:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        if not main:
            raise
        return open_workspace(Path(main).resolve().parent, {}, os.environ)


def caller() -> Location:
    """The innermost line outside of this program that is running, in a file of the workspace if there is one."""
    root = current().root
    frame: FrameType | None = sys._getframe(1)
    nearest: Location | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not os.path.abspath(file).startswith(_OURS):
            if root is not None and (inside := relative(root, file)) is not None:
                return Location(inside, frame.f_lineno)
            nearest = nearest or Location(os.path.basename(file), frame.f_lineno)
        frame = frame.f_back
    return nearest or Location(UNFILED, 1)


def package_of(where: Location) -> str:
    """The package of what is declared at a place: the script's path."""
    return where.file if where.file.endswith(".py") else UNFILED


def relative(root: Path, file: str) -> str | None:
    """The path of a Python file below the workspace, or None."""
    path = Path(os.path.realpath(file))
    return path.relative_to(root).as_posix() if path.suffix == ".py" and path.is_relative_to(root) else None


def _speak_plainly() -> None:
    """What a user can do something about is told without a traceback, also where a script is run by itself."""
    if not getattr(sys.modules.get("__main__"), "__file__", None) or sys.excepthook is not sys.__excepthook__:
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, MarinError):
            sys.__excepthook__(kind, error, trace)
            return
        print(error.render(), file=sys.stderr)  # noqa: T201 - the interpreter's own hook prints too
        sys.exit(error.exit_code)

    sys.excepthook = hook
