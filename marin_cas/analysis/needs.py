"""What rules ask of the outside world: a Hub revision, the content of a URL or of a prefix, as `marin.lock` answers.

Analysis never asks the network. What the lock does not answer is a `Need`; the action that has one is provisional.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from marin_cas.action import Action, Need
from marin_cas.analysis.lock import HUB, PREFIX, URL, Lock
from marin_cas.errors import Location, RequestError, did_you_mean

REPO_TYPES = ("dataset", "model", "space")
SCHEMES = ("https", "http", "gs", "s3", "file")
_SHA = re.compile(r"[0-9a-fA-F]{40}")
# The Hub's own rules: one name or two, no `--` or `..`, no dot or dash at an end, at most 96 characters.
_REPO_NAME = re.compile(r"[A-Za-z0-9_]+(?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_REPO_ID_MAX = 96
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")


def hub_entry(repo_type: str, repo_id: str, revision: str) -> str:
    """The lock's name of a Hub revision. Raises RequestError for what cannot be one."""
    if repo_type not in REPO_TYPES:
        raise RequestError(f"`{repo_type}` is no type of Hub repo", hint=f"it is one of {', '.join(REPO_TYPES)}")
    parts = repo_id.split("/")
    if (
        len(parts) > 2
        or len(repo_id) > _REPO_ID_MAX
        or not all(_REPO_NAME.fullmatch(part) for part in parts)
        or any(pair in repo_id for pair in ("--", ".."))
        or repo_id.endswith(".git")
    ):
        raise RequestError(f"`{repo_id}` is not the id of a Hub repo", hint="it is written `owner/name`")
    if not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision:
        raise RequestError(
            f"`{revision}` is not a revision",
            hint="a commit's 40 digits, the first 7 or more of them, a branch or a tag",
        )
    return f"{repo_type} {repo_id}@{revision}"


def url_entry(url: str, kind: str) -> str:
    """The lock's name of a URL (a file) or a prefix (it ends in `/`). Raises RequestError for what cannot be one."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        hint = (parts.scheme and did_you_mean(parts.scheme, SCHEMES)) or None
        raise RequestError(
            f"`{url}` is not a URL that can be fetched",
            hint=hint or f"it begins with {', '.join(s + '://' for s in SCHEMES)}",
        )
    if parts.password or (parts.username and parts.scheme in ("http", "https")):
        raise RequestError(
            f"a URL of `{parts.hostname}` holds a user name or a password, which would get into marin.lock",
            hint="leave it out, and hand credentials over by `secrets`",
        )
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise RequestError(f"`{url}` is not an absolute path", hint="write `file:///`, then the path from the root")
    elif not parts.netloc:
        raise RequestError(f"`{url}` names no host or bucket")
    if parts.fragment or any(c.isspace() or not c.isprintable() or c in '"\\' for c in url):
        raise RequestError(
            f"`{url}` is not a URL that can be fetched: it has a fragment, a space, a quote or a backslash"
        )
    if "/../" in f"{parts.path}/" or "/./" in f"{parts.path}/":
        raise RequestError(f"`{url}` has a `.` or `..` in its path")
    if (kind == PREFIX) != url.endswith("/"):
        raise RequestError(
            f"`{url}` {'does not end' if kind == PREFIX else 'ends'} in `/`",
            hint="a prefix ends in `/`, a file does not",
        )
    if kind == PREFIX and parts.scheme in ("http", "https"):
        raise RequestError(
            f"`{url}`: what lies under a prefix cannot be listed over {parts.scheme}://", hint="name each file of it"
        )
    if kind == PREFIX and parts.query:
        raise RequestError(f"`{url}` is a prefix and has a query")
    return url


@dataclass(slots=True)
class Answers:
    """What `ctx.lock` gives one target; `missing` are the needs that were met without an answer, in order."""

    lock: Lock
    where: Location
    missing: dict[Need, None] = field(default_factory=dict)
    _taken: int = 0

    def fresh(self) -> tuple[Need, ...]:
        """The needs that were met since this was last called."""
        taken, self._taken = self._taken, len(self.missing)
        return tuple(self.missing)[taken:]

    def ask(self, kind: str, arguments: list[str]) -> str | None:
        """The lock's answer, or None and a need noted. A whole commit is its own answer."""
        if not all(isinstance(argument, str) for argument in arguments):
            raise RequestError(f"`ctx.lock.{kind}` takes strings")
        if kind == HUB:
            repo_type, repo_id, revision = arguments
            name = hub_entry(repo_type, repo_id, revision)
            if _SHA.fullmatch(revision):
                return revision.lower()
        elif kind in (URL, PREFIX):
            name = url_entry(arguments[0], kind)
        else:
            raise RequestError(f"`marin.lock` has no section for `{kind}`")
        answer = self.lock.section(kind).get(name)
        if answer is None:
            self.missing[Need(kind, name, self.where)] = None
        return answer


def needs_of(actions: Iterable[Action]) -> tuple[Need, ...]:
    """The needs of some actions, each once, sorted."""
    return tuple(sorted({need: None for action in actions for need in action.unresolved}))


def refuse_unresolved(actions: Iterable[Action], because: str = "") -> None:
    """Raises RequestError when one of the actions needs what the lock does not say; `because`: why nobody asks now."""
    needs = needs_of(actions)
    if not needs:
        return
    first = needs[0]
    raise RequestError(
        f"`{first}` is not in marin.lock, so its content is not known"
        + (f", and nothing is asked now ({because})" if because else ""),
        where=first.where,
        notes=[f"and `{need}` ({need.where})" for need in needs[1:]],
        hint="run `marin lock` where the network can be reached, then commit marin.lock",
    )
