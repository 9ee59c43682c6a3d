"""Two runs of one action that gave different bytes: which paths differ, and what a person may decide."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from marin_cas.action import Action
from marin_cas.digest import Digest
from marin_cas.errors import BuildError, RequestError
from marin_cas.recipe import TREE
from marin_cas.result import Output
from marin_cas.store.base import MissingBlob, Store
from marin_cas.tree.entries import DirEntry, Tree

_SHOWN = 8


def differing(
    store: Store, before: Mapping[str, Output], after: Mapping[str, Output], ignored: Collection[str] = ()
) -> tuple[str, ...]:
    """The paths (`out/<name>/...`) that differ between two runs, sorted; reporting and `ignored` outputs left out.

    Where records of a tree are gone (a hollow result), the path of the deepest folder known to differ stands for it.
    """
    found: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if name in ignored or any(output is not None and output.reporting for output in (old, new)):
            continue
        if old is None or new is None or old.kind != new.kind:
            found.append(f"out/{name}")
        elif old.digest != new.digest:
            if old.kind == TREE:
                found += sorted(_in_trees(store, f"out/{name}", old.digest, new.digest))
            else:
                found.append(f"out/{name}")
    return tuple(found)


def _in_trees(store: Store, path: str, old: Digest, new: Digest) -> Iterator[str]:
    stack = [(path, old, new)]
    while stack:
        path, old, new = stack.pop()
        before, after = _tree(store, old), _tree(store, new)
        if before is None or after is None:
            yield path
            continue
        was = {entry.name: entry for entry in before.entries}
        now = {entry.name: entry for entry in after.entries}
        for name in was.keys() | now.keys():
            a, b = was.get(name), now.get(name)
            if a == b:
                continue
            if isinstance(a, DirEntry) and isinstance(b, DirEntry):
                stack.append((f"{path}/{name}", a.digest, b.digest))
            else:
                yield f"{path}/{name}"


def _tree(store: Store, digest: Digest) -> Tree | None:
    try:
        record = store.read(digest)
    except MissingBlob:
        return None
    return None if record is None else Tree.parse(record)


def restored_otherwise(
    action: Action, differences: tuple[str, ...], consumers: tuple[str, ...], *, kept: bool
) -> BuildError:
    """A hollow result was made again, and is not what it was."""
    notes = _paths(differences)
    if consumers:
        notes.append("made from the old bytes, and not run again unasked:")
        notes += _some([f"  `{consumer}`" for consumer in consumers])
    if kept:
        return BuildError(
            f"`{action.id}`: its old bytes are gone and were asked to be kept (`--keep-old`), so what needs them fails",
            where=action.location,
            notes=notes,
            hint=f"`marin build {action.label} --accept-new` takes the new bytes",
        )
    return BuildError(
        f"`{action.id}` was built before and its bytes are gone; built again, it gave other bytes",
        where=action.location,
        notes=notes,
        hint="`--accept-new` takes the new bytes (whatever was made from the old is then built again), "
        "`--keep-old` goes on without them",
    )


def refused_again(action: Action, name: str) -> RequestError:
    """--again of what is published, by another tool or with other libraries than then."""
    return RequestError(
        f"`--again {action.label}`: it is published as `{name}`, and another tool or other libraries would make it now",
        where=action.location,
        hint="give it a new `version`",
    )


def published_gone(action: Action, name: str) -> BuildError:
    """What is published is to be served, and nothing here makes the same again."""
    return BuildError(
        f"`{action.id}` is published as `{name}`, its bytes are gone, and the tool or the libraries that made them "
        "have changed since",
        where=action.location,
        hint="build it with those of then (`marin why` lists what differs), or give it a new `version`",
    )


def reproduced_otherwise(action: Action, differences: tuple[str, ...]) -> BuildError:
    """--check found that an action does not give the same bytes twice."""
    return BuildError(
        f"`{action.id}` does not reproduce: run again, it gave other bytes",
        where=action.location,
        notes=_paths(differences),
        hint="look for a clock, a random seed, an order of files or of a set in what it does; the result in use stays",
    )


def _paths(differences: tuple[str, ...]) -> list[str]:
    return _some([f"differs: `{path}`" for path in differences])


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"and {more} more"]
