"""All that a cache holds and who names it, from one pass: blobs, the runs of every key, what each of them reaches.

Nothing is changed. Of a million blobs only names are listed; sizes come from the records that name them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from marin_cas.cache.cache import Cache
from marin_cas.cache.entry import Run, Standing
from marin_cas.cache.nodes import Nodes
from marin_cas.cache.remembered import RememberedTrees
from marin_cas.cache.roots import Pin, Root
from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError
from marin_cas.errors import IntegrityError
from marin_cas.recipe import TREE, Input, Recipe
from marin_cas.result import Cost
from marin_cas.store.base import Store
from marin_cas.store.local import LocalStore
from marin_cas.tree.children import children

# What a run says of itself to people, its log and its reporting outputs, stays with its record up to this many bytes.
KEPT_UP_TO = 1 << 20

_LARGEST_RECORD = 256 << 20

SERVED = "served"  # the chosen result
UNSERVED = "unserved"  # tainted, or stood back for an equated one: a word may bring it back
ATTEMPT = "attempt"  # another run, never to be served


@dataclass(frozen=True, slots=True)
class Keepers:
    """What says that something is kept: `keys` has the hex of each key that is, with why; `published` the names of
    versions, with their keys' hex."""

    roots: tuple[Root, ...]
    pins: tuple[Pin, ...]
    published: tuple[tuple[str, str], ...]
    keys: dict[str, list[str]]

    @classmethod
    def of(cls, cache: Cache) -> Keepers:
        """Raises EnvironmentProblem when one of the files is damaged."""
        roots, pins = tuple(cache.roots.all()), tuple(cache.roots.pins())
        keys: dict[str, list[str]] = {}
        for root in roots:
            for key in root.keys:
                keys.setdefault(key.hex, []).append(f"{root.label} of {root.workspace}")
        for pin in pins:
            for key in pin.keys:
                keys.setdefault(key.hex, []).append(f"pin {pin.what}")
                result = cache.actions.result(key) if pin.deps else None
                for below in () if result is None else result.producer_keys:
                    keys.setdefault(below.hex(), []).append(f"pin {pin.what}")
        published: list[tuple[str, str]] = []
        for ref in cache.refs.all():
            if ref.published and (key := ref.key or cache.fingerprints.key(ref.fingerprint)) is not None:
                published.append((ref.name, key.hex))
                keys.setdefault(key.hex, []).append(f"published {ref.name}")
        return cls(roots, pins, tuple(published), keys)


@dataclass(slots=True)
class Holding:
    """A run of a key and the blobs that it holds, as numbers.

    `outputs` are the consumable ones, `extras` reporting outputs and logs beyond KEPT_UP_TO, `sources` the workspace
    files in its recipe. `hollow`: of `outputs` something is gone. `empty`: not one of them is whole. `used` is when it
    was last served (or, if it is not, when its key last changed), `changed` when the key's last entry was made, in Unix
    seconds; `entry` and `entries` are the numbers of its entry and the last one.
    """

    key: str
    kind: str
    label: str
    artifact: str
    outcome: str
    finished: float
    cost: Cost
    user: str
    host: str
    digests: Mapping[str, tuple[str, Digest]]
    entry: int
    entries: int
    used: float
    changed: float
    outputs: tuple[int, ...]
    extras: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    tool: str = ""
    hollow: bool = False
    empty: bool = False
    tainted: str = ""

    @property
    def named(self) -> tuple[int, ...]:
        """The blobs at the top of all that goes with the run's bytes."""
        return (*self.outputs, *self.extras, *self.sources)

    @property
    def name(self) -> str:
        return self.label or self.key[:12]


