"""A tokenizer as a folder of Hugging Face's files: what it is, by content, and that it is one. Light to import."""

from __future__ import annotations

import os
from pathlib import Path

from marin_cas.digest import Digest
from marin_cas.encoding import encode
from marin_cas.worker.context import ToolError


def tokenizer_identity(folder: Path) -> str:
    """A digest of the files of a tokenizer folder, the same wherever the folder lies."""
    files = sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: os.fsencode(p.relative_to(folder)))
    return Digest.of(encode([[p.relative_to(folder).as_posix(), p.read_bytes()] for p in files])).hex


def check_tokenizer_folder(folder: Path) -> None:
    """ToolError when a file that a tokenizer folder has is not there."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if not (folder / name).is_file():
            there = ", ".join(f"`{p.name}`" for p in sorted(folder.iterdir())[:8]) or "nothing"
            raise ToolError(
                f"the input `tokenizer` is not a tokenizer folder: it has no `{name}`",
                hint=f"it holds {there}; a Hugging Face tokenizer folder has tokenizer.json and tokenizer_config.json",
            )


def load_tokenizer_folder(folder: Path):
    """Levanter's tokenizer from a folder. ToolError when the folder is not one."""
    check_tokenizer_folder(folder)
    from levanter.tokenizers import load_tokenizer

    try:
        return load_tokenizer(str(folder))
    except Exception as error:  # the libraries raise bare Exceptions for a file that does not parse
        raise ToolError(f"the input `tokenizer` is not a tokenizer folder: {error}") from None
