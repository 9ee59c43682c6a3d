"""Uncheatable Eval: validation sets of texts that are younger than most models, from dumps of one fortnight."""

load("@marin//rules:data.bzl", "raw_download", "tokenized")
load("@marin//rules:models.bzl", "llama3_tokenizer")

UNCHEATABLE_VERSION = "2026.06.28"

# A folder of a branch, which may move: what its files hold is in marin.lock.
UNCHEATABLE_URL = "https://raw.githubusercontent.com/Jellyfish042/uncheatable_eval/master/data/"
UNCHEATABLE_PERIOD = "20251101to20251115"
UNCHEATABLE_SUBSETS = [
    "wikipedia_english",
    "github_python",
    "github_cpp",
    "bbc_news",
    "arxiv_physics",
    "arxiv_computer_science",
    "ao3_english",
]

def uncheatable_datasets(tokenizer = llama3_tokenizer, subsets = UNCHEATABLE_SUBSETS, url = UNCHEATABLE_URL, period = UNCHEATABLE_PERIOD, tags = [], **attrs):
    """Declares Uncheatable Eval's validation sets, of the dumps of a `period` below `url`, and returns their labels by subset. `attrs` are further attributes of each `tokenized`."""
    files = {subset: "%s_%s.json" % (subset, period) for subset in subsets}
    raw_download(
        name = "raw/uncheatable_eval",
        artifact = "raw/uncheatable_eval",
        tags = tags,
        urls = [url + file for file in files.values()],
        version = UNCHEATABLE_VERSION,
    )
    for subset, file in files.items():
        tokenized(
            name = "uncheatable_eval/" + subset,
            artifact = "uncheatable_eval/%s-llama3" % subset,
            glob = file,
            raw = ":raw/uncheatable_eval",
            tags = tags,
            tokenizer = tokenizer,
            validation = True,
            version = UNCHEATABLE_VERSION,
            **attrs
        )
    return {subset: ":uncheatable_eval/" + subset for subset in files}
