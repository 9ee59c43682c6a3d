"""Loading: BUILD and rule files to packages and rules, and the call of a rule's implementation.

Nothing here depends on a clock, the network or a cache. Each file runs at most once in a Loader; whatever a user got
wrong is a RequestError with a place.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from marin_cas.errors import Interrupted, Location, MarinError, RequestError, did_you_mean
from marin_cas.label import Label
from marin_cas.lang import messages, sources
from marin_cas.lang.engine import Engine, EngineFailure, Frozen
from marin_cas.lang.failure import Failure, callers, macro_chain, parse_failure, placed
from marin_cas.lang.folders import BUILD_FILE, Folders
from marin_cas.lang.glob import glob
from marin_cas.lang.invocation import Invocation
from marin_cas.lang.package import PackageBuilder
from marin_cas.lang.prelude import BUILD_NAMES, BZL_NAMES
from marin_cas.lang.registry import Registry, assignments
from marin_cas.lang.sources import Load, Places, Source
from marin_cas.lang.values import Declaration, Package, ProviderDef, RuleDef

_WORDS = ("abs", "all", "any", "bool", "dict", "dir", "enumerate", "fail", "float", "getattr", "hasattr", "int", "json")
_MORE_WORDS = ("len", "list", "max", "min", "range", "repr", "reversed", "sorted", "str", "struct", "tuple", "type")


class Loader:
    """One workspace. `cancelled` is asked while files run; when it says True, Interrupted is raised.

    `watched` grows with all that was looked at: files read, folders listed, and files that were looked for and are
    not there (their absence counts too). While none of these changes, loading yields the same.
    """

    def __init__(self, root: Path, marin_rules: Path, cancelled: Callable[[], bool] | None = None) -> None:
        self.watched: set[Path] = set()
        self._places = Places(root, marin_rules)
        self._folders = Folders(root, self.watched)
        self._registry = Registry()
        self._packages: dict[str, Package] = {}
        self._bzl: dict[Label, Frozen] = {}
        self._reach: dict[Label, tuple[Label, ...]] = {}  # each loaded file, with what it loads directly or not
        self._building: PackageBuilder | None = None
        self._invoked: Invocation | None = None
        self._defining = False
        self._engine = Engine(self._natives(), cancelled)

    # What others ask for.

    def package(self, name: str) -> Package:
        """The package, evaluated once. RequestError when there is none, or when its BUILD file is wrong."""
        package = self._packages.get(name)
        if package is None:
            package = self._packages[name] = self._load_package(name)
        return package

    def has_package(self, name: str) -> bool:
        return name in self._packages or self._folders.is_package(name)

    def packages(self, below: str = "") -> list[str]:
        """Names of the packages at and below a folder, sorted by their bytes; nothing is evaluated."""
        return self._folders.packages(below)

    def load_bzl(self, label: Label) -> None:
        """Runs a rule file, so that `rules` and `providers` know what it defines."""
        self._run_bzl(label, Location(str(label)))

    def rules(self) -> Mapping[str, RuleDef]:
        """The rules defined so far, by name; a second one of a name has its file behind it: `x (//a:b.bzl)`."""
        return self._registry.rules

    def providers(self) -> Mapping[str, ProviderDef]:
        return self._registry.providers

    def implement(
        self,
        declaration: Declaration,
        attrs: Mapping[str, Any],
        run: Callable[[str, dict[str, Any]], Mapping[str, Any]],
        *,
        identity: Callable[[Any], str] | None = None,
        expand: Callable[[str, Any], Any] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Calls the rule's implementation; returns provider name to fields.

        `attrs` are final values: plain ones as they are, a Dep for a label, a list, dict, or list of `(Dep, weight)`
        pairs of them for the other label kinds. `run(name, arguments)` stands behind `ctx.actions.run` (name is empty
        for a target's main action) and returns an artifact for each output; `identity` and `expand(schema, value)`
        stand behind the functions of these names. An error that they raise without a place gets the target's.
        """
        rule = declaration.rule
        if rule.native:
            raise ValueError(f"`{rule.name}` is built in and has no implementation")
        self._run_bzl(rule.bzl, declaration.location)
        invocation = Invocation(declaration, run, identity, expand, self._engine.opaque)
        outer, self._invoked = self._invoked, invocation
        try:
            answer = self._engine.call(self._bzl[rule.bzl], f"call__{rule.name}", invocation.call(attrs))
        except EngineFailure as failure:
            self._fail_in_rule(failure, invocation, attrs)
        finally:
            self._invoked = outer
        made: dict[str, dict[str, Any]] = {}
        for number, fields in answer:
            name = self._registry.provider(number).name
            if name in made:
                raise RequestError(
                    f"the rule `{rule.name}` returns `{name}` twice", where=rule.location, notes=_target(declaration)
                )
            made[name] = fields
        return made

    # Packages.

    def _load_package(self, name: str) -> Package:
        file = f"{name}/{BUILD_FILE}" if name else BUILD_FILE
        path = self._places.root / file
        self.watched.add(path)
        try:
            if self._folders.hidden(name):
                raise FileNotFoundError
            text = sources.read_text(path, file)
        except (FileNotFoundError, NotADirectoryError):
            raise RequestError(
                f"there is no package `//{name}`: `{file}` does not exist",
                hint=did_you_mean(name, self.packages()),
            ) from None
        except OSError as error:
            raise RequestError(f"cannot read `{file}`: {error.strerror}", where=Location(file)) from None
        source = self._parse(file, text, name, "", rules=False)
        modules = self._load_all(source)
        builder = self._building = PackageBuilder(name, file)
        try:
            self._engine.evaluate(source.parsed, modules)
        except EngineFailure as failure:
            self._fail(failure, source, build=True)
        finally:
            self._building = None
        return builder.finish(self._reached(source))

    # Rule files.

    def _run_bzl(self, label: Label, where: Location) -> None:
        """Runs a rule file after all that it loads. The stack is the path of load statements down to the top."""
        stack = [(label, where)]
        opened: dict[Label, Source] = {}
        while stack:
            label, where = stack[-1]
            if label in self._bzl:
                stack.pop()
                continue
            source = opened.get(label)
            if source is None:
                source = opened[label] = self._read_bzl(label, where)
            load = next((load for load in source.loads if load.label not in self._bzl), None)
            if load is None:
                self._define(label, source)
            elif load.label in opened:
                raise _cycle([*stack, (load.label, load.location)])
            else:
                stack.append((load.label, load.location))

    def _read_bzl(self, label: Label, where: Location) -> Source:
        path = self._places.path(label)
        file = self._places.shown(label)
        try:
            if path is None:
                raise FileNotFoundError
            self.watched.add(path)
            text = sources.read_text(path, file)
        except (FileNotFoundError, NotADirectoryError):
            raise self._places.missing(label, where) from None
        except OSError as error:
            raise RequestError(f"cannot read `{file}`: {error.strerror}", where=where) from None
        # The builtins are put before the first line, and a compound statement may not follow on the same line.
        if not text.startswith(("#", '"', "'", 'r"')):
            raise RequestError(
                "the first line of a .bzl file is a docstring or a comment", where=Location(file, 1)
            )
        return self._parse(file, text, label.package, label.repo, rules=True)

    def _define(self, label: Label, source: Source) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = assignments(ast.parse(source.text))
        self._defining = True
        try:
            self._bzl[label] = self._engine.evaluate(source.parsed, self._modules(source))
            self._registry.finish(label, names)
        except EngineFailure as failure:
            self._registry.abandon()
            self._fail(failure, source, build=False)
        except MarinError:
            self._registry.abandon()
            self._bzl.pop(label, None)
            raise
        finally:
            self._defining = False
        self._reach[label] = self._reached(source)

    def _load_all(self, source: Source) -> Mapping[str, Frozen]:
        for load in source.loads:
            self._run_bzl(load.label, load.location)
        return self._modules(source)

    def _modules(self, source: Source) -> Mapping[str, Frozen]:
        return {load.text: self._bzl[load.label] for load in source.loads}

    def _reached(self, source: Source) -> tuple[Label, ...]:
        reached: dict[Label, None] = {}
        for load in source.loads:
            reached[load.label] = None
            reached.update(dict.fromkeys(self._reach[load.label]))
        return tuple(reached)

    def _parse(self, file: str, text: str, package: str, repo: str, *, rules: bool) -> Source:
        whole = text + _epilogue(text) if rules else text
        try:
            parsed = self._engine.parse(file, whole, rules=rules)
        except EngineFailure as failure:
            if found := messages.unclosed_bracket(text):
                raise RequestError(found[1], where=Location(file, found[0])) from None
            message, hint = messages.explain(parse_failure(failure.text).message, build=not rules)
            raise RequestError(message, where=parse_failure(failure.text).at or Location(file), hint=hint) from None
        loads = []
        for module, names in self._engine.loads(parsed):
            where = Location(file, sources.load_line(text, module))
            loads.append(Load(module, sources.load_label(module, package, repo, where), names, where))
        return Source(file, text, parsed, tuple(loads))

    # What files and implementations call.

    def _natives(self) -> Mapping[str, Callable[..., Any]]:
        registry = self._registry
        return {
            "native__attr_kinds": registry.attr_kinds,
            "native__attr": registry.attr,
            "native__rule": self._on_rule,
            "native__provider": self._on_provider,
            "native__declare": self._on_declare,
            "native__positional": self._on_positional,
            "native__glob": self._on_glob,
            "native__package": lambda visibility, stack: self._build("package").set_defaults(visibility, stack),
            "native__exports_files": lambda files: self._build("exports_files").export(files),
            "native__identity": lambda artifact: self._invocation("identity").on_identity(artifact),
            "native__run": lambda given: self._invocation("ctx.actions.run").on_run(given),
            "native__expand": lambda schema, value: self._invocation("ctx.expand").on_expand(schema, value),
            "native__bad_value": _bad_value,
            "native__bad_field": self._on_bad_field,
        }

    def _build(self, function: str) -> PackageBuilder:
        if self._building is None or self._defining:
            raise RequestError(f"`{function}` is called from a BUILD file or a macro that one calls, not from here")
        return self._building

    def _invocation(self, function: str) -> Invocation:
        if self._invoked is None:
            raise RequestError(f"`{function}` is called from a rule's implementation, not from here")
        return self._invoked

    def _on_rule(self, attrs: Any, toolchain: Any, test: bool, doc: str, stack: str) -> int:
        if not self._defining:
            raise RequestError("`rule` is called at the top of a .bzl file, not from here")
        return self._registry.add_rule(attrs, toolchain, test, doc, stack)

    def _on_provider(self, doc: str, fields: Any, stack: str) -> int:
        if not self._defining:
            raise RequestError("`provider` is called at the top of a .bzl file, not from here")
        return self._registry.add_provider(doc, fields, stack)

    def _on_declare(self, number: int, encoded: str, stack: str) -> None:
        rule = self._registry.rule(number)
        self._build(rule.name).declare(rule, encoded, stack)

    def _on_positional(self, number: int) -> NoReturn:
        name = self._registry.rule(number).name
        raise RequestError(f"`{name}` takes its attributes by name", hint=f'write `{name}(name = "...", ...)`')

    def _on_glob(self, include: Any, exclude: Any, allow_empty: Any) -> list[str]:
        package = self._build("glob").name
        for name, value in (("include", include), ("exclude", exclude)):
            if not isinstance(value, list):
                raise RequestError(f"`{name}` of `glob` is a list of patterns", hint=f'write `["{value}"]`')
        return glob(self._folders, package, include, exclude, allow_empty=bool(allow_empty))

    def _on_bad_field(self, number: int, name: str) -> NoReturn:
        provider = self._registry.provider(number)
        if not name:
            raise RequestError(f"`{provider.name}` takes its fields by name")
        raise RequestError(
            f"`{provider.name}` has no field `{name}`",
            hint=did_you_mean(name, provider.fields) or f"its fields are {', '.join(provider.fields)}",
        )

    # What went wrong.

    def _fail(self, failure: EngineFailure, source: Source, *, build: bool) -> NoReturn:
        """An error while a file ran: raised by a builtin, by fail(), or by the engine itself."""
        told = parse_failure(failure.text)
        outer = told.frames[0].location if told.frames else told.at
        cause = failure.cause
        if isinstance(cause, Interrupted) or (cause is not None and not isinstance(cause, MarinError)):
            raise cause
        if cause is not None:
            raise placed(cause, outer if build else told.at, macro_chain(told.frames) if build else callers(told))
        message, hint = messages.explain(told.message, build=build)
        if name := messages.unknown_name(told.message):
            raise self._unknown(name, source, told, build=build)
        if name := messages.missing_symbol(told.message):
            load = next((load for load in source.loads if name in load.names.values()), None)
            message = f"`{load.label if load else 'the loaded file'}` does not define `{name}`"
            raise RequestError(message, where=told.at, hint=hint)
        if told.message.startswith("fail: ") and build:
            raise RequestError(message, where=outer, notes=macro_chain(told.frames))
        raise RequestError(message, where=told.at or Location(source.file), notes=callers(told), hint=hint)

    def _unknown(self, name: str, source: Source, told: Failure, *, build: bool) -> RequestError:
        known = set(BUILD_NAMES if build else BZL_NAMES) | {*_WORDS, *_MORE_WORDS}
        known.update(local for load in source.loads for local in load.names)
        rule = self._registry.rules.get(name)
        label = rule.bzl if rule and not rule.native else self._places.defining(name)
        if label is not None:
            hint = f'load it first: load("{label}", "{name}")'
        else:
            hint = did_you_mean(name, known)
            hint = hint or did_you_mean(name, {*known, *self._registry.rules})
        return RequestError(f"`{name}` is not defined", where=told.at, notes=callers(told), hint=hint)

    def _fail_in_rule(self, failure: EngineFailure, invocation: Invocation, attrs: Mapping[str, Any]) -> NoReturn:
        declaration = invocation.declaration
        told = parse_failure(failure.text)
        cause = failure.cause
        if isinstance(cause, Interrupted) or (cause is not None and not isinstance(cause, MarinError)):
            raise cause
        if cause is not None and cause.where is not None:
            raise cause
        inside = f"in rule `{declaration.rule.name}` ({told.at or declaration.rule.location})"
        if cause is not None:
            raise placed(cause, declaration.location, (*declaration.chain, inside))
        message, hint = messages.explain(told.message, build=False)
        if told.message.startswith("fail: "):
            raise RequestError(message, where=declaration.location, notes=(*declaration.chain, inside))
        field = messages.missing_field(told.message)
        if field in self._registry.providers and (lacking := invocation.lacking(attrs, told.expression, field)):
            raise RequestError(
                "; ".join(
                    f"`{dep.label}` ({dep.kind}) has no `{field}`: it has {', '.join(dep.providers) or 'no providers'}"
                    for dep in lacking[:3]
                ),
                where=declaration.location,
                notes=(*declaration.chain, inside),
            )
        if field and told.expression == f"ctx.attr.{field}":
            message = f"the rule `{declaration.rule.name}` has no attribute `{field}`"
        raise RequestError(message, where=told.at, notes=(*callers(told), *_target(declaration)), hint=hint)


