"""Tokenizes documents into a Levanter cache, byte for byte the same wherever and whenever it runs.

The tree holds `train/` or `validation/` as Levanter reads them, and `stats.json`. Files are read in byte order of
their paths; no path, time or batch size gets into the cache, and its ledger names the tokenizer by its files' digest.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from marin_cas.digest import Digest
from marin_cas.encoding import encode
from marin_cas.tools.documents import DocumentFile, find_files, read_texts
from marin_cas.worker.context import ToolContext, ToolError

REVISION = 1

# One fixed name: Levanter records the shard's in the ledger, and its own writers put a path there.
SHARD = "documents"
_BATCH_DOCUMENTS = 256


def run(ctx: ToolContext) -> None:
    files = find_files(ctx.inputs["documents"], ctx.params["glob"])
    check_tokenizer_folder(ctx.inputs["tokenizer"])  # before seconds of imports
    tokenizer_id = tokenizer_identity(ctx.inputs["tokenizer"])
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # Levanter imports jax; an accelerator is none of its business here
    import numpy as np
    from levanter.data.text.formats import TextLmDatasetFormat
    from levanter.store.cache import CacheMetadata, SerialCacheWriter

    tokenizer = load_tokenizer_folder(ctx.inputs["tokenizer"])
    text_key, limit = ctx.params["text_key"], ctx.params["sample_count"]
    encode_batch = TextLmDatasetFormat(text_key="text").build_preprocessor(
        tokenizer, enforce_eos=True, enforce_bos=True
    )
    metadata = CacheMetadata(
        {
            "tokenizer": tokenizer_id,
            "vocab_size": tokenizer.vocab_size,
            "append_bos": tokenizer.bos_token_id is not None,
            "append_eos": tokenizer.eos_token_id is not None,
        }
    )
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    per_file: list[dict[str, Any]] = []
    # An array and not a list: Levanter takes the type of the exemplar, and a list would make it int64.
    exemplar = {"input_ids": np.zeros((0,), dtype=np.int32)}
    folder = ctx.outputs["cache"] / ctx.params["split"]
    with SerialCacheWriter(str(folder), exemplar, metadata=metadata, shard_name=SHARD) as writer:
        for file in files:
            documents = tokens = 0
            for batch in _batches(file, text_key, limit):
                rows = [
                    {"input_ids": np.asarray(row["input_ids"], dtype=np.int32)}
                    for row in encode_batch([{"text": text} for text in batch])
                ]
                writer.write_batch(rows)
                documents += len(rows)
                for row in rows:
                    tokens += len(row["input_ids"])
                    counts += np.bincount(row["input_ids"], minlength=len(counts))
                ctx.progress(len(per_file), len(files), "files", tokens=int(counts.sum()))
            per_file.append({"path": file.name, "documents": documents, "tokens": tokens})
    ctx.progress(len(files), len(files), "files", tokens=int(counts.sum()))
    stats = {
        "split": ctx.params["split"],
        "tokenizer": tokenizer_id,
        "vocab_size": len(tokenizer),
        "documents": sum(entry["documents"] for entry in per_file),
        "tokens": int(counts.sum()),
        "unigram_entropy": unigram_entropy(counts.tolist()),
        "files": per_file,
    }
    text = json.dumps(stats, indent=1, ensure_ascii=False, sort_keys=True)
    (ctx.outputs["cache"] / "stats.json").write_text(text + "\n", encoding="utf-8")


def _batches(file: DocumentFile, text_key: str, limit: int | None):
    batch: list[str] = []
    for text in read_texts(file, text_key, limit):
        batch.append(text)
        if len(batch) == _BATCH_DOCUMENTS:
            yield batch
            batch = []
    if batch:
        yield batch


def unigram_entropy(counts: list[int]) -> float:
    """Nats a token when each is drawn by itself with its frequency: what a model must beat to have learned anything."""
    total = sum(counts)
    return -math.fsum(n / total * math.log(n / total) for n in counts if n) if total else 0.0


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
