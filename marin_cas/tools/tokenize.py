"""Tokenizes documents into a Levanter cache, byte for byte the same wherever and whenever it runs.

The tree holds `train/` or `validation/` as Levanter reads them, and `stats.json`. Files are read in byte order of
their paths; no path, time or batch size gets into the cache, and its ledger names the tokenizer by its files' digest.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from marin_cas.tools.documents import DocumentFile, Piece, find_files, read_pieces
from marin_cas.tools.encoder import Crew, Encoded, crew
from marin_cas.tools.tokenizer_folder import check_tokenizer_folder, load_tokenizer_folder, tokenizer_identity
from marin_cas.worker.context import ToolContext, ToolError

REVISION = 1

# One fixed name: Levanter records the shard's in the ledger, and its own writers put a path there.
SHARD = "documents"
# A batch rewrites the file of 134 million tokens that it adds to, so batches are large.
_WRITE_TOKENS = 1 << 22
_CHECKED = 8
TRAIN = "train"
_HELD_OUT = re.compile(r"(?<![A-Za-z])test(?![A-Za-z])|validation")


def run(ctx: ToolContext) -> None:
    files = find_files(ctx.inputs["documents"], ctx.params["glob"])
    if ctx.params["split"] == TRAIN and not ctx.settings.get("allow_test_in_train", True):
        _refuse_test_files(files)
    check_tokenizer_folder(ctx.inputs["tokenizer"])  # before seconds of imports
    text_key = ctx.params["text_key"]
    with crew(ctx.inputs["tokenizer"], text_key, ctx.settings.get("processes", 1)) as processes:
        _write(ctx, files, processes)


def _refuse_test_files(files: list[DocumentFile]) -> None:
    for file in files:
        if _HELD_OUT.search(file.name):
            raise ToolError(
                f"`{file.name}` looks like a test or a validation set, and this is a training set",
                hint="narrow the pattern, or say `allow_test_in_train = True`",
            )


def _write(ctx: ToolContext, files: list[DocumentFile], processes: Crew) -> None:
    tokenizer_id = tokenizer_identity(ctx.inputs["tokenizer"])
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # Levanter imports jax; an accelerator is none of its business here
    import numpy as np
    from levanter.store.cache import CacheMetadata, SerialCacheWriter

    tokenizer = load_tokenizer_folder(ctx.inputs["tokenizer"])
    metadata = CacheMetadata(
        {
            "tokenizer": tokenizer_id,
            "vocab_size": tokenizer.vocab_size,
            "append_bos": tokenizer.bos_token_id is not None,
            "append_eos": tokenizer.eos_token_id is not None,
        }
    )
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    documents, tokens = Counter[str](), Counter[str]()
    # An array and not a list: Levanter takes the type of the exemplar, and a list would make it int64.
    exemplar = {"input_ids": np.zeros((0,), dtype=np.int32)}
    folder = ctx.outputs["cache"] / ctx.params["split"]
    with SerialCacheWriter(str(folder), exemplar, metadata=metadata, shard_name=SHARD) as writer:
        waiting: list[np.ndarray] = []
        size = 0
        for piece, encoded in processes.encode(_pieces(ctx, files)):
            if not documents:
                _check_first(tokenizer, piece.texts(ctx.params["text_key"]), encoded)
            waiting += encoded.rows()
            size += len(encoded.ids)
            counts += np.bincount(encoded.ids, minlength=len(counts))
            documents[piece.file] += len(encoded.lengths)
            tokens[piece.file] += len(encoded.ids)
            if size >= _WRITE_TOKENS:
                writer.write_batch([{"input_ids": row} for row in waiting])
                waiting, size = [], 0
            ctx.progress(len(documents) - 1, len(files), "files", tokens=tokens.total())
        if waiting:
            writer.write_batch([{"input_ids": row} for row in waiting])
    ctx.progress(len(files), len(files), "files", tokens=tokens.total())
    stats = {
        "split": ctx.params["split"],
        "tokenizer": tokenizer_id,
        "vocab_size": len(tokenizer),
        "documents": documents.total(),
        "tokens": tokens.total(),
        "unigram_entropy": unigram_entropy(counts.tolist()),
        "files": [{"path": f.name, "documents": documents[f.name], "tokens": tokens[f.name]} for f in files],
    }
    text = json.dumps(stats, indent=1, ensure_ascii=False, sort_keys=True)
    (ctx.outputs["cache"] / "stats.json").write_text(text + "\n", encoding="utf-8")


def _pieces(ctx: ToolContext, files: list[DocumentFile]) -> Iterator[Piece]:
    for file in files:
        yield from read_pieces(file, ctx.params["text_key"], ctx.params["sample_count"])


def _check_first(tokenizer: Any, texts: list[str], encoded: Encoded) -> None:
    """ToolError when Levanter itself would make other ids of the first documents than we did."""
    from levanter.data.text.formats import TextLmDatasetFormat

    levanters = TextLmDatasetFormat(text_key="text").build_preprocessor(tokenizer, enforce_eos=True, enforce_bos=True)
    first = [{"text": text} for text in texts[:_CHECKED]]
    if [row["input_ids"] for row in levanters(first)] != [row.tolist() for row in encoded.rows()[:_CHECKED]]:
        raise ToolError(
            "this Levanter makes other tokens of the first documents than marin-cas does",
            hint="lock the Levanter that this marin-cas is made for",
        )


def unigram_entropy(counts: list[int]) -> float:
    """Nats a token when each is drawn by itself with its frequency: what a model must beat to have learned anything."""
    total = sum(counts)
    return -math.fsum(n / total * math.log(n / total) for n in counts if n) if total else 0.0
