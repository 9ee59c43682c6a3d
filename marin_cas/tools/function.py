"""Runs a user's function on the action's inputs: `py_action`, and `raw_download` when there are none.

Only the modules that are in the action's key lie on the path, so that an untraced import fails instead of leaking.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from marin_cas.tools import arguments
from marin_cas.worker.context import ToolContext, ToolError

REVISION = 1


@dataclass(frozen=True, slots=True)
class FunctionContext:
    """What the user's function is called with: `output_path` is a folder, empty at first."""

    inputs: Mapping[str, Path]
    params: Mapping[str, Any]
    output_path: Path
    scratch: Path
    progress: Callable[..., None]


def run(ctx: ToolContext) -> None:
    file, _, name = ctx.params["function"].partition(":")
    function = _load(ctx.code, file, name)
    (output,) = ctx.outputs.values()
    params = ctx.params.get("params", {})
    if arguments.wanted(params):
        places = {**ctx.inputs, "": output}
        returned = arguments.call(function, params, places, _class)
    else:
        returned = function(FunctionContext(ctx.inputs, params, output, ctx.scratch, ctx.progress))
    if hasattr(returned, "send") or hasattr(returned, "__await__"):
        raise ToolError(
            f"`{name}` is a generator or a coroutine, so calling it did nothing",
            where=file,
            hint="write the outputs in a plain function",
        )


def _class(named: str) -> Any:
    """A class of the modules that came with the function, which is loaded."""
    file, _, name = named.partition(":")
    module = import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    if not hasattr(module, name):
        raise ToolError(f"`{file}` has no class `{name}`", where=file)
    return getattr(module, name)


def _load(code: Path | None, file: str, name: str) -> Callable[..., Any]:
    if code is None:
        raise ToolError(f"the code of `{file}` did not come with the action")
    root = os.path.abspath(code)
    parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
    loaded = sys.modules.get(parts[0])
    if loaded is not None and not (getattr(loaded, "__file__", None) or "").startswith(root):
        raise ToolError(
            f"`{parts[0]}` is also the name of a module that Python has loaded already",
            where=file,
            hint="rename the file or its top folder",
        )
    sys.path.insert(0, root)
    try:
        module = import_module(".".join(parts))
    except ModuleNotFoundError as error:
        if error.name and (Path(root) / error.name.split(".")[0]).exists():
            raise ModuleNotFoundError(
                f"{error.msg} among the modules that `{file}` imports by name: an import made while running is not"
                " seen by the key",
                name=error.name,
            ).with_traceback(error.__traceback__) from None
        raise
    function = getattr(module, name, None)
    if not callable(function):
        raise ToolError(f"`{file}` has no function `{name}`", where=file)
    return function
