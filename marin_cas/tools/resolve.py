"""Answers what `marin.lock` lacks: the one program that asks the outside world what a name means now.

`python -m marin_cas.tools.resolve` reads one JSON list of `[kind, name]` and writes a line `{"kind", "name", "answer"}`
or `{"kind", "name", "error", "hint"}` for each, in that order. It runs with the environment of whoever locks.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from blake3 import blake3

from marin_cas.digest import Digest
from marin_cas.tools.fetching import CONNECTIONS
from marin_cas.tools.hub import Hub, Repo
from marin_cas.tools.manifest import Manifest
from marin_cas.tools.patience import Patience, Transient
from marin_cas.tools.urls import Urls
from marin_cas.worker.context import ToolError

# Somebody sits in front of it, and nothing is lost by an early end.
_TRIES = 4


def main() -> None:
    patience = Patience(_TRIES)
    hub, urls = Hub(patience), Urls(patience)
    for kind, name in json.load(sys.stdin):
        told: dict[str, str | None] = {"kind": kind, "name": name}
        try:
            told["answer"] = answer(hub, urls, kind, name)
        except ToolError as error:
            told |= {"error": error.message, "hint": error.hint}
        except ImportError as error:
            hint = "`pip install 'marin-cas[hub,gcs,s3]'`"
            told |= {"error": f"`{error.name}` is not installed, and it takes that to ask", "hint": hint}
        print(json.dumps(told), flush=True)  # noqa: T201


def answer(hub: Hub, urls: Urls, kind: str, name: str) -> str:
    """What the lock shall say. ToolError when it cannot be found out."""
    match kind:
        case "hub":
            repo_type, _, rest = name.partition(" ")
            repo_id, _, revision = rest.partition("@")
            return hub.commit(Repo(repo_type, repo_id), revision)
        case "url":
            return str(content(urls, name))
        case "prefix":
            found = urls.under(name)
            say(f"reading {len(found)} files with {sum(file.size for file in found):,} bytes under {name}")
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                digests = list(pool.map(lambda file: content(urls, file.url, file.size), found))
            return str(Manifest.of({file.name: digest for file, digest in zip(found, digests, strict=True)}))
    raise ToolError(f"there is no way to find out `{name}`")


def content(urls: Urls, url: str, size: int | None = None) -> Digest:
    """The digest of what is there now; a broken read goes on where it stopped."""
    hashed, done, reached, failures = blake3(), 0, 0, 0
    while True:
        try:
            with urls.open(url, done) as body:
                if body.start != done:
                    hashed, done = blake3(), 0
                for chunk in body.chunks:
                    hashed.update(chunk)
                    done += len(chunk)
                if size is not None and done != size:
                    raise ToolError(f"`{url}` changed while it was read: {done} bytes, not {size}")
            return Digest(hashed.digest(), done)
        except Transient as failure:
            failures = 1 if done > reached else failures + 1
            reached = max(reached, done)
            urls.patience.after(failure, failures, f"`{url}`")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # whoever started it says so
