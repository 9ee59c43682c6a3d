"""Trains a byte-level BPE tokenizer on documents and saves it as a Hugging Face tokenizer folder.

Equal documents and parameters give equal bytes: ties between pairs are broken by the ids of their parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from marin_cas.tools.documents import find_files, read_texts
from marin_cas.worker.context import ToolContext, ToolError

REVISION = 1


def run(ctx: ToolContext) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    params = ctx.params
    files = find_files(ctx.inputs["documents"], params["glob"])
    special = list(dict.fromkeys(t for t in (params["eos"], params["bos"], *params["special_tokens"]) if t))

    def texts() -> Iterator[str]:
        for done, file in enumerate(files):
            ctx.progress(done, len(files), "files")
            yield from read_texts(file, params["text_key"])
        ctx.progress(len(files), len(files), "files")

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=params["vocab_size"],
        min_frequency=params["min_frequency"],
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    trained = tokenizer.get_vocab_size()
    if trained < params["vocab_size"]:
        raise ToolError(
            f"the documents give only {trained} tokens, not `vocab_size = {params['vocab_size']}`",
            hint=f"more text, `min_frequency` below {params['min_frequency']}, or `vocab_size = {trained}`",
        )
    named = {name: params[key] for name, key in (("eos_token", "eos"), ("bos_token", "bos")) if params[key]}
    extra = {"extra_special_tokens": params["special_tokens"]} if params["special_tokens"] else {}
    # Only now: it takes seconds to import, and what is wrong with a document is said before.
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
    from transformers import PreTrainedTokenizerFast

    saved = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **named, **extra)
    saved.save_pretrained(str(ctx.outputs["tokenizer"]))
