"""Corpora without a network: text that CPython itself ships.

Each function writes `train.jsonl` and `held_out.jsonl`. A document is held out by a digest of its text, so adding or
changing one moves no other.
"""

import ast
import hashlib
import os
import sysconfig
from itertools import pairwise
from pathlib import Path

from exp.documents import write_document

# Left out of the sources: tables, generated files, what differs between installations, and other people's packages.
_SKIPPED_FOLDERS = {"__pycache__", "encodings", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tests"}
_SKIPPED_PREFIXES = ("_sysconfigdata", "sitecustomize", "usercustomize")


def reference(ctx):
    """Prose: the topics of the language reference, and the docstrings of the standard library."""
    from pydoc_data.topics import topics

    documents = [(f"topic/{name}", topics[name]) for name in sorted(topics)]
    for path in _stdlib_files(ctx.params["max_file_bytes"]):
        name = path.relative_to(_stdlib()).as_posix()
        documents += [(f"docstring/{name}#{owner}", text) for owner, text in _docstrings(path)]
    _write(ctx, _paragraphs(documents, ctx.params["words"]))


def library(ctx):
    """Code: the sources of the standard library, split at the top level of a file."""
    documents = []
    for path in _stdlib_files(ctx.params["max_file_bytes"]):
        name = path.relative_to(_stdlib()).as_posix()
        documents += [(f"{name}#{line}", text) for line, text in _definitions(path)]
    _write(ctx, documents)


def _stdlib():
    return Path(sysconfig.get_path("stdlib"))


def _stdlib_files(max_bytes):
    found = []
    for folder, folders, files in os.walk(_stdlib()):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        for name in files:
            path = Path(folder, name)
            if name.endswith(".py") and not name.startswith(_SKIPPED_PREFIXES) and path.stat().st_size <= max_bytes:
                found.append(path)
    return sorted(found)


def _docstrings(path):
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, owners) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", ""), text


def _definitions(path):
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    starts = [1, *(node.lineno for node in ast.parse(source).body if hasattr(node, "body")), len(lines) + 1]
    for start, end in pairwise(starts):
        text = "".join(lines[start - 1 : end - 1]).strip()
        if text:
            yield start, text


def _paragraphs(documents, words):
    """Documents of at least `words` words, cut at blank lines; short ones are joined with what follows in theirs."""
    for source, text in documents:
        pieces, length = [], 0
        for paragraph in text.split("\n\n"):
            pieces.append(paragraph.strip("\n"))
            length += len(paragraph.split())
            if length >= words:
                yield source, "\n\n".join(pieces)
                pieces, length = [], 0
        if length >= words // 4:
            yield source, "\n\n".join(pieces)


def _write(ctx, documents):
    seen, count = set(), 0
    with (
        open(ctx.output_path / "train.jsonl", "w", encoding="utf-8") as train,
        open(ctx.output_path / "held_out.jsonl", "w", encoding="utf-8") as held_out,
    ):
        for source, text in documents:
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
            if digest in seen or not _is_text(text):
                continue
            seen.add(digest)
            file = held_out if digest[0] % ctx.params["one_in"] == 0 else train
            write_document(file, {"source": source, "text": text})
            count += 1
            ctx.progress(count, None, "documents")


def _is_text(text):
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