@dataclass(slots=True)
class Inventory:
    """`records` are the blobs that stay whatever is deleted: recipes, lists of versions, small logs and reports.

    `leased` has the keys, in hex, that somebody builds now, with the blobs that these builds read as far as it is
    known; `oldest_lease` is when the first of them began (Unix nanoseconds by the file system's clock), None for none.
    `reachable` are the keys of roots, pins and published refs and of all that was made on the way to them; `kept` the
    former alone, each with what keeps it.
    """

    nodes: Nodes
    roots: list[Root] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    published: list[tuple[str, str]] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    served: dict[str, Holding] = field(default_factory=dict)
    recipes: list[int] = field(default_factory=list)
    environments: list[int] = field(default_factory=list)
    reports: list[int] = field(default_factory=list)
    leased: dict[str, tuple[int, ...]] = field(default_factory=dict)
    oldest_lease: int | None = None
    kept: dict[str, list[str]] = field(default_factory=dict)
    reachable: set[str] = field(default_factory=set)
    pinned: list[int] = field(default_factory=list)
    makers: dict[int, Holding] = field(default_factory=dict)

    @property
    def records(self) -> Iterator[int]:
        yield from self.recipes
        yield from self.environments
        yield from self.reports

    def held_by(self, keys: Iterable[str], blobs: Iterable[int] = ()) -> int:
        """The bytes of the outputs of these keys, and at and below these blobs."""
        tops = [n for key in keys if key in self.served for n in self.served[key].outputs]
        return self.nodes.bytes_at([*tops, *blobs])


def take(cache: Cache) -> Inventory:
    """Raises EnvironmentProblem when a file that says what is kept is damaged, or the disk is in the way."""
    remembered = RememberedTrees(cache.root / "state.db")
    inventory = Inventory(Nodes(cache.store, remembered))
    _Taking(cache, inventory).run()
    remembered.flush()
    return inventory


