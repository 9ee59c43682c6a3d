"""The identity of a user's function: the tokens of every workspace module that it reaches by import.

BLAKE3 of the line `marin-cas code 1\\n` and one CBOR item a module, sorted by name: `[module, [[type, string], ...]]`.
Comments, blank lines and the width of an indent are left out; docstrings are strings and count.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from marin_cas.analysis.imports import Import, absolute_name, imports_of, locate, resolve
from marin_cas.encoding import encode
from marin_cas.errors import Location, RequestError, did_you_mean

CODE_HEADER = b"marin-cas code 1\n"

_DROPPED = frozenset({"COMMENT", "NL", "ENCODING", "ENDMARKER", "TYPE_IGNORE"})
_LAYOUT = frozenset({"NEWLINE", "INDENT", "DEDENT"})


@dataclass(frozen=True, slots=True)
class Code:
    """`digest` is 32 bytes; `modules` the workspace-relative paths that travel to the worker, sorted."""

    function: str
    digest: bytes
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Module:
    """A parsed file: its tokens as encoded, its imports, and the statements at its top level by the name they bind."""

    name: str
    path: str
    is_package: bool
    tokens: bytes
    imports: tuple[Import, ...]
    defined: dict[str, ast.stmt]


# By absolute path and content: a thousand actions of one function parse it once, an edited file never hits.
_parsed: dict[str, tuple[bytes, _Module]] = {}


def code_identity(root: Path, function: str, toolchain: Sequence[str], *, where: Location | None = None) -> Code:
    """The identity of `path.py:name`. Raises RequestError at `where` (the declaration) or at the line of the source.

    `toolchain` are the distributions that the target lists: a third-party import must come from one of them.
    """
    path, name = _split(function, where)
    module = _module_name(path, where)
    if not (Path(root) / path).is_file():
        raise _no_file(root, path, where)
    modules: dict[str, _Module] = {}
    parts = module.split(".")
    waiting = [".".join(parts[: depth + 1]) for depth in range(len(parts))]
    while waiting:
        current = waiting.pop()
        place = locate(root, current)
        if current in modules or place is None or place.path is None:
            continue
        parsed = modules[current] = _parse(root, current, place.path, place.is_package)
        for item in parsed.imports:
            waiting += _reached(root, parsed, item, toolchain, declared=where)
    if modules[module].path != path:
        raise RequestError(f"`{path}` is hidden by `{modules[module].path}`", where=where, hint="rename one of them")
    _check_function(modules[module], name, where)
    ordered = sorted(modules.values(), key=lambda entry: entry.name.encode())
    return Code(function, _digest(entry.tokens for entry in ordered), tuple(sorted(e.path for e in ordered)))


def _reached(
    root: Path, module: _Module, item: Import, toolchain: Sequence[str], declared: Location | None
) -> list[str]:
    at = Location(module.path, item.line)
    try:
        wanted = absolute_name(item, module.name, module.is_package, at)
        return [found.name for found in resolve(root, wanted, item, toolchain, at)]
    except RequestError as error:
        # The line is in a source that several targets may share: say which one wants it.
        notes = [f"for the target at {declared}"] if declared else []
        raise RequestError(error.message, where=at, notes=notes, hint=error.hint) from None


def _digest(encoded: Iterator[bytes]) -> bytes:
    from blake3 import blake3

    hasher = blake3(CODE_HEADER)
    for tokens in encoded:
        hasher.update(tokens)
    return hasher.digest()


def _split(function: str, where: Location | None) -> tuple[str, str]:
    path, colon, name = function.rpartition(":")
    if not colon or not path.endswith(".py") or not name:
        raise RequestError(
            f"`{function}` is not a function: write it as `path.py:name`, the path relative to the workspace",
            where=where,
            hint='for example "exp/clean.py:drop_short"',
        )
    if path.startswith("/") or ".." in path.split("/") or path != str(Path(path)):
        raise RequestError(f"`{path}` is not a plain path below the workspace", where=where)
    if not name.isidentifier():
        nested = "." in name or "<" in name
        raise RequestError(
            f"`{name}` is not a function at the top level of `{path}`" if nested else f"`{name}` is not a name",
            where=where,
            hint="methods, nested functions and lambdas have no identity of their own: move it to the top level",
        )
    return path, name


def _module_name(path: str, where: Location | None) -> str:
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    for part in parts:
        if not part.isidentifier():
            raise RequestError(
                f"`{path}` cannot be imported: `{part}` is not a Python name",
                where=where,
                hint="use letters, digits and `_` in its folders and file name",
            )
    return ".".join(parts)


def _no_file(root: Path, path: str, where: Location | None) -> RequestError:
    folder = (Path(root) / path).parent
    near = sorted(entry.name for entry in folder.glob("*.py")) if folder.is_dir() else []
    hint = did_you_mean(Path(path).name, near)
    return RequestError(f"there is no file `{path}` in the workspace", where=where, hint=hint)


def _parse(root: Path, name: str, path: str, is_package: bool) -> _Module:
    full = Path(root) / path
    try:
        raw = full.read_bytes()
    except OSError as error:
        raise RequestError(f"cannot read `{path}`: {error.strerror or error}") from None
    known = _parsed.get(str(full))
    if known is not None and known[0] == raw and known[1].name == name:
        return known[1]
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = raw.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
        tree = ast.parse(raw, path)
        tokens = list(_tokens(text))
    except UnicodeDecodeError as error:
        raise RequestError(f"its bytes are not {error.encoding}", where=Location(path)) from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise RequestError(f"not Python: {message}", where=Location(path, line)) from None
    encoded = encode([name, [[kind, string] for kind, string in tokens]])
    module = _Module(name, path, is_package, encoded, imports_of(tree), _definitions(tree))
    _parsed[str(full)] = (raw, module)
    return module


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(type, string) of what makes a difference. An f-string is one STRING, as written, whatever the Python."""
    lines = list(io.StringIO(text))  # as the tokenizer counts them: only a newline ends a line
    depth, start = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_START"):
            depth += 1
            start = token.start if depth == 1 else start
        elif kind.endswith("STRING_END"):
            depth -= 1
            if not depth:
                yield "STRING", _between(lines, start, token.end)
        elif not depth and kind not in _DROPPED:
            yield kind, "" if kind in _LAYOUT else token.string


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    whole = lines[start[0] - 1 : end[0]]
    whole[-1] = whole[-1][: end[1]]
    whole[0] = whole[0][start[1] :]
    return "".join(whole)


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = statement
            case ast.Assign(targets=targets):
                found |= {target.id: statement for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = statement
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {(alias.asname or alias.name): statement for alias in names}
    return found


_KINDS = {
    ast.AsyncFunctionDef: "an async function",
    ast.ClassDef: "a class",
    ast.Assign: "assigned a value, such as a lambda",
    ast.AnnAssign: "assigned a value, such as a lambda",
    ast.Import: "imported",
    ast.ImportFrom: "imported from elsewhere",
}


def _check_function(module: _Module, name: str, where: Location | None) -> None:
    found = module.defined.get(name)
    if found is None:
        functions = [known for known, statement in module.defined.items() if isinstance(statement, ast.FunctionDef)]
        raise RequestError(
            f"there is no function `{name}` at the top level of `{module.path}`",
            where=where,
            hint=did_you_mean(name, functions) or (f"it has {_listed(functions)}" if functions else None),
        )
    if not isinstance(found, ast.FunctionDef):
        raise RequestError(
            f"`{name}` is {_KINDS[type(found)]}, not a function defined with `def` in `{module.path}`",
            where=where,
            notes=[f"{module.path}:{found.lineno} binds `{name}`"],
            hint="name a `def` at the top level of the file that holds it",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:8]) + (", ..." if len(names) > 8 else "")
