"""DCLM's training data: three corpora of the Hub at fixed revisions, and their weights in its 1B/1x mixture."""

load("@marin//rules:data.bzl", "hf_download", "tokenized")
load("@marin//rules:models.bzl", "llama3_tokenizer")

DCLM_VERSION = "2026.06.28"

# Trillions of tokens, counted with the tokenizer of GPT-NeoX; only the proportions matter.
DCLM_MIXTURE_WEIGHTS = {
    "dclm_baseline": 3.8,
    "starcoderdata": 0.25,
    "proofpile_2": 0.055,
}

DCLM_CORPORA = {
    "dclm_baseline": {
        "raw": "raw/dclm",
        "hf_id": "mlfoundations/dclm-baseline-1.0",
        "revision": "a3b142c",
        "glob": "**/*.jsonl.zst",
        "text_key": "text",
    },
    "starcoderdata": {
        "raw": "raw/starcoderdata",
        "hf_id": "bigcode/starcoderdata",
        "revision": "9fc30b5",
        "glob": "*/train-*.parquet",
        "text_key": "content",
    },
    # Its validation and test sets lie beside.
    "proofpile_2": {
        "raw": "raw/proof-pile-2",
        "hf_id": "EleutherAI/proof-pile-2",
        "revision": "901a927",
        "glob": "*/train/*.jsonl.zst",
        "text_key": "text",
    },
}

def dclm_datasets(tokenizer = llama3_tokenizer, tags = [], **attrs):
    """Declares DCLM's corpora, as keys of `DCLM_MIXTURE_WEIGHTS`, and returns their labels by key. `attrs` are further attributes of each `tokenized`."""
    for key, corpus in DCLM_CORPORA.items():
        hf_download(
            name = corpus["raw"],
            artifact = corpus["raw"],
            hf_id = corpus["hf_id"],
            revision = corpus["revision"],
            tags = tags,
            urls_glob = [corpus["glob"]],
            version = DCLM_VERSION,
        )
        tokenized(
            name = key,
            artifact = key + "-llama3",
            glob = corpus["glob"],
            raw = ":" + corpus["raw"],
            tags = tags,
            text_key = corpus["text_key"],
            tokenizer = tokenizer,
            version = DCLM_VERSION,
            **attrs
        )
    return {key: ":" + key for key in DCLM_CORPORA}
