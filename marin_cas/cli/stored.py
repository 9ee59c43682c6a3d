"""The file or tree that a person names: of a target, a key or `name@version`, or a blob; and a path inside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from marin_cas.action import Built
from marin_cas.cache.cache import Cache
from marin_cas.cli.session import Session
from marin_cas.cli.standing import Standings
from marin_cas.cli.what import find
from marin_cas.digest import Digest
from marin_cas.errors import BuildError, IntegrityError, RequestError, did_you_mean
from marin_cas.label import Label, parse_label
from marin_cas.recipe import FILE, TREE
from marin_cas.result import Output
from marin_cas.store.base import MissingBlob
from marin_cas.tree.entries import DirEntry, FileEntry, LinkEntry, Tree
from marin_cas.tree.walk import entry_at, read_tree

# What a digest alone names: a tree when its record is one.
_RECORD = 64 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """`text` is what it was called, `rebuild` the command that makes its bytes again when they are gone, `taint` what
    somebody said is wrong with the result that it is of."""

    text: str
    kind: str
    digest: Digest
    executable: bool = False
    rebuild: str | None = None
    taint: str | None = None

    def gone(self, missing: MissingBlob) -> BuildError:
        """The error for a result that outlived its bytes."""
        return BuildError(
            f"the bytes of `{self.text}` are gone: {missing.message}",
            hint=f"`{self.rebuild}` makes them again" if self.rebuild else None,
        )


def stored(session: Session, text: str) -> Stored:
    """What `text` names: `WHAT[%OUTPUT][/PATH/INSIDE]`.

    Raises RequestError for what is nothing or more than one thing, BuildError for what is not built or whose records
    are gone, IntegrityError for a damaged one.
    """
    whole, inside = _whole(session, text)
    if not inside:
        return whole
    if whole.kind != TREE:
        raise RequestError(f"`{whole.text}` is a file, and has no `{inside}` in it")
    try:
        return _inside(session.cache, whole, inside)
    except MissingBlob as missing:
        raise whole.gone(missing) from None


def _whole(session: Session, text: str) -> tuple[Stored, str]:
    """The file or tree named, and the path inside it."""
    if text.startswith(("//", ":", "@")):
        name, output, inside = _split_label(session, text)
        label = session.target(name)
        return _chosen(name, output, _outputs_of(session, label), f"marin build {label}"), inside
    head, at, tail = text.partition("@")
    if not at:
        head, tail = "", text
    name, _, inside = tail.partition("/")
    name, _, output = name.partition("%")
    what = find(session, head + at + name)
    if what.hash is not None:
        return _blob(session.cache, what.text, what.hash), inside
    standing = session.cache.actions.standing(what.keys[0])
    if standing.choice is None:
        raise BuildError(f"`{text}` has no result")
    result = standing.choice.result
    rebuild = f"marin build {result.label}" if result.label else None
    chosen = _chosen(head + at + name, output, result.outputs, rebuild)
    return replace(chosen, taint=standing.taint.said() if standing.taint else None), inside


def _split_label(session: Session, text: str) -> tuple[str, str, str]:
    """Label, output, and path inside. Both names of targets and paths inside may have slashes: the longest target."""
    name, percent, rest = text.partition("%")
    if percent:
        output, _, inside = rest.partition("/")
        return name, output, inside
    at = len(text)
    while at > 0:
        if _is_target(session, text[:at]):
            return text[:at], "", text[at + 1 :]
        at = text.rfind("/", 0, at)
    package, colon, name = text.rpartition(":")
    return package + colon + name.partition("/")[0] if colon else text, "", ""


def _is_target(session: Session, text: str) -> bool:
    try:
        return session.is_target(parse_label(text, session.package))
    except ValueError:
        return False


def _outputs_of(session: Session, label: Label) -> dict[str, Output]:
    standings = Standings.of(session, [label])
    target = standings.target(label)
    outputs: dict[str, Output] = {}
    for name, artifact in target.outputs.items():
        if not isinstance(artifact, Built):
            raise RequestError(
                f"`{label}` is made of files of the workspace, which are not in the store", where=target.target.location
            )
        result = standings.results.get(artifact.action)
        if result is None or artifact.output not in result.outputs:
            raise BuildError(
                f"`{label}` is not built as it is declared now",
                where=target.target.location,
                hint=f"`marin build {label}`; an older result is named by its key (`marin why {label}`)",
            )
        outputs[name] = result.outputs[artifact.output]
    return outputs


def _chosen(text: str, output: str, outputs: Mapping[str, Output], rebuild: str | None) -> Stored:
    names = [name for name, each in outputs.items() if not each.reporting] or list(outputs)
    if not output and len(names) == 1:
        output = names[0]
    if output in outputs:
        made = outputs[output]
        return Stored(f"{text}%{output}" if len(names) > 1 else text, made.kind, made.digest, rebuild=rebuild)
    if output:
        hint = did_you_mean(output, outputs) or f"its outputs: {', '.join(outputs) or 'none'}"
        raise RequestError(f"`{text}` has no output `{output}`", hint=hint)
    if not outputs:
        raise RequestError(f"`{text}` has no outputs of its own")
    raise RequestError(
        f"`{text}` has {len(names)} outputs, and one is wanted",
        hint="name it: " + ", ".join(f"`{text}%{name}`" for name in names),
    )


def _blob(cache: Cache, text: str, hash: bytes) -> Stored:
    digest = cache.store.known(hash.hex())
    if digest is None:
        raise BuildError(f"`{text}`: the store does not have it any more")
    kind = FILE
    if digest.size <= _RECORD and (record := cache.store.read(digest)) is not None:
        try:
            Tree.parse(record)
            kind = TREE
        except IntegrityError:
            pass
    return Stored(text, kind, digest)


def _inside(cache: Cache, whole: Stored, inside: str) -> Stored:
    path = inside.strip("/")
    text = f"{whole.text}/{path}"
    if not path:
        return whole
    match entry_at(cache.store, whole.digest, path):
        case FileEntry() as file:
            return replace(whole, text=text, kind=FILE, digest=file.digest, executable=file.executable)
        case DirEntry() as folder:
            return replace(whole, text=text, digest=folder.digest)
        case LinkEntry() as link:
            raise RequestError(f"`{text}` is a link to `{link.target}`", hint="name what it leads to")
    # The first part that is not there, beside what is.
    at, done = whole.digest, ""
    for part in path.split("/"):
        entries = {entry.name: entry for entry in read_tree(cache.store, at).entries}
        entry = entries.get(part)
        if entry is None:
            hint = did_you_mean(part, entries) or f"`marin cache cat {whole.text}{done}` lists what there is"
            raise RequestError(f"`{whole.text}{done}` has no `{part}` in it", hint=hint)
        done = f"{done}/{part}"
        if not isinstance(entry, DirEntry):
            break
        at = entry.digest
    raise RequestError(f"`{whole.text}{done}` is no folder")
