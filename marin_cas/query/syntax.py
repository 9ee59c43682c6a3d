"""What a query expression is made of, and the error that points into one with a caret."""

from __future__ import annotations

from dataclasses import dataclass

from marin_cas.errors import RequestError

_WIDEST = 100


@dataclass(frozen=True, slots=True)
class Word:
    """A target pattern, a regular expression, an attribute's name or a number: its place says which."""

    text: str
    start: int
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """`$v`, bound by a `let` around it."""

    name: str
    start: int


@dataclass(frozen=True, slots=True)
class SetOf:
    """`set(a b c)`: the union of patterns."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A verb and its arguments: an expression or a Word for each parameter."""

    verb: str
    arguments: tuple[Expression, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Chain:
    """`first op x op y ...`, from left to right; operators are `+`, `-` and `^`. Flat: long ones nest nothing."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Let:
    """`let name = value in body`."""

    name: str
    value: Expression
    body: Expression


type Expression = Word | Variable | SetOf | Call | Chain | Let


def query_error(expression: str, position: int, message: str, hint: str | None = None) -> RequestError:
    """An error that shows the expression's line with a caret below `position`."""
    begin = expression.rfind("\n", 0, position) + 1
    end = expression.find("\n", begin)
    line = expression[begin : end if end >= 0 else len(expression)].replace("\t", " ")
    column = position - begin
    if len(line) > _WIDEST and column > _WIDEST // 2:
        cut = column - _WIDEST // 2
        line, column = "..." + line[cut:], column - cut + 3
    if len(line) > _WIDEST:
        line = line[:_WIDEST] + "..."
    return RequestError(message, where="query", notes=(line, " " * column + "^"), hint=hint)
