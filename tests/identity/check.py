"""Proves that attributes which bear no identity change neither a key nor a byte, or names the ones that do.

Everything is built twice, in workspaces with caches of their own: as declared, and with every such attribute of every
target changed at once. Where the two differ, each attribute is changed alone to find the culprit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.identity.analysed import analysed
from tests.identity.space import Declared, Space
from tests.identity.table import Other

KEY, WORKER, BYTES = "changes the key", "does not reach the worker", "changes bytes"
CONDITIONS = "(where it runs)"
INPUTS = "(its inputs)"
ANALYSIS_ONLY = {"expected_fingerprint"}  # compared with what analysis finds: no worker is told

type Choice = tuple[str, str]  # a target's name and one of its attributes


@dataclass(frozen=True, slots=True)
class Finding:
    action: str
    attribute: str
    what: str


@dataclass(frozen=True)
class Check:
    """`free` are the other values by target name and attribute; `opaque` names outputs that no comparison is due to,
    by rule. `more` are roots that are built as declared only.
    """

    declared: Space
    changed: Space
    targets: Sequence[Declared]
    free: Mapping[str, Mapping[str, Other]]
    roots: Sequence[str]
    more: Sequence[str] = ()
    opaque: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def build(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The reports of both builds."""
        self.declared.write(self.targets)
        self.changed.write(self.with_changes(self.choices))
        return (
            self.declared.build(*self.roots, *self.more, options=["--keep-work"]),
            self.changed.build(*self.roots, options=["--keep-work"]),
        )

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        return tuple((target.name, name) for target in self.targets for name in self.free.get(target.name, ()))

    def with_changes(self, choices: Iterable[Choice]) -> list[Declared]:
        """All targets, those attributes changed."""
        wanted = set(choices)
        return [
            Declared(
                target.name,
                target.rule,
                {
                    **target.attrs,
                    **{
                        name: other.value.replace("{name}", target.name)
                        for name, other in self.free.get(target.name, {}).items()
                        if (target.name, name) in wanted
                    },
                },
            )
            for target in self.targets
        ]

    @cached_property
    def records(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What both workspaces say of the actions that both have built."""
        left, right = self.declared.actions(), self.changed.actions()
        return {id: left[id] for id in left if right[id]["built"]}, right

    def findings(self) -> list[Finding]:
        """Everything that is wrong, by action, producers first. Empty when identity is what it says."""
        found: dict[str, list[Finding]] = {}
        told: set[str] = set()  # actions whose difference is theirs or comes from an input that has been told of
        otherwise: list[Mapping[str, Any]] = []  # what made other bytes of its own accord
        left, right = self.records
        for id, one in left.items():
            other = right[id]
            found[id] = [Finding(id, name, WORKER) for name in self._unreached(one, other)]
            if told.intersection(source.get("producer", "") for source in one["inputs"].values()):
                told.add(id)
                continue
            if one["fingerprint"] != other["fingerprint"]:
                found[id] += [Finding(id, name, KEY) for name in self._key_culprits(id, one["fingerprint"])]
            elif one["key"] != other["key"]:
                found[id].append(Finding(id, INPUTS, KEY))
            elif self._differs(one, other):
                otherwise.append(one)
            else:
                continue
            told.add(id)
        for id, names in self._byte_culprits(otherwise).items():
            found[id] += [Finding(id, name, BYTES) for name in names]
        return [finding for findings in found.values() for finding in findings]

    # Reached.

    def _unreached(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
        before, after = sent(self.declared.root, one), sent(self.changed.root, other)
        names = self.free.get(_name(one), {})
        return [name for name in names if name not in ANALYSIS_ONLY and before.get(name) == after.get(name)]

    # Keys.

    def _key_culprits(self, id: str, fingerprint: str) -> list[str]:
        space = Space(
            self.changed.root.with_name(f"{self.changed.root.name}-keys"), self.changed.files, self.changed.loads
        )
        names = []
        for choice in self.choices:
            space.write(self.with_changes([choice]))
            if analysed(space.root).actions[id].fingerprint.hex() != fingerprint:
                names.append(self._shown(id, choice))
        return names or ["(several together)"]

    # Bytes.

    def _differs(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        return any(
            output["digest"] != other["outputs"][name]["digest"]
            for name, output in one["outputs"].items()
            if not self._unlike(one, name)
        )

    def _unlike(self, record: Mapping[str, Any], output: str) -> bool:
        """Whether an output need not come out the same."""
        return record["outputs"][output]["reporting"] or output in self.opaque.get(record["rule"], ())

    def _byte_culprits(self, records: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        """Runs these actions once more for each attribute alone, of their targets and of targets that run nothing."""
        if not records:
            return {}
        culprits: dict[str, list[str]] = {record["action"]: [] for record in records}
        names = {_name(record) for record in records}
        idle = {target.name for target in self.targets} - {_name(each) for each in self.records[0].values()}
        trials = {
            name: [choice for choice in self.choices if choice[1] == name and choice[0] in names]
            for _, name in self.choices
        }
        trials |= {f"{name} of {target}": [(target, name)] for target, name in self.choices if target in idle}
        try:
            # Without any change first: then it is the machine's doing, or that it does not reproduce at all.
            for id in self._runs_otherwise(records, []):
                culprits[id].append(CONDITIONS)
            for shown, choices in trials.items():
                if choices:
                    for id in self._runs_otherwise(
                        [r for r in records if CONDITIONS not in culprits[r["action"]]], choices
                    ):
                        culprits[id].append(shown)
        finally:
            self.declared.write(self.targets)
        return {id: found or ["(several together)"] for id, found in culprits.items()}

    def _runs_otherwise(self, records: Sequence[Mapping[str, Any]], choices: Sequence[Choice]) -> list[str]:
        """Which of the actions make other bytes when run with these choices, where the changed workspace runs."""
        if not records:
            return []
        space = Space(
            self.declared.root, self.declared.files, self.declared.loads, self.changed.prefix, self.changed.env
        )
        space.write(self.with_changes(choices))
        labels = [record["label"] for record in records]
        checked = space.build(*labels, options=["--check", "-k"], codes=(0, 1))["checked"]
        return [
            record["action"]
            for record in records
            if any(not self._unlike(record, path.split("/")[1]) for path in checked[record["action"]])
        ]

    def _shown(self, id: str, choice: Choice) -> str:
        target, attribute = choice
        return attribute if id.endswith(f":{target}") else f"{attribute} of {target}"


def _name(record: Mapping[str, Any]) -> str:
    return record["label"].rpartition(":")[2]


def sent(root: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """By attribute, what an action was run with: the worker's own note of it, and for tags what the action holds."""
    (note,) = (root / "cache" / "work" / record["key"]).glob("*/request.json")
    job = json.loads(note.read_text(encoding="utf-8"))
    request = job["request"]
    artifact, _, version = request["artifact"].partition("@")
    return {
        **job["settings"],
        "resources": request["resources"],
        "secrets": request["secrets"],
        "artifact": artifact,
        "version": version,
        "tags": record["execution"]["tags"],
    }
