"""A query's answer as text: one function for each format; every line ends in a newline, no nodes give no lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from marin_cas.errors import RequestError, did_you_mean
from marin_cas.graph.target import Node, SourceFile
from marin_cas.label import Label
from marin_cas.query.query import QueryResult
from marin_cas.query.starlark import written


def render(result: QueryResult, format: str = "label") -> str:
    """Raises RequestError for an unknown format."""
    if format not in FORMATS:
        hint = did_you_mean(format, FORMATS) or f"formats: {', '.join(f'`{name}`' for name in FORMATS)}"
        raise RequestError(f"no query output `{format}`", hint=hint)
    return FORMATS[format](result)


def kind_of(node: Node) -> str:
    """`tokenized rule` or `source file`."""
    return "source file" if isinstance(node, SourceFile) else f"{node.kind} rule"


def _lines(line: Callable[[Node], str]) -> Callable[[QueryResult], str]:
    return lambda result: "".join(line(node) + "\n" for node in result.nodes)


def _location(node: Node) -> str:
    if not isinstance(node, SourceFile):
        return str(node.location)
    path = f"@{node.label.repo}//{node.path}" if node.label.repo else node.path
    return f"{path}:1" if node.kind == "file" else path


def plain(value: Any) -> Any:
    """An attribute's value as JSON has it: labels as text."""
    if isinstance(value, Label):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def record(node: Node) -> dict[str, Any]:
    """One node as data. `kind` is the rule's name, or `source file`."""
    if isinstance(node, SourceFile):
        return {"label": str(node.label), "kind": "source file", "path": node.path, "folder": node.kind == "tree"}
    return {
        "label": str(node.label),
        "kind": node.kind,
        "location": {"file": node.location.file, "line": node.location.line},
        "macros": list(node.chain),
        "ref": node.ref,
        "visibility": list(node.visibility),
        "attributes": {"name": node.label.name, **plain(node.attrs)},
        "deps": list(dict.fromkeys(str(edge.label) for edge in node.deps)),
    }


def _json(result: QueryResult) -> str:
    return json.dumps([record(node) for node in result.nodes], indent=2, ensure_ascii=False) + "\n"


def _build(result: QueryResult) -> str:
    return "\n".join(written(node) for node in result.nodes if not isinstance(node, SourceFile))


def _dot(result: QueryResult) -> str:
    lines = ["digraph marin {", "  node [shape=box];"]
    lines += [
        f"  {_dot_name(node.label)}{' [style=dashed]' if isinstance(node, SourceFile) else ''};"
        for node in result.nodes
    ]
    lines += [f"  {_dot_name(source)} -> {_dot_name(target)};" for source, target in result.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _dot_name(label: Label) -> str:
    return '"' + str(label).replace("\\", "\\\\").replace('"', '\\"') + '"'


FORMATS: Mapping[str, Callable[[QueryResult], str]] = {
    "label": _lines(lambda node: str(node.label)),
    "label_kind": _lines(lambda node: f"{kind_of(node)} {node.label}"),
    "location": _lines(lambda node: f"{_location(node)}: {kind_of(node)} {node.label}"),
    "build": _build,
    "json": _json,
    "jsonl": _lines(lambda node: json.dumps(record(node), ensure_ascii=False)),
    "graph": _dot,
}
