"""Files from URLs and prefixes, just those that marin.lock names by their content.

Where they come from is in no key: the same bytes from a mirror are the same result. So what has changed upstream is
refused, with what differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from marin_cas.digest import Digest
from marin_cas.tools.fetching import BLAKE3, Remote, fetch, say
from marin_cas.tools.manifest import Manifest
from marin_cas.tools.patience import Patience
from marin_cas.tools.urls import Found, Urls
from marin_cas.worker.context import ToolContext, ToolError

REVISION = 1


def run(ctx: ToolContext) -> None:
    (out,) = ctx.outputs.values()
    patience = Patience()
    urls = Urls(patience)
    remotes: list[Remote] = []
    prefixes: dict[str, tuple[Manifest, list[Found]]] = {}
    for source, url in zip(ctx.params["sources"], ctx.settings["urls"], strict=True):
        if "manifest" in source:
            prefixes[url] = locked, found = _listed(urls, source, url)
            remotes += [_unknown(urls, file, locked) for file in found]
        else:
            remotes.append(_known(urls, source, url))
    _refuse_clashes(remotes, prefixes)
    fetched = fetch(ctx, remotes, out, "", patience)
    wrong = _wrong(prefixes, fetched)
    if wrong:
        # A byte may have been flipped on the way, and only the whole can be checked: all of it once more.
        say(f"{', '.join(wrong)}: not what marin.lock says; fetching once more")
        again = [_unknown(urls, file, prefixes[url][0]) for url in wrong for file in prefixes[url][1]]
        fetched |= fetch(ctx, again, out, "", patience, fresh=True)
        for url, now in _wrong(prefixes, fetched).items():
            raise _changed(url, prefixes[url][0], now)


def _known(urls: Urls, source: Mapping[str, Any], url: str) -> Remote:
    digest = Digest.parse(source["content"])

    def changed(size: int, seen: str) -> ToolError:
        now = f"it is {seen[:12]} with {size} bytes now" if seen else f"it has {size} bytes now"
        return ToolError(
            f"`{url}` has changed: marin.lock says {digest.short} with {digest.size} bytes, and {now}",
            hint=_upgrade(url),
        )

    return Remote(source["name"], digest.size, BLAKE3, digest.hex, lambda offset: urls.open(url, offset), changed)


def _listed(urls: Urls, source: Mapping[str, Any], url: str) -> tuple[Manifest, list[Found]]:
    locked, found = Manifest.parse(source["manifest"]), urls.under(url)
    now = len(found), sum(file.size for file in found)
    if now != (locked.files, locked.bytes):
        raise ToolError(
            f"`{url}` has changed: marin.lock says {locked.files} files with {locked.bytes} bytes,"
            f" and there are {now[0]} files with {now[1]} bytes now",
            hint=_upgrade(url),
        )
    return locked, found


def _unknown(urls: Urls, file: Found, locked: Manifest) -> Remote:
    """A file of which only size and place are known before it is there; `part` is what it is kept under meanwhile."""
    part = hashlib.sha256(f"{locked.digest} {file.name} {file.size} {file.edition}".encode()).hexdigest()
    return Remote(file.name, file.size, BLAKE3, None, lambda offset: urls.open(file.url, offset), part=part)


def _refuse_clashes(remotes: list[Remote], prefixes: Mapping[str, object]) -> None:
    seen: set[str] = set()
    for remote in remotes:
        if remote.name in seen:
            raise ToolError(
                f"two of the sources have a file `{remote.name}`", hint="make one target of each, or rename upstream"
            )
        seen.add(remote.name)


def _wrong(prefixes: Mapping[str, tuple[Manifest, list[Found]]], fetched: Mapping[str, Digest]) -> dict[str, Manifest]:
    made = {url: Manifest.of({file.name: fetched[file.name] for file in found}) for url, (_, found) in prefixes.items()}
    return {url: now for url, now in made.items() if now != prefixes[url][0]}


def _changed(url: str, locked: Manifest, now: Manifest) -> ToolError:
    return ToolError(
        f"`{url}` has changed: the names and sizes add up as in marin.lock, but not the contents"
        f" ({locked.digest.short} there, {now.digest.short} now)",
        hint=_upgrade(url),
    )


def _upgrade(url: str) -> str:
    return f"`marin lock --upgrade={url}` takes what is there now; whoever has built it still has the old bytes"
