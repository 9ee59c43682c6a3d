"""What must hold of a loaded graph as a whole: visibility along every edge, and one target a `name@version`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from marin_cas.errors import RequestError
from marin_cas.graph.target import Target
from marin_cas.graph.unfit import Unfit
from marin_cas.graph.visibility import Visibility, parse_visibility
from marin_cas.label import Label
from marin_cas.lang.values import Declaration, Package

_MOST_SHOWN = 20


def raise_all(errors: Sequence[RequestError]) -> None:
    """Raise what was collected, if anything: the first error, with the others as its notes, equal hints once."""
    if not errors:
        return
    first = errors[0]
    if len(errors) == 1:
        raise first
    notes, hints = list(first.notes), {first.hint}
    for error in errors[1:_MOST_SHOWN]:
        text = f"also: {error}"
        if error.hint in hints:
            text = text.removesuffix(f"\n  hint: {error.hint}")
        hints.add(error.hint)
        notes += [line.removeprefix("  ") for line in text.splitlines()]
    if len(errors) > _MOST_SHOWN:
        notes.append(f"and {len(errors) - _MOST_SHOWN} more")
    raise RequestError(first.message, where=first.where, notes=notes, hint=first.hint)


def check_visibility(
    users: Iterable[Target], targets: Mapping[Label, Target], packages: Mapping[str, Package]
) -> Iterator[RequestError]:
    """One error for each target with a wrong visibility list, and for each edge that is not allowed."""
    parsed: dict[tuple[tuple[str, ...], str], Visibility | None] = {}

    def visibility(target: Target) -> Iterator[RequestError]:
        key = (target.visibility, target.label.package)
        if key not in parsed:
            try:
                parsed[key] = parse_visibility(*key)
            except Unfit as error:
                parsed[key] = None
                message = f"the visibility of `{target.label}` {error.text}"
                yield RequestError(message, where=target.location, notes=target.chain, hint=error.hint)

    for user in users:
        yield from visibility(user)
        package = user.folder
        for edge in user.deps:
            if edge.label.package in (package, user.label.package):
                continue
            target = targets.get(edge.label)
            if target is None:
                if edge.label.name not in packages[edge.label.package].exports:
                    yield RequestError(
                        f"`{user.label}` names the file `{edge.label}` of another package, which does not export it "
                        f"(attribute `{edge.attr}`)",
                        where=edge.location,
                        notes=user.chain,
                        hint=f'add `exports_files(["{edge.label.name}"])` to '
                        f"`{packages[edge.label.package].build_file}`",
                    )
                continue
            yield from visibility(target)
            allowed = parsed[target.visibility, target.label.package]
            if allowed is not None and not allowed.allows(package):
                listed = ", ".join(f'"{spec}"' for spec in target.visibility) or "nothing"
                yield RequestError(
                    f"`{target.label}` is not visible to `{user.label}` (attribute `{edge.attr}`)",
                    where=edge.location,
                    notes=(f"{target.location}: `{target.label}` is visible to {listed}", *user.chain),
                    hint=f'add `"//{package}:__pkg__"` to the visibility of `{target.label}`',
                )


def check_refs(targets: Iterable[Target], packages: Mapping[str, Package]) -> Iterator[RequestError]:
    """One error for each `name@version` that two targets of the loaded packages claim, both places named.

    Targets that were not asked for count as well: they would take the same ref as soon as they are built.
    """
    owners: dict[str, tuple[Label, Declaration | Target]] = {}
    known = {target.label: target for target in targets}
    for package in packages.values():
        for declaration in package.declarations.values():
            target = known.get(declaration.label)
            ref = target.ref if target else _declared_ref(declaration)
            if ref is None:
                continue
            other_label, other = owners.setdefault(ref, (declaration.label, declaration))
            if other is declaration:
                continue
            # A script may say what a BUILD file says too: they meet where both are asked for.
            scripts = [packages[label.package].home is not None for label in (other_label, declaration.label)]
            if scripts[0] != scripts[1] and not (other_label in known and declaration.label in known):
                continue
            first, second = sorted([(other_label, other), (declaration.label, declaration)], key=lambda pair: pair[0])
            yield RequestError(
                f"`{first[0]}` and `{second[0]}` both are `{ref}`: a `name@version` belongs to one target",
                where=second[1].location,
                notes=(
                    f"{first[1].location}: `{first[0]}` is `{ref}`",
                    f"{second[1].location}: `{second[0]}` is `{ref}`",
                ),
                hint="give one of them another `artifact` or `version`",
            )


def _declared_ref(declaration: Declaration) -> str | None:
    """The ref of a target that is not in the graph, where it can be told from what is written."""
    specs = declaration.rule.attrs
    if declaration.rule.native or "artifact" not in specs or "version" not in specs:
        return None
    artifact = declaration.attrs.get("artifact") or specs["artifact"].default or declaration.label.path
    version = declaration.attrs.get("version") or specs["version"].default
    return f"{artifact}@{version}" if isinstance(artifact, str) and isinstance(version, str) else None
