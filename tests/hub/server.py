"""A Hugging Face Hub on loopback, small and misbehaving on order: what its real client asks, and what may go wrong.

Repos, commits and files are in memory. A large file lies behind a redirect to another host name, as on the real Hub.
`faults` are taken in order by the first request that matches; `log` has every request.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

type Content = bytes | Sequence[bytes]

LFS_FROM = 1 << 16
_CHUNK = 1 << 16
_TYPES = {"datasets": "dataset", "models": "model", "spaces": "space"}


def _pieces(content: Content) -> Sequence[bytes]:
    return [content] if isinstance(content, bytes | memoryview) else content


@dataclass(frozen=True, slots=True)
class File:
    content: Content
    size: int
    oid: str
    sha256: str

    @classmethod
    def of(cls, content: Content) -> File:
        size = sum(map(len, _pieces(content)))
        blob, sha = hashlib.sha1(b"blob %d\0" % size), hashlib.sha256()
        for piece in _pieces(content):
            blob.update(piece)
            sha.update(piece)
        return cls(content, size, blob.hexdigest(), sha.hexdigest())

    @property
    def lfs(self) -> bool:
        return self.size >= LFS_FROM

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid

    def entry(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "file", "path": path, "size": self.size, "oid": self.oid}
        if self.lfs:
            found["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": 134}
        return found


@dataclass(slots=True)
class Repo:
    """`main` and other branches and tags name commits; `forget` removes one as a force-push does."""

    type: str
    id: str
    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, Content], branch: str = "main", sha: str = "") -> str:
        """A commit with just these files, where `branch` is from now on; with `sha` it is called so."""
        made = {path: File.of(content) for path, content in files.items()}
        names = json.dumps([self.type, self.id, len(self.commits), {p: f.oid for p, f in sorted(made.items())}])
        sha = sha or hashlib.sha1(names.encode()).hexdigest()
        self.commits[sha] = made
        self.refs[branch] = sha
        return sha

    def forget(self, sha: str) -> None:
        del self.commits[sha]
        for names in (self.refs, self.tags):
            for name in [name for name, commit in names.items() if commit == sha]:
                del names[name]

    def find(self, revision: str) -> str | None:
        sha = self.refs.get(revision) or self.tags.get(revision) or revision
        return sha if sha in self.commits else None


@dataclass(slots=True)
class Fault:
    """For the next `times` requests whose `METHOD path` holds `match`. `status`: answered instead; `cut`, `reset`: the
    connection ends (by FIN, by RST) after so many bytes of the body; `flip`: that byte of the file is another one;
    `then`: called first; `deaf`: Range is ignored; `slow`: waits so many seconds before each chunk.
    """

    match: str
    times: int = 1
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    reset: int | None = None
    flip: int | None = None
    then: Callable[[], object] | None = None
    deaf: bool = False
    slow: float = 0.0


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    range: str
    token: str
    at: float

    def __str__(self) -> str:
        return f"{self.method} {self.path}" + (f" [{self.range}]" if self.range else "")


class Hub:
    """`with Hub() as hub: hub.repo(...)`, then clients with `HF_ENDPOINT=hub.url`. `rate` is bytes a second for all."""

    def __init__(self, *, page: int = 1000, rate: float = 0.0, short: bool = True) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.tokens: dict[str, set[str]] = {}  # token -> repos that it may read
        self.faults: list[Fault] = []
        self.log: list[Request] = []
        self.page, self.rate, self.short = page, rate, short
        self._lock = threading.Lock()
        self._paid = 0.0
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.cdn = f"http://localhost:{self.port}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def repo(self, id: str, files: Mapping[str, Content] | None = None, *, type: str = "dataset", **more: Any) -> Repo:
        repo = self.repos[type, id] = Repo(type, id, **more)
        if files is not None:
            repo.commit(files)
        return repo

    def environ(self, **more: str) -> dict[str, str]:
        return {"HF_ENDPOINT": self.url, "NO_PROXY": "*", **more}

    def requests(self, part: str) -> list[Request]:
        """Those whose `METHOD path` holds `part`."""
        return [request for request in self.log if part in f"{request.method} {request.path}"]

    def take(self, line: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.match, line):
                    fault.times -= 1
                    return fault
        return None

    def pay(self, amount: int) -> None:
        """Waits until all connections together may have sent `amount` more."""
        if not self.rate:
            return
        with self._lock:
            now = time.monotonic()
            self._paid = max(self._paid, now - 0.02) + amount / self.rate
            wait = self._paid - now
        if wait > 0:
            time.sleep(wait)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_GET

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._form = parse_qs(self.rfile.read(length).decode())
        self._answer()

    # Requests.

    def _answer(self) -> None:
        hub, path = self.hub, self.path
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if path != "/api/agent-harnesses":
            hub.log.append(Request(self.command, path, self.headers.get("Range") or "", token, time.monotonic()))
        self.fault = hub.take(f"{self.command} {path}")
        if self.fault is not None and self.fault.then is not None:
            self.fault.then()
        if self.fault is not None and self.fault.status:
            self._send(self.fault.status, b"no luck", self.fault.headers)
            return
        parts = urlsplit(path)
        pieces = parts.path.strip("/").split("/")
        if pieces[0] == "cdn":
            self._cdn(pieces[1])
        elif pieces[0] == "api" and len(pieces) > 1 and pieces[1] in _TYPES:
            self._api(_TYPES[pieces[1]], pieces[2:], parse_qs(parts.query))
        elif "resolve" in pieces:
            kind = _TYPES.get(pieces[0], "model")
            pieces = pieces[1:] if pieces[0] in ("datasets", "spaces") else pieces
            at = pieces.index("resolve")
            self._resolve(kind, "/".join(pieces[:at]), unquote(pieces[at + 1]), unquote("/".join(pieces[at + 2 :])))
        else:
            self._refuse(404, "")

    def _repo(self, kind: str, id: str, *, files: bool = False) -> Repo | None:
        """The repo, when whoever asks may see it; else the answer has been sent."""
        hub = self.hub
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token not in hub.tokens:
            self._refuse(401, "", "Invalid credentials in Authorization header")
            return None
        repo, allowed = hub.repos.get((kind, id)), id in hub.tokens.get(token, ())
        if repo is None or (repo.private and not allowed):
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
            return None
        if repo.gated and files and not allowed:
            self._refuse(403 if token else 401, "GatedRepo", f"Access to {kind} {id} is restricted")
            return None
        return repo

    def _commit(self, repo: Repo, revision: str) -> str | None:
        sha = repo.find(revision)
        if sha is None and self.hub.short and re.fullmatch("[0-9a-f]{7,39}", revision):
            found = [commit for commit in repo.commits if commit.startswith(revision)]
            sha = found[0] if len(found) == 1 else None
        if sha is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return sha

    def _api(self, kind: str, pieces: list[str], query: Mapping[str, list[str]]) -> None:
        verbs = ("revision", "tree", "paths-info", "refs", "commits")
        at = next((n for n, piece in enumerate(pieces) if piece in verbs and n), len(pieces))
        repo = self._repo(kind, "/".join(pieces[:at]))
        if repo is None:
            return
        verb, rest = (pieces[at], pieces[at + 1 :]) if at < len(pieces) else ("revision", ["main"])
        if verb == "refs":
            self._json({
                "branches": [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c} for n, c in repo.refs.items()],
                "tags": [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c} for n, c in repo.tags.items()],
                "converts": [],
            })  # fmt: skip
            return
        sha = self._commit(repo, unquote(rest[0]))
        if sha is None:
            return
        files = repo.commits[sha]
        if verb == "revision":
            info: dict[str, Any] = {"id": repo.id, "sha": sha, "private": repo.private, "gated": repo.gated}
            info["siblings"] = [{"rfilename": path} for path in files]
            self._json(info)
        elif verb == "commits":
            made = {"title": "t", "message": "", "authors": [], "date": "2026-01-01T00:00:00.000Z"}
            self._page([{"id": commit, **made} for commit in repo.commits], query)
        elif verb == "paths-info":
            self._json([files[path].entry(path) for path in self._form.get("paths", []) if path in files])
        else:
            below = "/".join(map(unquote, rest[1:]))
            inside = {p: f for p, f in files.items() if not below or p.startswith(below + "/")}
            if below and not inside:
                self._refuse(404, "EntryNotFound")
                return
            folders = sorted({"/".join(path.split("/")[:n]) for path in inside for n in range(1, path.count("/") + 1)})
            entries = [{"type": "directory", "path": path, "size": 0, "oid": "0" * 40} for path in folders]
            entries += [file.entry(path) for path, file in inside.items()]
            if query.get("recursive") != ["true"]:
                depth = below.count("/") + 1 if below else 0
                entries = [entry for entry in entries if entry["path"].count("/") == depth]
            self._page(entries, query)

    def _page(self, entries: list[Any], query: Mapping[str, list[str]]) -> None:
        start = int(query.get("cursor", ["0"])[0])
        end = start + self.hub.page
        headers = {}
        if end < len(entries):
            kept = "".join(f"&{name}={quote(value[0])}" for name, value in query.items() if name != "cursor")
            headers["Link"] = f'<{self.hub.url}{urlsplit(self.path).path}?cursor={end}{kept}>; rel="next"'
        self._json(entries[start:end], headers)

    def _resolve(self, kind: str, id: str, revision: str, path: str) -> None:
        repo = self._repo(kind, id, files=True)
        sha = self._commit(repo, revision) if repo is not None else None
        if repo is None or sha is None:
            return
        file = repo.commits[sha].get(path)
        if file is None:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": sha})
            return
        headers = {"X-Repo-Commit": sha, "ETag": f'"{file.oid}"', "Accept-Ranges": "bytes"}
        if file.lfs:
            headers |= {
                "X-Linked-Size": str(file.size),
                "X-Linked-ETag": f'"{file.sha256}"',
                "Location": f"{self.hub.cdn}/cdn/{file.sha256}?signature=x",
            }
            self._send(302, b"", headers)
            return
        self._file(file, headers)

    def _cdn(self, sha256: str) -> None:
        for repo in self.hub.repos.values():
            for files in repo.commits.values():
                for file in files.values():
                    if file.lfs and file.sha256 == sha256:
                        self._file(file, {"ETag": f'"{sha256}"', "Accept-Ranges": "bytes"})
                        return
        self._refuse(404, "")

    # Answers.

    def _file(self, file: File, headers: Mapping[str, str]) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        start, end, status = 0, file.size, 200
        if asked and not (self.fault and self.fault.deaf):
            start, end, status = int(asked[1]), min(file.size, int(asked[2] or file.size) + 1), 206
            if start >= file.size:
                self._send(416, b"", {"Content-Range": f"bytes */{file.size}"})
                return
            headers = {**headers, "Content-Range": f"bytes {start}-{end - 1}/{file.size}"}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if self.command != "HEAD":
            self._body(file, start, end)

    def _body(self, file: File, start: int, end: int) -> None:
        fault = self.fault or Fault("")
        sent, limit = 0, fault.cut if fault.cut is not None else fault.reset
        at = 0
        for piece in _pieces(file.content):
            low, high = max(start - at, 0), min(end - at, len(piece))
            view = memoryview(piece)
            while low < high:
                step = min(_CHUNK, high - low)
                if limit is not None:
                    step = min(step, limit - sent)
                chunk = view[low : low + step]
                if fault.flip is not None and at + low <= fault.flip < at + low + step:
                    changed = bytearray(chunk)
                    changed[fault.flip - at - low] ^= 1
                    chunk = memoryview(changed)
                if fault.slow:
                    time.sleep(fault.slow)
                self.hub.pay(step)
                self.wfile.write(chunk)
                low, sent = low + step, sent + step
                if sent == limit:
                    self._hang_up(hard=fault.reset is not None)
                    return
            at += len(piece)

    def _hang_up(self, *, hard: bool) -> None:
        self.close_connection = True
        if hard:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_WR)

    def _json(self, value: Any, headers: Mapping[str, str] | None = None) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _refuse(self, status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None) -> None:
        more = {"X-Error-Code": code} if code else {}
        more |= {"X-Error-Message": message} if message else {}
        self._send(status, b"", {**more, **(headers or {})})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
