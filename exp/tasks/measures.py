"""How `held_out_text` counts: all tokens weigh the same, whichever text they are in."""


def per_token(doc, results):
    ((log_likelihood, _),) = results
    return {"loss": (-log_likelihood, doc["tokens"]), "unigram_entropy": doc["unigram_entropy"]}


def mean_per_token(items):
    return sum(nats for nats, _ in items) / sum(tokens for _, tokens in items)


def mean(values):
    # Not lm-eval's, which would give it a standard error.
    return sum(values) / len(values)
