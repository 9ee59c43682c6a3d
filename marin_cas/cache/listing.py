"""All results of a cache, for `marin cache ls`."""

from __future__ import annotations

from collections.abc import Iterator

from marin_cas.cache.cache import Cache
from marin_cas.cache.entry import Standing, fold
from marin_cas.result import Result


def standings(cache: Cache) -> Iterator[tuple[str, Standing]]:
    """The hex of every key and what its entries add up to, by hex."""
    for hexed in cache.actions.all_keys():
        yield hexed, fold(cache.actions.entries(hexed))


def results(cache: Cache) -> Iterator[Result]:
    """The chosen result of every key that has one, by hex of the key. Tainted ones are not served, nor listed."""
    for _, standing in standings(cache):
        if standing.chosen is not None:
            yield standing.chosen
