"""Query text to tokens, as Bazel cuts it: `-` is an operator only at a token's start, so `a-b` is one word."""

from __future__ import annotations

import re
from dataclasses import dataclass

from marin_cas.query.syntax import query_error

_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[\w*/@.:$~\[\]][\w*/@.:$~\[\]-]*")
_MARKS = frozenset("(),=+-^")
KEYWORDS = {"let", "in", "set", "union", "except", "intersect"}
OPERATORS = {"+": "+", "-": "-", "^": "^", "union": "+", "except": "-", "intersect": "^"}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is `word`, `quoted`, `mark` or `end`."""

    kind: str
    text: str
    start: int

    @property
    def operator(self) -> str | None:
        return OPERATORS.get(self.text) if self.kind in ("word", "mark") else None

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.text == mark

    def is_keyword(self, word: str) -> bool:
        return self.kind == "word" and self.text == word

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f"`{self.text}`"


def tokens(expression: str) -> list[Token]:
    """The tokens, the last one of kind `end`. Raises RequestError with a caret."""
    found: list[Token] = []
    position = 0
    while position < len(expression):
        char = expression[position]
        if space := _SPACE.match(expression, position):
            position = space.end()
        elif char in "\"'":
            close = expression.find(char, position + 1)
            if close < 0:
                raise query_error(expression, position, f"the quote {char} is never closed")
            found.append(Token("quoted", expression[position + 1 : close], position))
            position = close + 1
        elif word := _WORD.match(expression, position):
            found.append(Token("word", word.group(), position))
            position = word.end()
        elif char in _MARKS:
            found.append(Token("mark", char, position))
            position += 1
        else:
            hint = "put names and regular expressions with such characters in quotes"
            raise query_error(expression, position, f"`{char}` has no meaning here", hint)
    found.append(Token("end", "", len(expression)))
    return found
