"""What is made from the corpora: a sample to train the tokenizer on, the held-out set, and questions about it."""

import hashlib
import random
from itertools import permutations

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
    """Multiple choice: how does this text go on? The answers differ in the order of three neighbouring words."""
    context, length = ctx.params["context_words"], ctx.params["words"]
    candidates = []
    for document in read_documents(ctx.inputs["corpus"] / "held_out.jsonl"):
        words = document["text"].split()
        for begin in range(0, len(words) - context - length + 1, context + length):
            middle = begin + context
            true = words[middle : middle + length]
            if len(set(true)) == length:  # else two answers could be one
                candidates.append((words[begin:middle], true))
    chance = random.Random(0)
    chance.shuffle(candidates)
    with open(ctx.output_path / "test.jsonl", "w", encoding="utf-8") as out:
        for index, (start, true) in enumerate(candidates[: ctx.params["questions"]]):
            at = chance.randrange(1, length - 3)
            others = sorted(permutations(true[at : at + 3]))
            others.remove(tuple(true[at : at + 3]))
            choices = [" ".join([*true[:at], *order, *true[at + 3 :]]) for order in chance.sample(others, 3)]
            answer = index % 4
            choices.insert(answer, " ".join(true))
            write_document(out, {"context": " ".join(start), "choices": choices, "answer": answer})


def _first(documents, size):
    """Documents until they hold `size` bytes, in an order that adding one hardly changes."""
    taken = 0
    for document in sorted(documents, key=lambda document: hashlib.sha256(document["text"].encode()).digest()):
        if taken >= size:
            return
        taken += len(document["text"].encode())
        yield document
