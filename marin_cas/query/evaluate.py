"""An expression to the set of labels it means; recursion follows the expression, which the parser keeps shallow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from marin_cas.errors import RequestError
from marin_cas.label import Label
from marin_cas.query.syntax import Call, Chain, Expression, Let, SetOf, Variable, Word, query_error
from marin_cas.query.verb import EXPRESSION, NUMBER, REGEX, Nodes
from marin_cas.query.verbs import VERBS
from marin_cas.query.world import World


def patterns(expression: Expression) -> Iterator[Word]:
    """Every target pattern in it, in the order written."""
    match expression:
        case Word():
            yield expression
        case SetOf():
            yield from expression.words
        case Call():
            parameters = VERBS[expression.verb].parameters
            for (_, kind), argument in zip(parameters, expression.arguments, strict=False):
                if kind == EXPRESSION:
                    yield from patterns(argument)
        case Chain():
            yield from patterns(expression.first)
            for _, other in expression.rest:
                yield from patterns(other)
        case Let():
            yield from patterns(expression.value)
            yield from patterns(expression.body)


def walks(expression: Expression) -> bool:
    """Whether a verb in it follows dependencies."""
    match expression:
        case Call():
            return VERBS[expression.verb].walks or any(walks(argument) for argument in expression.arguments)
        case Chain():
            return walks(expression.first) or any(walks(other) for _, other in expression.rest)
        case Let():
            return walks(expression.value) or walks(expression.body)
    return False


class Evaluator:
    """Evaluates over one world; `text` is the expression as written, for messages."""

    def __init__(self, world: World, text: str) -> None:
        self._world = world
        self._text = text

    def load(self, expression: Expression) -> None:
        """Load all that the expression names, at once."""
        self._world.require(label for word in patterns(expression) for label in self._expand(word))

    def evaluate(self, expression: Expression, bound: Mapping[str, Nodes]) -> Nodes:
        match expression:
            case Word():
                return Nodes.of(self._expand(expression))
            case Variable():
                return bound[expression.name]
            case SetOf():
                return Nodes.of(label for word in expression.words for label in self._expand(word))
            case Let():
                value = self.evaluate(expression.value, bound)
                return self.evaluate(expression.body, {**bound, expression.name: value})
            case Chain():
                result = self.evaluate(expression.first, bound)
                for operator, other in expression.rest:
                    result = _combine(operator, result, self.evaluate(other, bound))
                return result
            case Call():
                return self._call(expression, bound)

    def _call(self, call: Call, bound: Mapping[str, Nodes]) -> Nodes:
        verb = VERBS[call.verb]
        values: list[object] = []
        for (_, kind), argument in zip(verb.parameters, call.arguments, strict=False):
            if kind == EXPRESSION:
                values.append(self.evaluate(argument, bound))
            elif isinstance(argument, Word):
                values.append(self._value(kind, argument))
        return verb.answer(self._world, *values)

    def _value(self, kind: str, word: Word) -> object:
        if kind == NUMBER:
            return int(word.text)
        if kind != REGEX:
            return word.text
        try:
            return re.compile(word.text)
        except re.error as error:
            position = word.start + word.quoted + (error.pos or 0)
            message = f"`{word.text}` is not a regular expression: {error.msg}"
            raise query_error(self._text, position, message) from None

    def _expand(self, word: Word) -> tuple[Label, ...]:
        try:
            return self._world.expand(word.text)
        except RequestError as error:
            if error.where is None:
                pointed = query_error(self._text, word.start, error.message, error.hint)
                if "-//" in word.text or "-:" in word.text:
                    pointed.hint = "put spaces around `-`: it may be part of a name"
                elif word.text in VERBS and not word.quoted:
                    pointed.hint = f"write `{VERBS[word.text].usage}`"
                raise pointed from None
            raise


def _combine(operator: str, left: Nodes, right: Nodes) -> Nodes:
    if operator == "+":
        return Nodes(left.labels | right.labels, left.topological or right.topological)
    if operator == "-":
        return left.keep(left.labels - right.labels)
    return Nodes(left.labels & right.labels, left.topological or right.topological)
