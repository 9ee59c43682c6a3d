"""Paloma: validation sets from 16 sources, of which a training reports the loss on each. The repo is gated."""

load("@marin//rules:data.bzl", "hf_download", "tokenized")
load("@marin//rules:models.bzl", "llama3_tokenizer")

PALOMA_VERSION = "2026.06.28"
PALOMA_ID = "allenai/paloma"
PALOMA_REVISION = "65cd6fc"

# The name of a subset to its folder in the repo.
PALOMA_SUBSETS = {
    "4chan": "4chan_meta_sep",
    "c4_100_domains": "c4_100_domains",
    "c4_en": "c4_en",
    "dolma-v1_5": "dolma-v1_5",
    "dolma_100_programing_languages": "dolma_100_programing_languages",
    "dolma_100_subreddits": "dolma_100_subreddits",
    "falcon-refinedweb": "falcon-refinedweb",
    "gab": "gab",
    "m2d2_s2orc_unsplit": "m2d2_s2orc_unsplit",
    "m2d2_wikipedia_unsplit": "m2d2_wikipedia_unsplit",
    "manosphere_meta_sep": "manosphere_meta_sep",
    "mc4": "mc4",
    "ptb": "ptb",
    "redpajama": "redpajama",
    "twitterAAE_HELM_fixed": "twitterAAE_HELM_fixed",
    "wikitext_103": "wikitext_103",
}

def paloma_datasets(tokenizer = llama3_tokenizer, subsets = PALOMA_SUBSETS, tags = [], **attrs):
    """Declares Paloma's validation sets, or some of its `subsets`, from one download, and returns their labels by subset. `attrs` are further attributes of each `tokenized`."""
    for subset in subsets:
        if subset not in PALOMA_SUBSETS:
            fail("Paloma has no subset `%s`: it has %s" % (subset, ", ".join(["`%s`" % known for known in PALOMA_SUBSETS])))
    globs = {subset: PALOMA_SUBSETS[subset] + "/val/val*.jsonl.gz" for subset in subsets}
    hf_download(
        name = "raw/paloma",
        artifact = "raw/paloma",
        hf_id = PALOMA_ID,
        revision = PALOMA_REVISION,
        tags = tags,
        urls_glob = globs.values(),
        version = PALOMA_VERSION,
    )
    for subset, glob in globs.items():
        tokenized(
            name = "paloma/" + subset,
            artifact = "paloma/%s-llama3" % subset,
            glob = glob,
            raw = ":raw/paloma",
            tags = tags,
            tokenizer = tokenizer,
            validation = True,
            version = PALOMA_VERSION,
            **attrs
        )
    return {subset: ":paloma/" + subset for subset in globs}
