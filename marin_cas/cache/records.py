"""Whether what results name is there and is what they say: trees that are trees, recipes that are recipes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from marin_cas.cache.cache import Cache
from marin_cas.cache.listing import results
from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError
from marin_cas.errors import IntegrityError
from marin_cas.recipe import TREE, Recipe
from marin_cas.result import Result
from marin_cas.store.base import MissingBlob, Store
from marin_cas.tree.entries import DirEntry, FileEntry
from marin_cas.tree.walk import read_tree


@dataclass(frozen=True, slots=True)
class Hollow:
    """A result some of whose bytes are gone: `blob` is one of them. No damage: it is built again when needed."""

    label: str
    key: Digest
    output: str
    blob: Digest


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that a result needs and that is damaged, or none at all. `output` is empty for the recipe."""

    label: str
    key: Digest
    output: str
    why: str


def check_records(cache: Cache, damaged: Collection[str]) -> tuple[tuple[Hollow, ...], tuple[Malformed, ...]]:
    """Of every result that is served. `damaged` are the hashes (hex) of blobs that are known to be wrong: what leads
    to one of them is left out here."""
    hollow: list[Hollow] = []
    malformed: list[Malformed] = []
    complete: set[Digest] = set()
    for result in results(cache):
        for name, output in result.outputs.items():
            blob, why = _first_problem(cache.store, output.kind, output.digest, complete)
            if blob is None or blob.hex in damaged:
                continue
            if why:
                malformed.append(Malformed(result.label, result.key, name, why))
            elif not output.reporting:
                hollow.append(Hollow(result.label, result.key, name, blob))
        if (why := _recipe_problem(cache, result)) and result.key.hex not in damaged:
            malformed.append(Malformed(result.label, result.key, "", why))
    return tuple(hollow), tuple(malformed)


def _recipe_problem(cache: Cache, result: Result) -> str:
    try:
        record = cache.store.read(result.key)
        if record is not None:
            Recipe.parse(record)
    except IntegrityError as error:
        return error.message
    except EncodingError as error:
        return str(error)
    return ""


def _first_problem(store: Store, kind: str, digest: Digest, complete: set[Digest]) -> tuple[Digest | None, str]:
    """A blob that is missing, or a record that is none and why. `complete` are trees that were walked and lack nothing,
    and grows: many results share most of their trees."""
    if kind != TREE:
        return None if store.contains(digest) else digest, ""
    walked: set[Digest] = set()
    stack = [digest]
    while stack:
        at = stack.pop()
        if at in complete or at in walked:
            continue
        walked.add(at)
        try:
            entries = read_tree(store, at).entries
        except MissingBlob:
            return at, ""
        except IntegrityError as error:
            return at, error.message
        if missing := store.missing({entry.digest for entry in entries if isinstance(entry, FileEntry)}):
            return min(missing), ""
        stack += [entry.digest for entry in entries if isinstance(entry, DirEntry)]
    complete |= walked
    return None, ""
