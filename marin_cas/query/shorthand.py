"""The command line's words to a query expression: `deps //exp:x 2` is `deps(//exp:x, 2)`."""

from __future__ import annotations

from collections.abc import Sequence

from marin_cas.query.lexer import OPERATORS
from marin_cas.query.verb import EXPRESSION
from marin_cas.query.verbs import VERBS


def shorthand(words: Sequence[str]) -> str:
    """One word is the expression itself. A verb's name and its arguments are a call; `x + y` among them is one.

    Other words are joined by spaces, as if they had been quoted together.
    """
    if len(words) < 2 or words[0] not in VERBS or words[1].startswith("(") or words[1] in OPERATORS:
        return " ".join(words)
    arguments: list[str] = []
    joining = False
    for word in words[1:]:
        if word in OPERATORS and arguments:
            arguments[-1] += f" {word}"
            joining = True
        elif joining:
            arguments[-1] += f" {word}"
            joining = False
        else:
            arguments.append(word)
    kinds = [kind for _, kind in VERBS[words[0]].parameters]
    kinds += [EXPRESSION] * (len(arguments) - len(kinds))
    written = [word if kind == EXPRESSION else _quoted(word) for word, kind in zip(arguments, kinds, strict=False)]
    return f"{words[0]}({', '.join(written)})"


def _quoted(word: str) -> str:
    if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'":
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'
