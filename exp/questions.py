"""What is made from the corpora: a sample to train the tokenizer on, the held-out set, and questions about it."""

import hashlib
import random

from exp.documents import read_documents, write_document


def sample(ctx):
    """Training documents of all inputs, of each until they hold `bytes`."""
    with open(ctx.output_path / "sample.jsonl", "w", encoding="utf-8") as out:
        for name in sorted(ctx.inputs):
            for document in _first(read_documents(ctx.inputs[name] / "train.jsonl"), ctx.params["bytes"]):
                write_document(out, {"text": document["text"]})


def held_out(ctx):
    """Held-out documents of all inputs, of each until they hold `bytes`."""
    with open(ctx.output_path / "held_out.jsonl", "w", encoding="utf-8") as out:
        for name in sorted(ctx.inputs):
            for document in _first(read_documents(ctx.inputs[name] / "held_out.jsonl"), ctx.params["bytes"]):
                write_document(out, {"corpus": name, "text": document["text"]})


def continuations(ctx):
    """Multiple choice: how does this text go on? The three wrong answers are how other held-out texts go on."""
    context, length, count = ctx.params["context_words"], ctx.params["words"], ctx.params["questions"]
    candidates = []
    for number, document in enumerate(read_documents(ctx.inputs["corpus"] / "held_out.jsonl")):
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
            write_document(out, {"context": start, "choices": choices, "answer": answer})


def _first(documents, size):
    """Documents until they hold `size` bytes, in an order that adding one hardly changes."""
    taken = 0
    for document in sorted(documents, key=lambda document: hashlib.sha256(document["text"].encode()).digest()):
        if taken >= size:
            return
        taken += len(document["text"].encode())
        yield document