class _Taking:
    def __init__(self, cache: Cache, inventory: Inventory) -> None:
        self.cache, self.inventory, self.nodes = cache, inventory, inventory.nodes
        self.below: set[bytes] = set()
        self.made: set[int] = set()  # blobs that are an output of any run

    def run(self) -> None:
        self._read_roots()
        for hexed in self.cache.actions.all_keys():
            self._key(hexed, self.cache.actions.standing_of(hexed))
        inventory = self.inventory
        inventory.reachable.update(inventory.kept, (hash.hex() for hash in self.below))
        for holding in inventory.holdings:
            holding.sources = tuple(n for n in holding.inputs if n not in self.made)

    def _read_roots(self) -> None:
        cache, inventory = self.cache, self.inventory
        keepers = Keepers.of(cache)
        inventory.roots, inventory.pins, inventory.kept = list(keepers.roots), list(keepers.pins), keepers.keys
        inventory.published = list(keepers.published)
        for pin in keepers.pins:
            inventory.pinned += [pinned_blob(cache.store, self.nodes, digest) for digest in pin.digests]

    # Keys

    def _key(self, hexed: str, standing: Standing) -> None:
        inventory = self.inventory
        if (recipe := self.nodes.known(bytes.fromhex(hexed))) is not None:
            inventory.recipes.append(recipe)
        changed = self._time(hexed, standing.n) or 0.0
        read = _Recipe.read(self.cache.store, hexed, self.nodes)
        served = standing.served
        unserved = {run.n for run in (standing.choice, standing.before) if run is not None}
        for run in (*standing.others, *((served,) if served is not None else ())):
            kind = SERVED if run is served else UNSERVED if run.n in unserved else ATTEMPT
            holding = self._holding(hexed, kind, run, read, standing, changed)
            inventory.holdings.append(holding)
            if run is served:
                inventory.served[hexed] = holding
                for n in holding.outputs:
                    inventory.makers.setdefault(n, holding)
                if hexed in inventory.kept:
                    self.below.update(run.result.producer_keys)
        if standing.lease is not None and self.cache.actions.in_use(hexed) is not None:
            inventory.leased[hexed] = (*read.inputs, *self._reads(hexed))
            began = int((self._time(hexed, standing.lease.n) or 0.0) * 1e9)
            oldest = inventory.oldest_lease
            inventory.oldest_lease = began if oldest is None else min(oldest, began)

    def _reads(self, hexed: str) -> Iterator[int]:
        """What runs of a key that are under way read, by the recipes in their work folders: the store has none yet."""
        folder = f"{self.cache.root}/work/{hexed}"
        with suppress(OSError):
            for fence in os.listdir(folder):
                with suppress(OSError), open(f"{folder}/{fence}/recipe", "rb") as file:
                    yield from _Recipe.of(file.read(), self.nodes).inputs

    def _time(self, hexed: str, n: int) -> float | None:
        with suppress(OSError):
            return os.stat(f"{self.cache.root}/ac/{hexed[:2]}/{hexed}/{n}").st_mtime
        return None

    def _holding(self, hexed: str, kind: str, run: Run, read: _Recipe, standing: Standing, changed: float) -> Holding:
        nodes, result = self.nodes, run.result
        outputs, extras = [], []
        for output in result.outputs.values():
            n = nodes.look_into(output.digest) if output.kind == TREE else nodes.number(output.digest)
            self.made.add(n)
            if not output.reporting:
                outputs.append(n)
            elif kind == ATTEMPT or self._is_large(n):
                extras.append(n)
            else:
                self.inventory.reports.append(n)
        if result.log is not None:
            log = nodes.number(result.log)
            small = kind != ATTEMPT and result.log.size <= KEPT_UP_TO
            (self.inventory.reports if small else extras).append(log)
        if result.producer.environment is not None:
            self.inventory.environments.append(nodes.number(result.producer.environment))
        used = self._time(hexed, run.n) or 0.0
        whole = [nodes.whole(n) for n in outputs]
        tainted = standing.taint.said() if kind == UNSERVED and standing.taint is not None else ""
        return Holding(
            hexed, kind, result.label, result.artifact, result.outcome, result.finished, result.cost,
            result.producer.user, result.producer.host,
            {name: (output.kind, output.digest) for name, output in result.outputs.items()},
            run.n, standing.n, used if kind == SERVED else max(used, changed), changed,
            tuple(outputs), tuple(extras), (), read.inputs, read.tool,
            not all(whole), not any(whole), tainted,
        )  # fmt: skip

    def _is_large(self, n: int) -> bool:
        return self.nodes.weight(n, KEPT_UP_TO) > KEPT_UP_TO


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What counts of a recipe here; nothing where it is gone or damaged."""

    tool: str = ""
    inputs: tuple[int, ...] = ()

    @classmethod
    def read(cls, store: LocalStore, hexed: str, nodes: Nodes) -> _Recipe:
        n = nodes.known(bytes.fromhex(hexed))
        if n is None or not nodes.files[n]:
            return cls()
        try:
            # An entry of the action cache is filed under the hash alone.
            size = os.stat(f"{store.root}/{hexed[:2]}/{hexed}").st_size
            nodes.number(Digest(bytes.fromhex(hexed), size))
            record = store.read(Digest(bytes.fromhex(hexed), size))
        except (OSError, IntegrityError):
            return cls()
        return cls() if record is None else cls.of(record, nodes)

    @classmethod
    def of(cls, record: bytes, nodes: Nodes) -> _Recipe:
        try:
            recipe = Recipe.parse(record)
        except EncodingError:
            return cls()
        inputs = [source for source in recipe.inputs.values() if isinstance(source, Input)]
        return cls(
            recipe.tool,
            tuple(nodes.look_into(i.digest) if i.kind == TREE else nodes.number(i.digest) for i in inputs),
        )


def pinned_blob(store: Store, nodes: Nodes, digest: Digest) -> int:
    """The number of a blob that somebody named by its digest alone: with all below it, if it is a tree."""
    n = nodes.known(digest.hash)
    # Only a look at the bytes tells, and what is large is no record.
    if n is None or digest.size > _LARGEST_RECORD:
        return nodes.number(digest)
    try:
        record = store.read(digest)
        if record is not None:
            children(record)
            return nodes.look_into(digest)
    except IntegrityError:
        pass  # no tree
    return nodes.number(digest)
