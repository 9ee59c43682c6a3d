"""Steps that run a function of the user's: one at the top level of a file of the workspace, `path.py:name`.

What a function is called with crosses as plain data in which marks stand for the places of inputs and of the output.
Lambdas, closures and methods are refused: no file and no name say what they are, so nothing could be their identity.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from marin_cas.api import workshop
from marin_cas.api.artifacts import Artifact
from marin_cas.api.step import ArtifactStep, declare
from marin_cas.errors import RequestError

type Function = str | Callable[..., Any]

# The tool knows these marks: see marin_cas/tools/arguments.py.
_MARK, _CLASS = "<marin:", "<marin:class>"
_OUTPUT = "<marin:output>"


class _Out:
    def __repr__(self) -> str:
        return "OUT"


# Among the arguments of `apply`: the folder to write into.
OUT = _Out()


@dataclass(slots=True)
class StepContext:
    """What `build_config` of `raw_download` is given: `output_path` stands for the folder to write into."""

    output_path: str = _OUTPUT
    inputs: dict[str, ArtifactStep[Any]] = field(default_factory=dict)

    def artifact_path(self, step: ArtifactStep[Any]) -> str:
        """A text that stands for the place of what another step makes, which becomes an input."""
        for name, known in self.inputs.items():
            if known is step:
                return f"<marin:input:{name}>"
        name = f"input_{len(self.inputs)}"
        self.inputs[name] = step
        return f"<marin:input:{name}>"


def py_action(
    name: str,
    function: Function,
    *,
    inputs: Mapping[str, ArtifactStep[Any] | str] | None = None,
    params: Mapping[str, Any] | None = None,
    **attrs: Any,
) -> ArtifactStep[Artifact]:
    """A tree of files that `function(ctx)` makes from `ctx.inputs` and `ctx.params`."""
    given = {"function": named(function), "inputs": dict(inputs or {}), "params": dict(params or {})}
    return declare("data.bzl", "py_action", name, given | attrs)


def apply(
    name: str,
    fn: Function,
    *,
    version: str | None = None,
    toolchain: Sequence[str] | None = None,
    **inputs: Any,
) -> ArtifactStep[Artifact]:
    """`fn(**inputs)`: a step among them becomes an input, of which `fn` gets the path, `OUT` the folder to write into;
    anything else is a literal in the key."""
    context = StepContext()
    arguments = _template(inputs, context, name)
    given = {"inputs": context.inputs, "params": {_MARK + "arguments>": arguments}, "version": version}
    given |= {"toolchain": None if toolchain is None else list(toolchain)}
    return declare("data.bzl", "py_action", name, {"function": named(fn), **given})


def raw_download(
    name: str,
    *,
    fn: Function | None = None,
    build_config: Callable[[StepContext], Any] | None = None,
    version: str | None = None,
    urls: Sequence[str] | None = None,
    function: Function | None = None,
    params: Mapping[str, Any] | None = None,
    **attrs: Any,
) -> ArtifactStep[Artifact]:
    """Files from `urls`; or what `fn(build_config(ctx))` writes into `ctx.output_path`; or `function(ctx)` as in a
    BUILD file.

    `build_config` is called here and now, and only what it returns is in the key: plain data, or a dataclass of it.
    """
    given: dict[str, Any] = {"version": version, "urls": None if urls is None else list(urls)}
    if (fn is None) != (build_config is None):
        raise RequestError("`fn` and `build_config` go together", where=workshop.caller())
    if fn is not None and build_config is not None:
        context = StepContext()
        config = _template(build_config(context), context, "build_config")
        if context.inputs:
            raise RequestError(
                "`build_config` names what another step makes, and a download has no inputs",
                where=workshop.caller(),
                hint="use `apply`",
            )
        given |= {"function": named(fn), "params": {_MARK + "positional>": [config]}}
    elif function is not None:
        given |= {"function": named(function), "params": dict(params or {})}
    return declare("data.bzl", "raw_download", name, given | attrs)


def named(function: Function) -> str:
    """`path.py:name` of a function. Raises RequestError, with the reason, for one that no file and name identify."""
    if isinstance(function, str):
        return function
    where = workshop.caller()

    def refused(what: str) -> RequestError:
        return RequestError(
            f"{what}: a function of a step is known by its file and name, and runs elsewhere from these",
            where=where,
            hint="write it with `def` at the top level of a file of the workspace",
        )

    if isinstance(function, functools.partial):
        raise refused("a `functools.partial` has no name")
    if inspect.ismethod(function) or inspect.isclass(function) or not inspect.isfunction(function):
        raise refused(f"`{getattr(function, '__qualname__', function)}` is no plain function")
    if function.__name__ == "<lambda>":
        raise refused("a lambda has no name")
    if function.__closure__ or "<locals>" in function.__qualname__:
        raise refused(f"`{function.__qualname__}` is defined inside another function")
    if "." in function.__qualname__:
        raise refused(f"`{function.__qualname__}` is a method")
    return f"{_file_of(function, function.__name__)}:{function.__name__}"


def _file_of(thing: Any, name: str) -> str:
    root = workshop.current().root
    file = inspect.getsourcefile(inspect.unwrap(thing))
    path = None if root is None or file is None else workshop.relative(root, file)
    if path is None:
        raise RequestError(
            f"`{name}` is in `{file}`, which is no Python file of the workspace",
            where=workshop.caller(),
            hint="put a function that calls it into one",
        )
    return path


def _template(value: Any, context: StepContext, path: str) -> Any:
    """Plain data with marks for what is known only where it runs; `plain` refuses what is none."""
    if value is OUT:
        return _OUTPUT
    if isinstance(value, ArtifactStep):
        return context.artifact_path(value)
    if isinstance(value, list | tuple):
        return [_template(item, context, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {key: _template(item, context, f"{path}.{key}") for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        if "." in kind.__qualname__:
            raise RequestError(f"`{path}` is a `{kind.__qualname__}`, a class that is defined inside something")
        stated = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        return {_CLASS: f"{_file_of(kind, kind.__name__)}:{kind.__name__}", "fields": _template(stated, context, path)}
    return value
