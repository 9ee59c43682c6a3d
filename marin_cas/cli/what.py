"""What a person means by a key, a label, `name@version` or a digest, each cut short if it is one of a kind."""

from __future__ import annotations

import re
from dataclasses import dataclass

from marin_cas.action import Action
from marin_cas.cache.holder import user_name
from marin_cas.cli.session import Session
from marin_cas.cli.standing import Standings
from marin_cas.digest import Digest
from marin_cas.errors import BuildError, RequestError, did_you_mean
from marin_cas.label import Label

_HEX = re.compile(r"([0-9a-fA-F]{4,64})(?:-\d+)?")


@dataclass(frozen=True, slots=True)
class What:
    """Either `keys` (a target may have several) or the `hash` of a digest. `label` when it was named by one."""

    text: str
    keys: tuple[Digest, ...] = ()
    hash: bytes | None = None
    label: Label | None = None

    def __str__(self) -> str:
        if self.hash is not None:
            return f"digest {self.hash.hex()[:12]}"
        keys = ", ".join(f"key {key.short}" for key in self.keys)
        return f"{keys}, {self.text}" if self.label is not None or "@" in self.text else keys


def find(session: Session, text: str, *, built: bool = True) -> What:
    """What `text` names. A label must have a result, served or tainted, as it is declared now; unless `built`, what it
    was last built as stands in for what cannot be told without building.

    Raises RequestError for what is nothing or more than one thing, BuildError for a label that is not built.
    """
    if text.startswith(("//", ":")):
        return _label(session, text, built)
    if "@" in text:
        return _version(session, text)
    match = _HEX.fullmatch(text)
    if match is None:
        raise RequestError(
            f"`{text}` is not a key, a digest, a label or `name@version`",
            hint="labels begin with `//` or `:`; of a key or a digest give at least 4 hex digits",
        )
    return _hex(session, text, match[1].lower())


def action_of(session: Session, text: str) -> tuple[Action, Standings]:
    """The only action of the target that a label, or `name@version` as a target declares it, names."""
    label = session.target(text) if text.startswith(("//", ":")) else _declared(session, text)
    standings = Standings.of(session, [label])
    target = standings.target(label)
    if len(target.actions) != 1:
        count = "no action" if not target.actions else f"{len(target.actions)} actions"
        raise RequestError(f"`{label}` has {count}, and one is wanted", where=target.target.location)
    return standings.analysis.actions[target.actions[0]], standings


def _label(session: Session, text: str, built: bool) -> What:
    label = session.target(text)
    standings = Standings.of(session, [label])
    target = standings.target(label)
    if not target.actions:
        raise RequestError(f"`{label}` runs nothing, so it has no key", where=target.target.location)
    keys = [key for id in target.actions if (key := standings.keys.get(id) or _last(session, id, built)) is not None]
    if built and (
        len(keys) < len(target.actions) or any(session.cache.actions.standing(key).choice is None for key in keys)
    ):
        raise BuildError(
            f"`{label}` is not built as it is declared now",
            where=target.target.location,
            hint=f"`marin build {label}` builds it; an older result is named by its key (`marin why {label}`)",
        )
    return What(str(label), tuple(dict.fromkeys(keys)), label=label)


def _last(session: Session, id: str, built: bool) -> Digest | None:
    latest = None if built else session.cache.labels.latest(id)
    return None if latest is None else latest.key


def _version(session: Session, text: str) -> What:
    ref = session.cache.refs.find(text)
    if ref is None:
        refs = list(session.cache.refs.all())
        own = [ref.name for ref in refs if ref.published or ref.user in ("", user_name())]
        known = [*own, *(ref.text for ref in refs)]
        raise RequestError(f"there is no `{text}` in this cache", hint=did_you_mean(text, known))
    key = (ref.key if ref.published else None) or session.cache.fingerprints.key(ref.fingerprint) or ref.key
    if key is None:
        raise RequestError(f"`{text}` has no result here any more")
    return What(text, (key,))


def _declared(session: Session, text: str) -> Label:
    if "@" not in text:
        raise RequestError(f"`{text}` is not a label or `name@version`", hint="labels begin with `//` or `:`")
    graph = session.graph(session.expand(["//..."]))
    names = {target.ref: label for label, target in graph.targets.items() if target.ref}
    if text not in names:
        raise RequestError(f"no target is called `{text}`", hint=did_you_mean(text, names))
    return names[text]


def _hex(session: Session, text: str, prefix: str) -> What:
    cache = session.cache
    keys = [hexed for hexed in cache.actions.all_keys() if hexed.startswith(prefix)]
    # The recipe of a key is a blob of the same name: what is meant is the key.
    found = list(dict.fromkeys([*keys, *_digests(session, prefix)]))
    if len(found) > 1:
        raise RequestError(
            f"{len(found)} keys and digests begin with `{prefix}`",
            hint="give more digits: " + ", ".join(f"`{hexed[: len(prefix) + 4]}`" for hexed in found[:4]),
        )
    if not found and len(prefix) < 64:
        raise RequestError(f"no key and no digest in this cache begins with `{prefix}`", hint="give all 64 digits")
    hexed = found[0] if found else prefix
    if hexed not in keys:
        return What(text, hash=bytes.fromhex(hexed))
    choice = cache.actions.standing_of(hexed).choice
    if choice is None:
        raise BuildError(f"the key `{hexed[:12]}` has no result", hint="`marin cache ls` lists those that have")
    return What(text, (choice.result.key,))


def _digests(session: Session, prefix: str) -> dict[str, None]:
    """The known digests that begin so: blobs, outputs whose blobs may be gone, and what was ever tainted."""
    cache = session.cache
    found = {hexed: None for hexed, _ in cache.store.files() if hexed.startswith(prefix)}
    for key in cache.actions.all_keys():
        choice = cache.actions.standing_of(key).choice
        outputs = () if choice is None else choice.result.outputs.values()
        found.update({output.digest.hex: None for output in outputs if output.digest.hex.startswith(prefix)})
    found.update({hash.hex(): None for hash in cache.taints.current() if hash.hex().startswith(prefix)})
    return found
