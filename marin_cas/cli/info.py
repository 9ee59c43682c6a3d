"""`marin info`: the workspace, its configuration and where each value came from, the lock, this machine."""

from __future__ import annotations

import platform
import sys
from dataclasses import fields

import click

from marin_cas import __version__
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.config import Config
from marin_cas.ui import machine, out, values, words
from marin_cas.worker.landlock import abi


@click.command("info")
@output_option("text", "json")
def command(output: str) -> None:
    """Show the workspace, its configuration and this machine."""
    facts = _facts(Session())
    out.data(values.dumps(facts) if output == "json" else _text(facts))


def _facts(session: Session) -> dict[str, dict[str, object]]:
    locked = session.lock.toolchain
    here = machine.installed(locked)
    config = session.config
    # What holds where nothing is given.
    in_force = {
        "jobs": config.jobs or machine.cores(),
        "ram": config.ram or machine.ram(),
        "compilation_cache": str(session.workspace.compilation_cache),
    }
    return {
        "workspace": {"root": str(session.root), "cache": str(session.workspace.cache), "package": session.package},
        "program": {"marin-cas": __version__, "python": platform.python_version(), "executable": sys.executable},
        "machine": {
            "platform": platform.platform(terse=True),
            "cores": machine.cores(),
            "ram": machine.ram(),
            "landlock": abi() or None,
        },
        "lock": {
            "present": session.lock.present,
            "toolchain": {
                name: {"locked": version, "installed": here[name]} for name, version in sorted(locked.items())
            },
        },
        "config": {
            item.name: {
                "value": in_force.get(item.name, getattr(config, item.name)),
                "from": config.sources[item.name],
            }
            for item in fields(Config)
            if item.name != "sources"
        },
    }


def _text(facts: dict[str, dict[str, object]]) -> str:
    workspace, program, computer = facts["workspace"], facts["program"], facts["machine"]
    sandbox = f"yes (version {computer['landlock']})" if computer["landlock"] else "no: writes are not confined"
    rows = [
        ["workspace", str(workspace["root"])],
        ["cache", str(workspace["cache"])],
        ["marin-cas", str(program["marin-cas"])],
        ["python", f"{program['python']} ({program['executable']})"],
        ["platform", str(computer["platform"])],
        ["cores", str(computer["cores"])],
        ["memory", words.size(computer["ram"])],  # type: ignore[arg-type]
        ["landlock", sandbox],
    ]
    lines = [*words.table(rows), "", "configuration", *_config(facts["config"]), "", *_lock(facts["lock"])]
    return "\n".join(lines)


def _config(config: dict[str, object]) -> list[str]:
    rows = []
    for name, entry in config.items():
        value, source = entry["value"], entry["from"]  # type: ignore[index]
        rows.append([f"  {name}", _setting(name, value), source])
    return words.table(rows)


def _setting(name: str, value: object) -> str:
    if name in ("ram", "max_size") and isinstance(value, int):
        return words.size(value)
    if name in ("max_age", "gc_grace") and isinstance(value, float):
        return words.seconds(value)
    return _shown(value)


def _shown(value: object) -> str:
    return "-" if value in (None, {}, ()) else value if isinstance(value, str) else values.leaf(value)


def _lock(lock: dict[str, object]) -> list[str]:
    toolchain: dict[str, dict[str, str | None]] = lock["toolchain"]  # type: ignore[assignment]
    if not lock["present"]:
        return ["marin.lock: there is none; `marin lock` writes it"]
    rows = [
        [f"  {name}", f"{entry['locked']}", "" if entry["locked"] == entry["installed"] else _drift(entry["installed"])]
        for name, entry in toolchain.items()
    ]
    drifted = sum(1 for entry in toolchain.values() if entry["locked"] != entry["installed"])
    return [
        f"marin.lock: {words.count(drifted, 'version')} {'differs' if drifted == 1 else 'differ'} here"
        if drifted
        else "marin.lock",
        *words.table(rows),
    ]


def _drift(installed: str | None) -> str:
    return f"here: {installed}" if installed else "not installed here"
