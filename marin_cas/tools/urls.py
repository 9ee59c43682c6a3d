"""Files behind URLs: http(s) straight, buckets and folders through fsspec. Nothing here knows what a lock says.

What is worth another try is a Transient, whatever else goes wrong a ToolError that names the URL.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from marin_cas.tools.fetching import Body
from marin_cas.tools.patience import Patience, Transient, asked_wait
from marin_cas.worker.context import ToolError

_BLOCK = 8 << 20
_CHUNK = 1 << 20
_CONNECT_S, _READ_S = 20.0, 60.0
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_NEEDS = {"gs": ("gcsfs", "gcs"), "s3": ("s3fs", "s3"), "file": ("fsspec", "gcs")}


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there: `name` below what was listed; `edition` changes when it does, as far as the store tells."""

    url: str
    name: str
    size: int
    edition: str


@dataclass(slots=True)
class Urls:
    """Used from several threads."""

    patience: Patience
    _systems: dict[str, Any] = field(default_factory=dict)
    _client: Any = None

    def under(self, prefix: str) -> list[Found]:
        """Every file under a prefix, sorted by the bytes of its name."""

        def once() -> list[Found]:
            with _told(prefix):
                return self._list(prefix)

        return self.patience.insist(once, f"`{prefix}`")

    @contextmanager
    def open(self, url: str, offset: int = 0) -> Iterator[Body]:
        """Its bytes from `offset` on. Raises Transient or ToolError, while it is read too."""
        if _is_web(url):
            with self._web(url, offset) as body:
                yield body
            return
        with _told(url):
            system = self._system(url)
            with system.open(_path(url), "rb", block_size=_BLOCK, cache_type="readahead") as file:
                file.seek(offset)
                yield Body(offset, iter(lambda: file.read(_CHUNK), b""), getattr(file, "size", None))

    def _list(self, prefix: str) -> list[Found]:
        system, root = self._system(prefix), _path(prefix).rstrip("/")
        scheme = prefix.partition("://")[0]
        found = []
        for path, info in system.find(root, detail=True).items():
            path = path.removeprefix(f"{scheme}://")
            name = path.removeprefix(root.lstrip("/") if scheme != "file" else root).lstrip("/")
            if info["type"] != "file" or not name or path.endswith("/"):
                continue  # what a console leaves for an empty folder
            if any(part in ("", ".", "..") for part in name.split("/")):
                raise ToolError(f"`{prefix}` holds `{name}`, which no folder can")
            found.append(Found(f"{prefix}{name}", name, int(info["size"]), _edition(info)))
        if not found:
            raise ToolError(f"there is nothing under `{prefix}`")
        return sorted(found, key=lambda file: os.fsencode(file.name))

    def _system(self, url: str) -> Any:
        scheme = url.partition("://")[0]
        if scheme not in self._systems:
            self._systems[scheme] = _file_system(scheme)
        return self._systems[scheme]

    @contextmanager
    def _web(self, url: str, offset: int) -> Iterator[Body]:
        import httpx

        if self._client is None:
            self._client = httpx.Client(follow_redirects=True, timeout=httpx.Timeout(_READ_S, connect=_CONNECT_S))
        headers = {"accept-encoding": "identity", **({"range": f"bytes={offset}-"} if offset else {})}
        try:
            with self._client.stream("GET", url, headers=headers) as response:
                status = response.status_code
                if status in _BUSY:
                    raise Transient(
                        f"the server answered {status} {response.reason_phrase}", asked_wait(response.headers)
                    )
                if status == 416:
                    raise ToolError(f"`{url}` is shorter than it was when it was locked")
                if status not in (200, 206):
                    raise ToolError(
                        f"`{url}`: the server answers {status} {response.reason_phrase}",
                        hint="is it still there, and open to everybody?" if status in (401, 403, 404, 410) else None,
                    )
                length = response.headers.get("content-length") if status == 200 else None
                whole = int(length) if length and length.isdigit() else None
                yield Body(offset if status == 206 else 0, response.iter_raw(), whole)
        except httpx.HTTPError as error:
            raise Transient(str(error) or type(error).__name__) from None


def _is_web(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _path(url: str) -> str:
    """What fsspec calls it: without the scheme."""
    return urlsplit(url).path if url.startswith("file://") else url.partition("://")[2]


def _edition(info: dict[str, Any]) -> str:
    for name in ("generation", "etag", "ETag", "md5Hash", "mtime", "LastModified"):
        if info.get(name):
            return f"{name} {info[name]}"
    return ""


def _file_system(scheme: str) -> Any:
    # Before its import, or an emulator is asked over gRPC for a minute.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    distribution, extra = _NEEDS[scheme]
    try:
        import fsspec

        if scheme == "gs" and os.environ.get("STORAGE_EMULATOR_HOST"):
            options |= {"token": "anon", "project": "none"}
        if scheme == "s3":
            import botocore.session

            # What everybody may read needs no account, but the library would insist on one.
            options["anon"] = botocore.session.get_session().get_credentials() is None
        return fsspec.filesystem(scheme, **options)
    except ImportError:
        raise ToolError(
            f"`{scheme}://` needs `{distribution}`, which is not installed here",
            hint=f"`pip install 'marin-cas[{extra}]'`",
            environment=True,
        ) from None


@contextmanager
def _told(url: str) -> Iterator[None]:
    """What a file system raises, as one of ours."""
    try:
        yield
    except (ToolError, Transient):
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise ToolError(f"`{url}` is not there", hint="is it spelled right, and was it removed?") from None
    except IsADirectoryError:
        raise ToolError(f"`{url}` is a folder, no file", hint="a folder's URL ends in `/`") from None
    except PermissionError as error:
        raise ToolError(
            f"`{url}` may not be read: {error}", hint="set the credentials of an account that may (see `secrets`)"
        ) from None
    except Exception as error:  # each library has its own
        kind = type(error)
        if isinstance(error, OSError) and error.errno in _OURS:
            raise  # from where the bytes go, not from where they come
        if kind.__module__.partition(".")[0] in ("builtins", "marin_cas") and not isinstance(error, OSError):
            raise
        if kind.__name__ in ("NoCredentialsError", "DefaultCredentialsError", "RefreshError"):
            raise ToolError(f"`{url}`: no credentials: {error}", hint="see `secrets`") from None
        if getattr(error, "code", None) in (400, 401, 403) or getattr(error, "status", None) in (400, 401, 403):
            raise ToolError(f"`{url}` may not be read: {error}") from None
        raise Transient(str(error) or kind.__name__) from None
