"""The data sets of Marin's experiments: the macros of `rules/datasets/`, with steps for their labels."""

from __future__ import annotations

from typing import Any

from marin_cas.api.artifacts import TokenizedCache
from marin_cas.api.builders import Tokenizer
from marin_cas.api.step import ArtifactStep, call

type Sets = dict[str, ArtifactStep[TokenizedCache]]


def dclm_datasets(*, tokenizer: Tokenizer, **attrs: Any) -> Sets:
    """DCLM's corpora, by the keys of `DCLM_MIXTURE_WEIGHTS`. `attrs` are those of the macro."""
    return call("datasets/dclm.bzl", "dclm_datasets", {"tokenizer": tokenizer, **attrs}).value


def paloma_datasets(*, tokenizer: Tokenizer, **attrs: Any) -> Sets:
    """Paloma's validation sets, by subset."""
    return call("datasets/paloma.bzl", "paloma_datasets", {"tokenizer": tokenizer, **attrs}).value


def uncheatable_datasets(*, tokenizer: Tokenizer, **attrs: Any) -> Sets:
    """Uncheatable Eval's validation sets, by subset."""
    return call("datasets/uncheatable.bzl", "uncheatable_datasets", {"tokenizer": tokenizer, **attrs}).value
