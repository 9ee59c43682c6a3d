"""The engine's messages in users' words: what is wrong, and one next step where there is one."""

from __future__ import annotations

import ast
import re
import warnings

_KEYWORDS = {
    "def": "put the function in a .bzl file and load it",
    "lambda": "put a function in a .bzl file and load it",
    "for": "use a comprehension: `[rule(...) for x in xs]`, or a macro in a .bzl file",
    "if": "use a conditional expression, or a macro in a .bzl file",
    "while": "use a comprehension over `range(...)`",
    "return": "it belongs in a function, in a .bzl file",
    "import": "use `load(...)`",
    "class": "use `struct(...)`, or a rule in a .bzl file",
}
_EXPECTED = re.compile(r", expected one of .*$", re.DOTALL)
_SUGGESTION = re.compile(r",? did you mean `([^`]+)`\?$")
_CALLEE = re.compile(r" for call to `(?:[^`]*\.)?([^`.]+)`$")
_EXTRA = re.compile(r"^Found (`[^`]+`) extra named parameter\(s\) for call to `?(?:.*\.)?(\w+)`?$")
_KEYWORD = re.compile(r"(?:keyword |^)['`](\w+)['`](?:$| is not allowed| cannot be used outside `def`)")
_UNKNOWN = re.compile(r"Variable `([^`]+)` not found")
_NO_SYMBOL = re.compile(r"Module has no symbol `([^`]+)`")
_NO_FIELD = re.compile(r"Object of type `[^`]+` has no attribute `([^`]+)`")


def unknown_name(message: str) -> str | None:
    """The name, when the message says that a name is not defined."""
    found = _UNKNOWN.match(message)
    return found[1] if found else None


def missing_symbol(message: str) -> str | None:
    """The name, when the message says that a loaded file does not define it."""
    found = _NO_SYMBOL.match(message)
    return found[1] if found else None


def missing_field(message: str) -> str | None:
    """The name, when the message says that an object has no such field."""
    found = _NO_FIELD.match(message)
    return found[1] if found else None


def overflow(message: str) -> bool:
    """True when calls went too deep."""
    return message == "Starlark call stack overflow"


def explain(message: str, *, build: bool) -> tuple[str, str | None]:
    """The message and a hint. `build` is true for a BUILD file, where less is allowed."""
    hint = None
    if message.startswith("fail: "):
        return message.removeprefix("fail: "), None
    if found := _SUGGESTION.search(message):
        message, hint = message[: found.start()], f"did you mean `{found[1]}`?"
    syntax = message.startswith("Parse error: ")
    message = _EXPECTED.sub("", message.removeprefix("Parse error: "))
    message = message.removesuffix(" here")
    keyword = _KEYWORD.search(message)
    if keyword and keyword[1] in _KEYWORDS and (build or keyword[1] in ("while", "import", "class")):
        where = "a BUILD file" if build else "Starlark"
        return f"`{keyword[1]}` is not allowed in {where}", _KEYWORDS[keyword[1]]
    if "f-strings" in message:
        return "f-strings are not allowed", 'use `"...{}".format(x)` or `"...%s" % x`'
    if message.startswith("unexpected string literal"):
        hint = "a comma may be missing before it; strings are joined with `+`"
    if overflow(message):
        return "these functions call each other without an end", "Starlark has no unbounded recursion"
    if message.startswith("Cannot import private symbol"):
        return f"{message[message.index('`') :]} is private to its file", "names with a leading `_` cannot be loaded"
    if found := _CALLEE.search(message):
        message = f"{message[: found.start()].replace('named-only ', '')} in the call of `{found[1]}`"
    if found := _EXTRA.search(message):
        return f"`{found[2]}` has no parameter {found[1]}", hint
    if "serde::serialize" in message:
        return "a function or another live object is given where a plain value is due", None
    return (f"syntax error: {message}" if syntax else message), hint


def unclosed_bracket(text: str) -> tuple[int, str] | None:
    """Line and message when a bracket or a string is never closed; the engine puts that at line 1."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        if "never closed" in error.msg or "unterminated" in error.msg:
            problem = error.msg.partition(" (detected")[0].replace("'", "`")
            return error.lineno or 0, f"syntax error: {problem}"
    except (ValueError, RecursionError, MemoryError):
        return None
    return None
