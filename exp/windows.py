"""Held-out text to measure a model's loss on, and what a unigram model would reach."""

import math
from collections import Counter

from tokenizers import Tokenizer

from exp.documents import read_documents, write_document


def windows(ctx):
    """Held-out text in windows, each with its number of tokens, and the entropy that a unigram model would reach."""
    tokenizer = Tokenizer.from_file(str(ctx.inputs["tokenizer"] / "tokenizer.json"))
    entropy = _unigram_entropy(ctx, tokenizer)
    with open(ctx.output_path / "test.jsonl", "w", encoding="utf-8") as out:
        for document in read_documents(ctx.inputs["held_out"] / "held_out.jsonl")[: ctx.params["documents"]]:
            encoded = tokenizer.encode(document["text"], add_special_tokens=False)
            if len(encoded.ids) < 16:
                continue
            # Cut the text at token borders: a score is of the text after the context, given the context.
            begin, end = encoded.offsets[4][0], encoded.offsets[min(len(encoded.ids), ctx.params["tokens"]) - 1][1]
            start, rest = document["text"][:begin], document["text"][begin:end]
            tokens = len(_ids(tokenizer, start + rest)) - len(_ids(tokenizer, start))
            write_document(out, {"context": start, "text": rest, "tokens": tokens, "unigram_entropy": entropy})


def _unigram_entropy(ctx, tokenizer):
    """Nats a token of the training mixture, each token drawn by itself."""
    mixed = Counter()
    for name, weight in sorted(ctx.params["weights"].items()):
        counts = Counter()
        texts = [document["text"] for document in read_documents(ctx.inputs[name] / "train.jsonl")]
        for start in range(0, len(texts), 1000):
            for encoded in tokenizer.encode_batch(texts[start : start + 1000], add_special_tokens=False):
                counts.update(encoded.ids)
            ctx.progress(start, len(texts), f"{name} documents")
        total = sum(counts.values())
        for token, count in counts.items():
            mixed[token] += weight * count / total
    return -math.fsum(share * math.log(share) for _, share in sorted(mixed.items()))


def _ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids
