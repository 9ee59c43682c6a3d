"""The Starlark engine behind one adapter: the only module that imports it.

Every evaluation is cancellable and bounded in call depth. A Python exception inside a builtin would lose its type
on the way through the engine, KeyboardInterrupt too, so the first one is kept and raised again from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import starlark

from marin_cas.errors import Interrupted
from marin_cas.lang.failure import PRELUDE_FILE
from marin_cas.lang.prelude import BUILD_NAMES, BZL_NAMES, PRELUDE

_MAX_CALLS = 200
_EXTENSIONS = [
    starlark.LibraryExtension.StructType,
    starlark.LibraryExtension.Json,
    starlark.LibraryExtension.Partial,
    starlark.LibraryExtension.CallStack,
    starlark.LibraryExtension.Typing,
]

type Frozen = starlark.FrozenModule
type Parsed = starlark.AstModule


class EngineFailure(Exception):
    """The engine refused or failed; `cause` is the exception that a builtin raised, if one did."""

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.cause = cause


class Engine:
    """One prelude bound to one set of builtins (`natives`)."""

    def __init__(self, natives: Mapping[str, Callable[..., Any]], cancelled: Callable[[], bool] | None = None) -> None:
        self._cancelled = cancelled
        self._kept: BaseException | None = None
        self._options = starlark.EvalOptions(check_cancelled=self._check, max_callstack_size=_MAX_CALLS)
        self._globals = starlark.Globals.extended_by(_EXTENSIONS)
        self._build = _dialect(rules=False)
        self._rules = _dialect(rules=True)
        module = starlark.Module()
        for name, function in natives.items():
            module.add_callable(name, self._keeping(function))
        self._evaluate(module, starlark.parse(PRELUDE_FILE, PRELUDE, self._rules), {})
        self._prelude = module.freeze()

    def parse(self, file: str, text: str, *, rules: bool) -> Parsed:
        """`text` with the builtins' load put before its first line, so that line numbers stay right."""
        names = BZL_NAMES if rules else BUILD_NAMES
        first = f"load({', '.join(repr(name) for name in (PRELUDE_FILE, *names))}); ".replace("'", '"')
        try:
            return starlark.parse(file, first + text, self._rules if rules else self._build)
        except starlark.StarlarkError as error:
            raise EngineFailure(str(error)) from None

    def loads(self, parsed: Parsed) -> list[tuple[str, Mapping[str, str]]]:
        """The files that it loads, as written and in order, each with local name to exported name."""
        return [(load.module_id, dict(load.symbols)) for load in parsed.loads() if load.module_id != PRELUDE_FILE]

    def evaluate(self, parsed: Parsed, modules: Mapping[str, Frozen]) -> Frozen:
        """Run a file once all it loads is there (`modules`, by the text in its load statements)."""
        module = starlark.Module()
        self._evaluate(module, parsed, {**modules, PRELUDE_FILE: self._prelude})
        return module.freeze()

    def call(self, module: Frozen, function: str, *args: Any) -> Any:
        try:
            return module.call_with(self._options, function, *args).value
        except BaseException as error:
            self._fail(error)

    @staticmethod
    def opaque(value: object) -> Any:
        """A Python object that passes through Starlark untouched."""
        return starlark.OpaquePythonObject(value)

    def _evaluate(self, module: starlark.Module, parsed: Parsed, modules: Mapping[str, Frozen]) -> None:
        loader = starlark.FileLoader(modules.__getitem__)
        try:
            starlark.eval_with(self._options, module, parsed, self._globals, loader)
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> NoReturn:
        kept, self._kept = self._kept, None
        if not isinstance(error, starlark.StarlarkError):
            raise error
        if kept is not None and not isinstance(kept, Exception):
            raise kept
        raise EngineFailure(str(error), kept) from kept

    def _keeping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                if self._kept is None:
                    self._kept = error
                raise

        return call

    def _check(self) -> bool:
        try:
            if self._cancelled is not None and self._cancelled():
                raise Interrupted("interrupted")
        except BaseException as error:
            if self._kept is None:
                self._kept = error
            raise
        return False


def _dialect(*, rules: bool) -> starlark.Dialect:
    """Rule files: functions and types; BUILD files: calls, comprehensions. No f-strings: buildifier fails on them."""
    dialect = starlark.Dialect.extended() if rules else starlark.Dialect.standard()
    dialect.enable_def = dialect.enable_lambda = rules
    dialect.enable_top_level_stmt = rules
    dialect.enable_load_reexport = False
    dialect.enable_f_strings = False
    dialect.enable_types = starlark.DialectTypes.ENABLE if rules else starlark.DialectTypes.DISABLE
    return dialect
