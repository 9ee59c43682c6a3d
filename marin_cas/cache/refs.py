"""What `name@version` means: the fingerprint that somebody published, which stays, or that a local build had last.

A published ref is created if it is absent, and never changed. Every other one is weak, and moves with each build; that
of a dev version is its user's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from marin_cas.cache.holder import user_name
from marin_cas.cache.small import file_name, read_small, replace_small, small_names
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk, StrPath, disk_problem
from marin_cas.errors import EnvironmentProblem
from marin_cas.store.temporary import Temporary
from marin_cas.versions import is_dev, version_of

_PUBLISHED, _USERS = "published", "users"


@dataclass(frozen=True, slots=True)
class Ref:
    """`name` is `name@version`; `label` is the target that declares it, `key` that of the result it led to.

    `user` owns a dev version, or has published it, on `host` at `time` (Unix seconds).
    """

    name: str
    fingerprint: bytes
    label: str = ""
    published: bool = False
    key: Digest | None = None
    user: str = ""
    host: str = ""
    time: float = 0.0

    @property
    def text(self) -> str:
        """The name as it is found by: that of a dev version below its user."""
        return f"{_USERS}/{self.user}/{self.name}" if self.user and not self.published else self.name


class Refs:
    """One small file a ref: `published/<name>`, `users/<user>/<name>` for dev versions, `<name>` for weak ones.

    Raises EnvironmentProblem when the disk is in the way, or for a published one that is damaged: without it another
    thing could take its name. A weak one that is damaged is made again by the next build.
    """

    def __init__(self, root: StrPath, temporary: Temporary, disk: Disk = DISK) -> None:
        self._root = os.fspath(root)
        self._temporary = temporary
        self._disk = disk

    def get(self, name: str) -> bytes | None:
        """The fingerprint, None when there is no such ref."""
        ref = self.ref(name)
        return None if ref is None else ref.fingerprint

    def ref(self, name: str) -> Ref | None:
        """The published one, or else the weak one (of a dev version: this user's); None when there is none."""
        weak = _parse(read_small(self._path(name)), published=False)
        return self.published(name) or (weak if weak is not None and weak.name == name else None)

    def find(self, text: str) -> Ref | None:
        """The ref called so; `users/<user>/<name>@<version>` is a dev version of that user."""
        if (ref := self.ref(text)) is not None:
            return ref
        users, _, rest = text.partition("/")
        user, slash, name = rest.partition("/")
        if users != _USERS or not slash:
            return None
        ref = _parse(read_small(self._of_user(user, name)), published=False)
        return ref if ref is not None and ref.name == name else None

    def put(self, name: str, fingerprint: bytes, label: str = "", key: Digest | None = None) -> None:
        """Moves the weak ref; nothing is written when it says so already."""
        user = user_name() if is_dev(version_of(name)) else ""
        fields = {"name": name, "fingerprint": fingerprint.hex(), "label": label, "key": _text(key), "user": user}
        replace_small(self._disk, self._temporary, self._path(name), f"{json.dumps(fields)}\n".encode())

    def publish(self, ref: Ref) -> Ref:
        """Publishes the ref unless its name is taken; returns the one that is published then."""
        fields = {
            "name": ref.name,
            "fingerprint": ref.fingerprint.hex(),
            "label": ref.label,
            "key": _text(ref.key),
            "user": ref.user,
            "host": ref.host,
            "time": ref.time,
        }
        path = f"{self._root}/{_PUBLISHED}/{file_name(ref.name)}"
        temporary = self._temporary.name()
        try:
            self._disk.makedirs(os.path.dirname(path))
            self._temporary.prepare()
            self._disk.write(temporary, f"{json.dumps(fields)}\n".encode())
            try:
                # A link and not a rename: a rename would put this one over that of whoever was faster.
                self._disk.link(temporary, path)
            except FileExistsError:
                pass
            finally:
                with suppress(OSError):
                    self._disk.unlink(temporary)
        except OSError as error:
            raise disk_problem(error, path) from error
        standing = self.published(ref.name)
        if standing is None:
            raise EnvironmentProblem(f"`{path}` was removed while it was made", hint="publish it again")
        return standing

    def published(self, name: str) -> Ref | None:
        """The published ref, None when there is none."""
        return self._published(file_name(name))

    def published_names(self) -> frozenset[str]:
        """The file names of all published refs: `is_among` tells whether one is there, without reading it."""
        return frozenset(small_names(f"{self._root}/{_PUBLISHED}"))

    def all(self) -> Iterator[Ref]:
        """Every ref, in the order of their files: the published ones, the other weak ones, those of users."""
        taken = self.published_names()
        for name in sorted(taken):
            if (ref := self._published(name)) is not None:
                yield ref
        folders = [self._root, *(f"{self._root}/{_USERS}/{user}" for user in small_names(f"{self._root}/{_USERS}"))]
        for folder in folders:
            for name in small_names(folder):
                path = f"{folder}/{name}"
                ref = None if name in taken or os.path.isdir(path) else _parse(read_small(path), published=False)
                if ref is not None:
                    yield ref

    def signature(self) -> int:
        """Changes when a ref is published."""
        try:
            return os.stat(f"{self._root}/{_PUBLISHED}").st_mtime_ns
        except FileNotFoundError:
            return 0

    def _published(self, file: str) -> Ref | None:
        path = f"{self._root}/{_PUBLISHED}/{file}"
        data = read_small(path)
        if data is None:
            return None
        ref = _parse(data, published=True)
        if ref is None or file_name(ref.name) != file:
            raise EnvironmentProblem(
                f"`{path}` is damaged: what was published under this name is not known",
                hint="delete the file, and publish again what is meant by the name",
            )
        return ref

    def _path(self, name: str) -> str:
        if is_dev(version_of(name)):
            return self._of_user(user_name(), name)
        return f"{self._root}/{file_name(name)}"

    def _of_user(self, user: str, name: str) -> str:
        return f"{self._root}/{_USERS}/{file_name(user)}/{file_name(name)}"


def is_among(name: str, names: frozenset[str]) -> bool:
    """Whether `name@version` is one of `Refs.published_names()`."""
    return bool(names) and file_name(name) in names


def _text(key: Digest | None) -> str | None:
    return None if key is None else str(key)


def _parse(data: bytes | None, *, published: bool) -> Ref | None:
    if data is None:
        return None
    try:
        fields = json.loads(data)
        key = fields.get("key")
        return Ref(
            str(fields["name"]),
            bytes.fromhex(fields["fingerprint"]),
            str(fields["label"]),
            published,
            None if key is None else Digest.parse(key),
            str(fields.get("user", "")),
            str(fields.get("host", "")),
            float(fields.get("time", 0)),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
