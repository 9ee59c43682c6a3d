"""Runs a Python script for the steps that a function of it returns; what goes wrong there is told at its line."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from marin_cas.api import workshop
from marin_cas.api.step import ArtifactStep
from marin_cas.errors import Location, MarinError, RequestError, did_you_mean


def read(path: str, function: str) -> list[ArtifactStep[Any]]:
    """The steps that `function` of the script at `path` (relative to the workspace) returns. RequestError, located."""
    root = workshop.current().root
    if root is None:
        raise RequestError(f"`{path}` is in no workspace")
    # What a script prints is no answer of ours.
    with contextlib.redirect_stdout(sys.stderr), _located(root, path):
        module = _module(root, path)
        called = _function(module, path, function)
        returned = called()
    return list(_steps(returned, f"`{function}`", Location(path, called.__code__.co_firstlineno)))


def _module(root: Path, path: str) -> ModuleType:
    """The script as a module, by the name that an import of it would give, so that there is one of it."""
    name = path.removesuffix(".py").replace("/", ".")
    known = sys.modules.get(name)
    if known is not None and workshop.relative(root, getattr(known, "__file__", None) or "") == path:
        return known
    spec = importlib.util.spec_from_file_location(name, root / path)
    if spec is None or spec.loader is None:
        raise RequestError(f"`{path}` is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # As `python -m` does it: what it imports lies beside it in the workspace.
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _function(module: ModuleType, path: str, name: str) -> Any:
    found = getattr(module, name, None)
    functions = {key: value for key, value in vars(module).items() if inspect.isfunction(value)}
    own = [key for key, value in functions.items() if value.__module__ == module.__name__]
    if found is None:
        hint = did_you_mean(name, own) or (f"its functions: {', '.join(own)}" if own else "it defines no function")
        raise RequestError(f"`{path}` has no function `{name}`", where=Location(path), hint=hint)
    if not inspect.isfunction(found):
        raise RequestError(f"`{name}` of `{path}` is no function", where=Location(path))
    where = Location(path, found.__code__.co_firstlineno)
    if inspect.isgeneratorfunction(found) or inspect.iscoroutinefunction(found):
        raise RequestError(f"`{name}` is a generator or a coroutine", where=where, hint="return a list of steps")
    needed = [
        key
        for key, parameter in inspect.signature(found).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        shown = ", ".join(f"`{key}`" for key in needed)
        raise RequestError(f"`{name}` needs {shown}, and is called with nothing", where=where, hint="give it a default")
    return found


def _steps(value: Any, what: str, where: Location) -> Iterator[ArtifactStep[Any]]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ArtifactStep):
            yield item
        elif isinstance(step := getattr(item, "step", None), ArtifactStep):
            yield step  # it was lowered already
        elif isinstance(item, list | tuple):
            waiting += reversed(item)
        elif isinstance(item, Mapping):
            waiting += reversed(list(item.values()))
        else:
            raise RequestError(
                f"{what} returns {'nothing' if item is None else f'a `{type(item).__name__}`'}, where a step is due",
                where=where,
                hint="return a step, or a list or a dict of steps",
            )


@contextlib.contextmanager
def _located(root: Path, path: str) -> Iterator[None]:
    """Errors of the script's own code as RequestErrors at their line."""
    try:
        yield
    except MarinError:
        raise
    except SyntaxError as error:
        file = workshop.relative(root, error.filename or "") or path
        raise RequestError(f"syntax error: {error.msg}", where=Location(file, error.lineno or 0)) from None
    except (Exception, SystemExit) as error:
        frames = [
            Location(inside, frame.lineno or 0)
            for frame in traceback.extract_tb(error.__traceback__)
            if "marin_cas/api" not in frame.filename and (inside := workshop.relative(root, frame.filename)) is not None
        ]
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        hint = None
        if isinstance(error, ModuleNotFoundError) and error.name:
            hint = f"is `{error.name.partition('.')[0]}` installed here, or a file of the workspace?"
        where, *outer = reversed(frames) if frames else [Location(path)]
        raise RequestError(
            f"`{path}` cannot be read: {what}",
            where=where,
            notes=[f"called from {place}" for place in outer],
            hint=hint,
        ) from None