def _target(declaration: Declaration) -> tuple[str, ...]:
    return (f"for `{declaration.label}` ({declaration.location})", *declaration.chain)


def _cycle(stack: list[tuple[Label, Location]]) -> RequestError:
    start = next(index for index, (label, _) in enumerate(stack) if label == stack[-1][0])
    path = stack[start:]
    return RequestError(
        f"`{path[0][0]}` loads itself",
        where=path[1][1],
        notes=tuple(
            f"`{label}` loads `{loaded}` ({where})"
            for (label, _), (loaded, where) in pairwise(path)
        ),
        hint="move what both need into a third file",
    )


def _epilogue(text: str) -> str:
    """Functions by which Python calls the file's rules: only exported names can be called, and `_x` is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ""
    names = dict.fromkeys(name for name, _, _ in assignments(tree))
    return "\n" + "".join(f"def call__{name}(call__): return {name}(ctx__ = call__)\n" for name in names)


def _bad_value(what: str, problem: str, detail: str) -> NoReturn:
    subject = f"`{what}`" if what else "it"
    match problem:
        case "number":
            raise RequestError(f"{subject} is not a finite number", hint="NaN and infinities are refused")
        case "key":
            raise RequestError(f"{subject} has the key `{detail}`: keys are strings", hint=f'write `"{detail}"`')
        case "struct":
            raise RequestError(f"the field {subject} of a provider holds a struct", hint="use a dict")
        case "select":
            raise RequestError("`select` takes a dict from conditions to values")
        case "implementation":
            raise RequestError(f"`implementation` of a rule is a function, not a {detail}")
        case "return":
            raise RequestError(f"a rule's implementation returns a list of providers, not a {detail}")
    raise RequestError(f"{subject} is a {detail}, not a plain value", hint="use text, numbers, lists and dicts")
