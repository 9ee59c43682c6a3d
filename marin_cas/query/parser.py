"""Query text to an expression, by Bazel's grammar: all operators have one precedence and go from left to right.

Nesting is limited, since parser and evaluator follow it by recursion; a chain of operators nests nothing.
"""

from __future__ import annotations

from marin_cas.errors import RequestError, did_you_mean
from marin_cas.query.lexer import KEYWORDS, Token, tokens
from marin_cas.query.syntax import Call, Chain, Expression, Let, SetOf, Variable, Word, query_error
from marin_cas.query.verb import EXPRESSION, NUMBER, Verb
from marin_cas.query.verbs import VERBS

_DEEPEST = 100


def parse(expression: str) -> Expression:
    """Raises RequestError with a caret below the place that is wrong."""
    return _Parser(expression).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._next = 0
        self._depth = 0
        self._bound: list[str] = []

    def whole(self) -> Expression:
        if self._peek().kind == "end":
            raise self._error(self._peek(), "the query is empty", "try `deps(//...)`")
        expression = self._expression()
        token = self._peek()
        if token.kind != "end":
            hint = None
            if token.kind in ("word", "quoted"):
                hint = "join two expressions with `+`, `-` or `^`; a name with spaces needs quotes"
            elif token.is_mark("="):
                hint = "a name with such characters needs quotes"
            raise self._error(token, f"{token} was not expected here", hint)
        return expression

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _error(self, token: Token, message: str, hint: str | None = None) -> RequestError:
        return query_error(self._text, token.start, message, hint)

    def _mark(self, mark: str, after: str) -> Token:
        token = self._take()
        if not token.is_mark(mark):
            raise self._error(token, f"expected `{mark}` {after}, found {token}")
        return token

    def _expression(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(self._peek(), f"the query is nested deeper than {_DEEPEST}")
        first = self._term()
        rest = []
        while (operator := self._peek().operator) is not None:
            self._take()
            rest.append((operator, self._term()))
        self._depth -= 1
        return Chain(first, tuple(rest)) if rest else first

    def _term(self) -> Expression:
        token = self._take()
        if token.is_mark("("):
            inner = self._expression()
            self._mark(")", "to close the parenthesis")
            return inner
        if token.kind == "quoted":
            return self._pattern(token)
        if token.kind != "word":
            hint = "write `x - y`: a difference needs something before it" if token.is_mark("-") else None
            raise self._error(token, f"expected a target pattern or a function, found {token}", hint)
        if token.text == "let":
            return self._let()
        if token.text.startswith("$"):
            return self._variable(token)
        if self._peek().is_mark("("):
            return self._set() if token.text == "set" else self._call(token)
        if token.text in KEYWORDS:
            raise self._error(
                token, f"`{token.text}` is a word of the language", f'a target of that name: "{token.text}"'
            )
        if token.text in VERBS:
            return self._word_or_verb(token)
        return self._pattern(token)

    def _word_or_verb(self, token: Token) -> Expression:
        """A verb's name without a parenthesis may be a target; followed by a word it is a call gone wrong."""
        if self._peek().kind in ("word", "quoted") and not self._peek().operator and not self._peek().is_keyword("in"):
            verb = VERBS[token.text]
            raise self._error(self._peek(), f"`{token.text}` needs parentheses", f"write `{verb.usage}`")
        return self._pattern(token)

    def _pattern(self, token: Token) -> Word:
        if not token.text:
            raise self._error(token, "a target pattern cannot be empty")
        return Word(token.text, token.start, token.kind == "quoted")

    def _let(self) -> Let:
        name = self._take()
        if name.kind != "word" or not name.text.isidentifier() or name.text in KEYWORDS:
            raise self._error(name, f"expected a name after `let`, found {name}", "write `let v = x in deps($v)`")
        self._mark("=", f"after `let {name.text}`")
        value = self._expression()
        token = self._take()
        if not token.is_keyword("in"):
            raise self._error(token, f"expected `in` after the value of `{name.text}`, found {token}")
        self._bound.append(name.text)
        body = self._expression()
        self._bound.pop()
        return Let(name.text, value, body)

    def _variable(self, token: Token) -> Variable:
        name = token.text[1:]
        if name not in self._bound:
            close = did_you_mean(token.text, [f"${bound}" for bound in self._bound])
            raise self._error(
                token, f"no `let` gives `{token.text}` a value", close or f"write `let {name or 'v'} = ...`"
            )
        return Variable(name, token.start)

    def _set(self) -> SetOf:
        self._mark("(", "after `set`")
        words: list[Word] = []
        while not (token := self._take()).is_mark(")"):
            if token.kind not in ("word", "quoted"):
                hint = "the patterns in a set are separated by spaces" if token.is_mark(",") else None
                raise self._error(token, f"expected a target pattern or `)`, found {token}", hint)
            words.append(self._pattern(token))
        return SetOf(tuple(words))

    def _call(self, token: Token) -> Call:
        verb = VERBS.get(token.text)
        if verb is None:
            hint = did_you_mean(token.text, [*VERBS, "set"]) or f"functions: {', '.join(f'`{name}`' for name in VERBS)}"
            raise self._error(token, f"no query function `{token.text}`", hint)
        self._mark("(", f"after `{verb.name}`")
        least = len(verb.parameters) - verb.optional
        arguments: list[Expression] = []
        for index, (name, kind) in enumerate(verb.parameters):
            if index:
                if index >= least and self._peek().is_mark(")"):
                    break
                found = self._peek()
                if not found.is_mark(","):
                    due = f"`)` to close `{verb.name}(`" if index >= least else f"`,` and `{name}`"
                    raise self._error(found, f"expected {due}, found {found}", f"write `{verb.usage}`")
                self._take()
            arguments.append(self._expression() if kind == EXPRESSION else self._word(verb, name, kind))
        close = self._take()
        if not close.is_mark(")"):
            message = f"expected `)` to close `{verb.name}(`, found {close}"
            raise self._error(close, message, f"write `{verb.usage}`")
        return Call(verb.name, tuple(arguments), token.start)

    def _word(self, verb: Verb, name: str, kind: str) -> Word:
        token = self._take()
        if token.kind not in ("word", "quoted"):
            quotes = kind != NUMBER and token.kind == "mark"
            hint = "a regular expression with such characters needs quotes" if quotes else None
            raise self._error(token, f"expected `{name}` of `{verb.usage}`, found {token}", hint)
        if kind == NUMBER and not (token.text.isascii() and token.text.isdigit()):
            raise self._error(token, f"`{name}` of `{verb.usage}` is a whole number, not {token}")
        return Word(token.text, token.start, token.kind == "quoted")
