"""Loading: BUILD and rule files to packages and rules, and the call of a rule's implementation.

Nothing here depends on a clock, the network or a cache. Each file runs at most once in a Loader; whatever a user got
wrong is a RequestError with a place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from marin_cas.errors import Location, MarinError, RequestError, did_you_mean
from marin_cas.label import Label
from marin_cas.lang import blame, messages, sources
from marin_cas.lang.engine import Engine, EngineFailure, Frozen
from marin_cas.lang.failure import CALLED, parse_failure
from marin_cas.lang.folders import BUILD_FILE, Folders
from marin_cas.lang.glob import glob
from marin_cas.lang.invocation import Invocation
from marin_cas.lang.package import PackageBuilder
from marin_cas.lang.registry import Registry
from marin_cas.lang.sources import Load, Places, Source
from marin_cas.lang.values import Declaration, Package, ProviderDef, RuleDef


class Loader:
    """One workspace. `cancelled` is asked while files run; when it says True, Interrupted is raised.

    `cache` is a folder in the workspace that holds no packages or sources, by default its `cache`.

    `watched` grows with all that was looked at: files read, folders listed, and files that were looked for and are
    not there (their absence counts too). While none of these changes, loading yields the same.
    """

    def __init__(
        self,
        root: Path,
        marin_rules: Path,
        cancelled: Callable[[], bool] | None = None,
        *,
        cache: Path | None = None,
    ) -> None:
        self.watched: set[Path] = set()
        self._places = Places(root, marin_rules)
        self._folders = Folders(root, self.watched, cache)
        self._registry = Registry()
        self._blame = blame.Blame(self._registry, self._places)
        self._packages: dict[str, Package] = {}
        self._bzl: dict[Label, Frozen] = {}
        self._reach: dict[Label, tuple[Label, ...]] = {}  # each loaded file, with what it loads directly or not
        self._building: PackageBuilder | None = None
        self._invoked: Invocation | None = None
        self._defining = False
        self._engine = Engine(self._natives(), cancelled)

    @property
    def root(self) -> Path:
        return self._places.root

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

    def script(self, label: Label) -> tuple[Label, ...] | None:
        """None: a workspace's files alone call no Python."""
        return None

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
        lock: Callable[[str, list[Any]], str | None] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Calls the rule's implementation; returns provider name to fields.

        `attrs` are final values: plain ones as they are, a Dep for a label, a list, dict, or list of `(Dep, weight)`
        pairs of them for the other label kinds. `run(name, arguments)` stands behind `ctx.actions.run` (name is empty
        for a target's main action) and returns an artifact for each output; `identity`, `expand(schema, value)` and
        `lock(kind, arguments)` stand behind the functions of these names. An error that they raise without a place
        gets the target's.
        """
        rule = declaration.rule
        if rule.native:
            raise ValueError(f"`{rule.name}` is built in and has no implementation")
        self._run_bzl(rule.bzl, declaration.location)
        invocation = Invocation(declaration, run, identity, expand, lock, self._engine.opaque)
        outer, self._invoked = self._invoked, invocation
        try:
            answer = self._engine.call(self._bzl[rule.bzl], CALLED + rule.name, invocation.call(attrs))
        except EngineFailure as failure:
            raise self._blame.in_rule(failure, invocation, attrs) from None
        finally:
            self._invoked = outer
        made: dict[str, dict[str, Any]] = {}
        for number, fields in invocation.answer(answer):
            name = self._registry.provider(number).name
            if name in made:
                raise RequestError(
                    f"the rule `{rule.name}` returns `{name}` twice",
                    where=rule.location,
                    notes=blame.target(declaration),
                )
            made[name] = fields
        return made

    def call(
        self, bzl: Label, name: str, arguments: str | None, where: Location, package: str = ""
    ) -> tuple[Package, Any]:
        """What a program calls as a BUILD file would: `name` of a rule file, with arguments as Starlark text; with None
        it is a constant that is read.

        Returns a package with what the call declares, at `where`, and the call's value as plain data.
        """
        self._run_bzl(bzl, where)
        call = name if arguments is None else f"{name}({arguments})"
        # The call stands at the program's line, so that whatever is wrong with it is told there.
        loads = f'load("{bzl}", "{name}"); ' + "\n" * (where.line - 1)
        text = f"{loads}value__ = {call}\ndef {CALLED}value(): return json.encode(value__)\n"
        try:
            parsed = self._engine.parse(where.file, text, rules=True)
        except EngineFailure as failure:
            raise RequestError(parse_failure(failure.text).message, where=where) from None
        source = Source(where.file, text, parsed, (Load(str(bzl), bzl, {name: name}, where),))
        outer, self._building = self._building, PackageBuilder(package, where.file)
        try:
            module = self._engine.evaluate(parsed, self._modules(source))
            value = self._engine.call(module, f"{CALLED}value")
            return self._building.finish(self._reached(source)), json.loads(value)
        except EngineFailure as failure:
            raise self._blame.in_file(failure, source, build=True) from None
        finally:
            self._building = outer

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
            raise self._blame.in_file(failure, source, build=True) from None
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
                raise blame.cycle([*stack, (load.label, load.location)])
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
            raise RequestError("the first line of a .bzl file is a docstring or a comment", where=Location(file, 1))
        return self._parse(file, text, label.package, label.repo, rules=True)

    def _define(self, label: Label, source: Source) -> None:
        self._defining = True
        try:
            self._bzl[label] = self._engine.evaluate(source.parsed, self._modules(source))
            self._registry.finish(label, source.assigned)
        except EngineFailure as failure:
            self._registry.abandon()
            raise self._blame.in_file(failure, source, build=False) from None
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
        assigned = sources.assignments(text) if rules else ()
        # Python calls a file's rules through functions added at its end: it can call exported names only, `_x` is none.
        calls = "".join(
            f"def {CALLED}{name}(given__): return {name}(ctx__ = given__)\n" for name, _, _ in assigned or ()
        )
        try:
            parsed = self._engine.parse(file, f"{text}\n{calls}" if calls else text, rules=rules)
        except EngineFailure as failure:
            if found := messages.unclosed_bracket(text):
                raise RequestError(found[1], where=Location(file, found[0])) from None
            told = parse_failure(failure.text)
            message, hint = messages.explain(told.message, build=not rules)
            raise RequestError(message, where=told.at or Location(file), hint=hint) from None
        if assigned is None:
            raise RequestError("a rule file may use only what Starlark and Python share", where=Location(file))
        loads = []
        for module, names in self._engine.loads(parsed):
            where = Location(file, sources.load_line(text, module))
            loads.append(Load(module, sources.load_label(module, package, repo, where), names, where))
        return Source(file, text, parsed, tuple(loads), assigned)

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
            "native__run": lambda text, artifacts: self._invocation("ctx.actions.run").on_run(text, artifacts),
            "native__expand": lambda schema, value: self._invocation("ctx.expand").on_expand(schema, value),
            "native__lock": lambda kind, arguments: self._invocation("ctx.lock").on_lock(kind, arguments),
            "native__artifact": lambda: Engine.opaque(None),
            "native__bad_value": blame.bad_value,
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

    def _on_declare(self, declared: str) -> None:
        number, encoded, stack = declared.split("\n", 2)
        rule = self._registry.rule(int(number))
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
