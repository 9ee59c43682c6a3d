"""What is made from the corpora: a sample to train the tokenizer on, the held-out set, and two tasks to score."""

import hashlib
import json
import math
import random
from collections import Counter


def sample(ctx):
    """Training documents of all inputs, of each until they hold `bytes`."""
    with open(ctx.output_path / "sample.jsonl", "w", encoding="utf-8") as out:
        for name in sorted(ctx.inputs):
            for document in _first(_read(ctx.inputs[name] / "train.jsonl"), ctx.params["bytes"]):
                _write(out, {"text": document["text"]})


def held_out(ctx):
    """Held-out documents of all inputs, of each until they hold `bytes`."""
    with open(ctx.output_path / "held_out.jsonl", "w", encoding="utf-8") as out:
        for name in sorted(ctx.inputs):
            for document in _first(_read(ctx.inputs[name] / "held_out.jsonl"), ctx.params["bytes"]):
                _write(out, {"corpus": name, "text": document["text"]})


def continuations(ctx):
    """Multiple choice: how does this text go on? The three wrong answers are how other held-out texts go on."""
    context, length, count = ctx.params["context_words"], ctx.params["words"], ctx.params["questions"]
    candidates = []
    for number, document in enumerate(_read(ctx.inputs["corpus"] / "held_out.jsonl")):
        words = document["text"].split()
        for begin in range(0, len(words) - context - length + 1, context + length):
            middle = begin + context
            candidates.append((number, " ".join(words[begin:middle]), " ".join(words[middle : middle + length])))
    chance = random.Random(0)
    chance.shuffle(candidates)
    with open(ctx.output_path / "test.jsonl", "w", encoding="utf-8") as out:
        for index, (number, start, true) in enumerate(candidates[:count]):
            choices = chance.sample([text for other, _, text in candidates if other != number], 3)
            answer = index % 4
            choices.insert(answer, true)
            _write(out, {"context": start, "choices": choices, "answer": answer})


def windows(ctx):
    """Held-out text in windows, each with its number of tokens, and the entropy that a unigram model would reach."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ctx.inputs["tokenizer"] / "tokenizer.json"))
    entropy = _unigram_entropy(ctx, tokenizer)
    with open(ctx.output_path / "test.jsonl", "w", encoding="utf-8") as out:
        for document in _read(ctx.inputs["held_out"] / "held_out.jsonl")[: ctx.params["documents"]]:
            encoded = tokenizer.encode(document["text"], add_special_tokens=False)
            if len(encoded.ids) < 16:
                continue
            # Cut the text at token borders: a score is of the text after the context, given the context.
            begin, end = encoded.offsets[4][0], encoded.offsets[min(len(encoded.ids), ctx.params["tokens"]) - 1][1]
            start, rest = document["text"][:begin], document["text"][begin:end]
            tokens = len(_ids(tokenizer, start + rest)) - len(_ids(tokenizer, start))
            _write(out, {"context": start, "text": rest, "tokens": tokens, "unigram_entropy": entropy})


def _unigram_entropy(ctx, tokenizer):
    """Nats a token of the training mixture, each token drawn by itself."""
    mixed = Counter()
    for name, weight in sorted(ctx.params["weights"].items()):
        counts = Counter()
        texts = [document["text"] for document in _read(ctx.inputs[name] / "train.jsonl")]
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


def _read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _first(documents, size):
    """Documents until they hold `size` bytes, in an order that adding one hardly changes."""
    taken = 0
    for document in sorted(documents, key=lambda document: hashlib.sha256(document["text"].encode()).digest()):
        if taken >= size:
            return
        taken += len(document["text"].encode())
        yield document


def _write(out, document):
    out.write(json.dumps(document, ensure_ascii=False) + "\n")
