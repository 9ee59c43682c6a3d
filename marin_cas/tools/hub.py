"""The Hugging Face Hub through its own library: which commit, which files, which bytes.

The library checks sizes only and retries little; here every request has a time limit, what is worth a retry is a
`Transient`, and whatever else goes wrong is a ToolError that says what to do. The token is HF_TOKEN or none: never one
that a file of the user's holds, so that a build needs what its declaration says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

from marin_cas.tools.fetching import GIT_BLOB, SHA256, Body, hasher
from marin_cas.tools.patience import Patience, Transient, asked_wait
from marin_cas.worker.context import ToolError

TOKEN = "HF_TOKEN"
_CONNECT_S, _READ_S = 20.0, 60.0
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_SHORT_SHA = re.compile(r"[0-9a-f]{7,39}")


@dataclass(frozen=True, slots=True)
class Repo:
    """`type` is `dataset`, `model` or `space`."""

    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.type} `{self.id}`"

    @property
    def page(self) -> str:
        """Its path on the site, in front of `/resolve/` too."""
        return self.id if self.type == "model" else f"{self.type}s/{self.id}"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a commit: `algorithm` and `digest` are what its bytes must hash to."""

    path: str
    size: int
    algorithm: str
    digest: str


class Hub:
    """One Hub, asked with one token; used from several threads."""

    def __init__(self, patience: Patience | None = None) -> None:
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        self.patience = patience or Patience()
        self.token = os.environ.get(TOKEN, "").strip() or None

    @cached_property
    def endpoint(self) -> str:
        return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")

    @cached_property
    def _session(self) -> Any:
        from huggingface_hub import get_session

        return get_session()

    @cached_property
    def _headers(self) -> dict[str, str]:
        from huggingface_hub.utils import build_hf_headers

        headers = build_hf_headers(token=self.token or False, library_name="marin-cas")
        # Nothing may be compressed on the way: sizes and ranges are those of the file.
        return {**headers, "accept-encoding": "identity"}

    def commit(self, repo: Repo, revision: str) -> str:
        """The commit, 40 digits, that a branch, a tag, a commit or the beginning of one stands for now."""
        url = f"{self.endpoint}/api/{repo.type}s/{repo.id}/revision/{quote(revision, safe='')}"
        short = _SHORT_SHA.fullmatch(revision) is not None
        info, _ = self._json(url, repo, revision, absent=short)
        if info is None:
            return self._lengthened(repo, revision)
        commit = info.get("sha")
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise ToolError(f"{self.endpoint} names no commit of {repo} for `{revision}`")
        return commit

    def _lengthened(self, repo: Repo, short: str) -> str:
        # A Hub may not know the beginnings of commits; then they are looked for among those of the main branch.
        found = {
            entry["id"]
            for entry in self._pages(f"{self.endpoint}/api/{repo.type}s/{repo.id}/commits/main", repo, "main")
            if entry["id"].startswith(short)
        }
        if len(found) == 1:
            return found.pop()
        if found:
            raise ToolError(f"several commits of {repo} begin with `{short}`", hint="write more of its digits")
        raise self._no_revision(repo, short)

    def files(self, repo: Repo, commit: str) -> list[HubFile]:
        """Every file of a commit, sorted by the bytes of its path."""
        url = f"{self.endpoint}/api/{repo.type}s/{repo.id}/tree/{commit}?recursive=true&expand=false"
        found = [_file(entry, repo) for entry in self._pages(url, repo, commit) if entry.get("type") == "file"]
        return sorted(found, key=lambda file: os.fsencode(file.path))

    @contextmanager
    def open(self, repo: Repo, commit: str, file: HubFile, offset: int = 0) -> Iterator[Body]:
        """The bytes of a file from `offset` on. Raises Transient or ToolError, while it is read too."""
        import httpx

        url = f"{self.endpoint}/{repo.page}/resolve/{commit}/{quote(file.path)}"
        headers = {**self._headers, **({"range": f"bytes={offset}-"} if offset else {})}
        try:
            with self._session.stream(
                "GET", url, headers=headers, follow_redirects=True, timeout=httpx.Timeout(_READ_S, connect=_CONNECT_S)
            ) as response:
                if response.status_code not in (200, 206):
                    response.read()
                    raise self._refused(response, repo, commit, file.path)
                yield Body(offset if response.status_code == 206 else 0, response.iter_raw())
        except httpx.HTTPError as error:
            raise Transient(_words(error)) from None

    def read(self, repo: Repo, commit: str, file: HubFile, limit: int) -> bytes:
        """A small file's bytes, at most `limit`, checked."""

        def get() -> bytes:
            with self.open(repo, commit, file) as body:
                data = b"".join(body.chunks)
            if len(data) != file.size:
                raise Transient(f"{len(data)} of {file.size} bytes came")
            return data

        if file.size > limit:
            raise ToolError(f"`{file.path}` of {repo} is too large: {file.size} bytes")
        data = self.patience.insist(get, f"`{file.path}` of {repo}")
        check = hasher(file.algorithm, file.size)
        check.update(data)
        if check.hexdigest() != file.digest:
            raise ToolError(f"`{file.path}` of {repo} is not what its commit says")
        return data

    # Requests.

    def _pages(self, url: str, repo: Repo, revision: str) -> Iterator[dict[str, Any]]:
        next_url: str | None = url
        while next_url:
            page, links = self._json(next_url, repo, revision)
            yield from page
            next_url = links.get("next", {}).get("url")

    def _json(self, url: str, repo: Repo, revision: str, *, absent: bool = False) -> tuple[Any, Any]:
        """The answer and its links; with `absent`, None for a revision that is not there."""
        import httpx

        def get() -> tuple[Any, Any]:
            try:
                response = self._session.get(
                    url,
                    headers=self._headers,
                    follow_redirects=True,
                    timeout=httpx.Timeout(_READ_S, connect=_CONNECT_S),
                )
            except httpx.HTTPError as error:
                raise Transient(_words(error)) from None
            if response.status_code == 200:
                try:
                    return response.json(), response.links
                except ValueError:
                    raise Transient("its answer is no JSON") from None
            if absent and response.headers.get("x-error-code") == "RevisionNotFound":
                return None, {}
            raise self._refused(response, repo, revision)

        return self.patience.insist(get, f"{self.endpoint} about {repo}")

    def _refused(self, response: Any, repo: Repo, revision: str, path: str = "") -> Exception:
        """What an answer that is none means: Transient, or a ToolError that no retry would change."""
        status, code = response.status_code, response.headers.get("x-error-code", "")
        if status in _BUSY:
            return Transient(f"the server answered {status} {response.reason_phrase}", asked_wait(response.headers))
        sent = f"a token was sent ({TOKEN})" if self.token else "no token was sent"
        by_token = f"set {TOKEN} to a token that may read it" if not self.token else "is it the right token?"
        if code == "GatedRepo":
            return ToolError(
                f"the {repo} is gated, and {sent}: who may read it, its owner decides",
                hint=f"ask for access at {self.endpoint}/{repo.page}, then "
                + (f"set {TOKEN} to a token of that account" if not self.token else "build again"),
            )
        if code == "RepoNotFound" or (status == 404 and not code):
            return ToolError(
                f"{self.endpoint} has no {repo}, or a private one; {sent}",
                hint=f"look at its spelling and its type; if it is private, {by_token}",
            )
        if code == "RevisionNotFound":
            return self._no_revision(repo, revision)
        if code == "EntryNotFound" or status == 404:
            return ToolError(f"the {repo} has no file `{path}` at `{revision}`")
        if status in (401, 403):
            return ToolError(
                f"{self.endpoint} refuses access to the {repo} ({status} {response.reason_phrase}); {sent}",
                hint=by_token,
            )
        return ToolError(f"{self.endpoint} answers {status} {response.reason_phrase} about the {repo}")

    def _no_revision(self, repo: Repo, revision: str) -> ToolError:
        if re.fullmatch(r"[0-9a-f]{40}", revision):
            return ToolError(
                f"the commit `{revision}` of the {repo} is gone: its owner has rewritten the history or removed it",
                hint="name another revision, or lock the branch again with `marin lock --upgrade`;"
                " whoever has built it still has the files in their cache, and from a folder `pin` takes them in",
            )
        return ToolError(
            f"the {repo} has no revision `{revision}`", hint=f"its branches: {self.endpoint}/{repo.page}/tree/main"
        )


def _file(entry: dict[str, Any], repo: Repo) -> HubFile:
    path, lfs = str(entry["path"]), entry.get("lfs")
    # Names come from strangers: none may lead out of the folder that they are put into.
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise ToolError(f"the {repo} has a file with the name `{path}`, which no folder can hold")
    if lfs:
        return HubFile(path, int(lfs["size"]), SHA256, str(lfs["oid"]))
    return HubFile(path, int(entry["size"]), GIT_BLOB, str(entry["oid"]))


def _words(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
