"""`marin aquery`: the actions of targets, with all that is in their keys and all that is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from marin_cas.action import Action, Resources, Source
from marin_cas.analysis.resources import described
from marin_cas.cli.options import defines, output_option, select_options
from marin_cas.cli.patterns import PatternCommand
from marin_cas.cli.session import Session
from marin_cas.cli.standing import Standings
from marin_cas.query.query import run, shorthand
from marin_cas.ui import dryrun, out, values, words

_SECTIONS = ("recipe", "inputs", "outputs", "settings", "execution")


@click.command("aquery", cls=PatternCommand)
@click.argument("expression", nargs=-1, required=True)
@output_option("text", "json", "jsonl")
@select_options
def command(expression: tuple[str, ...], output: str, define: tuple[str, ...], profile: str | None) -> None:
    """Show the actions of the targets that a query names: `//exp:tiny`, `deps(//exp:tiny)`, `kind(train_lm, //...)`.

    `recipe` and the digests of `inputs` are the key, together with `outputs`; `settings` and `execution` never are.
    The key is missing while an input is not built; the fingerprint is always known.
    """
    session = Session({"define": defines(define), "profile": profile})
    config = session.config
    found = run(shorthand(expression), session.loader, session.package, config.define, config.profile)
    labels = [label for label in found.labels if session.is_target(label)]
    standings = Standings.of(session, labels)
    ids = dict.fromkeys(id for label in labels for id in standings.target(label).actions)
    records = [_record(standings, standings.analysis.actions[id]) for id in ids]
    if not records:
        out.note("no actions: what the query names runs nothing")
    match output:
        case "json":
            out.data(values.dumps(records))
        case "jsonl":
            out.text("".join(values.dumps(record, indent=None) + "\n" for record in records))
        case _:
            out.text("\n".join("\n".join(_lines(record)) + "\n" for record in records))


def _record(standings: Standings, action: Action) -> dict[str, object]:
    key, result = standings.keys.get(action.id), standings.results.get(action.id)
    recipe: dict[str, object] = {
        "tool": action.tool,
        "revision": action.revision,
        "params": dict(action.params),
        "env": dict(action.env),
        "toolchain": dict(action.toolchain),
    }
    if action.version is not None:
        recipe["version"] = action.version
    return {
        "action": action.id,
        "label": str(action.label),
        "rule": action.rule,
        "location": str(action.location),
        "artifact": action.artifact,
        "outcome": action.outcome,
        "key": key.hex if key else None,
        "fingerprint": action.fingerprint,
        "provisional": action.provisional,
        "unresolved": [str(need) for need in action.unresolved],
        "built": result is not None,
        "recipe": recipe,
        "inputs": {name: _input(standings, action, name) for name in action.inputs},
        "outputs": {
            name: {
                "kind": spec.kind,
                "reporting": spec.reporting,
                "digest": result.outputs[name].digest if result and name in result.outputs else None,
            }
            for name, spec in action.outputs.items()
        },
        "settings": dict(action.settings),
        "execution": {
            "executor": "local",
            "process": "fresh" if action.heavy else "forked",
            "resources": described(action.resources),
            "secrets": list(action.secrets),
            "tags": list(action.tags),
            "code": list(action.code.paths) if action.code else [],
        },
    }


def _input(standings: Standings, action: Action, name: str) -> dict[str, object]:
    source = action.inputs[name]
    if isinstance(source, Source):
        return {"kind": source.kind, "digest": source.digest, "sources": list(source.paths)}
    known = standings.inputs(action).get(name)
    return {
        "kind": source.kind,
        "digest": known.digest if known else None,
        "producer": source.action,
        "output": source.output,
    }


def _lines(record: Mapping[str, object]) -> Iterator[str]:
    key, fingerprint = record["key"], record["fingerprint"]
    yield f"{record['action']}  ({record['rule']}, {record['location']})"
    missing = "marin.lock lacks what it needs" if record["provisional"] else "an input is not built"
    yield f"  key          {key or f'not known: {missing}'}"
    provisional = "  (provisional: run `marin lock`)" if record["provisional"] else ""
    yield f"  fingerprint  {values.to_json(fingerprint)}{provisional}"
    yield f"  artifact     {record['artifact']}  ({record['outcome']}, {'built' if record['built'] else 'not built'})"
    for section in _SECTIONS:
        held = record[section]
        if isinstance(held, Mapping) and held:
            if isinstance(stated := held.get("resources"), Mapping):
                asked = Resources(**{field: stated[field] for field in Resources.__slots__})
                yield f"  resources    {dryrun.resources(asked)}"
            shown = _short(section, held)
            yield f"  {section}:"
            yield from (f"    {line}" for line in (shown if isinstance(shown, list) else values.lines(shown)))


def _short(section: str, held: Mapping[str, object]) -> list[str] | Mapping[str, object]:
    """Inputs and outputs on a line each; other sections without what is empty."""
    if section not in ("inputs", "outputs"):
        return {name: item for name, item in held.items() if item not in ({}, [], None, ()) and name != "resources"}
    rows = []
    for name, item in held.items():
        fields: Mapping[str, object] = item  # type: ignore[assignment]
        digest = str(fields["digest"] or "not built")[: 12 if fields["digest"] else None]
        rows.append([name, str(fields["kind"]), digest, _origin(fields)])
    return words.table(rows)


def _origin(fields: Mapping[str, object]) -> str:
    if "producer" in fields:
        return f"from {fields['producer']} ({fields['output']})"
    if "sources" in fields:
        paths: list[str] = fields["sources"]  # type: ignore[assignment]
        return f"from {', '.join(paths[:3])}" + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    return "reporting" if fields["reporting"] else ""
