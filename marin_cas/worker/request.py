"""What a worker is asked to run: a key and what bears on its execution. It goes through JSON unchanged.

What determines the outputs is in the recipe, which the key names; nothing here may change an output's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_cas.action import EXACT, Action, Resources
from marin_cas.digest import Digest
from marin_cas.encoding import Value
from marin_cas.worker import plain


@dataclass(frozen=True, slots=True)
class Request:
    """`record` is the recipe's record when the sender has it at hand, else it is read from the store by `key`.

    `pass_env` and `secrets` are names in the driver's environment; the values never enter a request. `machine_env` is
    this machine's own (a compilation cache), `writable` the folders that it names. `fresh` hides earlier scratch.
    """

    key: Digest
    label: str
    fence: str
    fingerprint: bytes = b""
    record: bytes = b""
    outcome: str = EXACT
    artifact: str = ""
    reporting: tuple[str, ...] = ()
    settings: Mapping[str, Value] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    secrets: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()
    machine_env: Mapping[str, str] = field(default_factory=dict)
    writable: tuple[str, ...] = ()
    heavy: bool = False
    code: Digest | None = None
    producer_keys: tuple[bytes, ...] = ()
    keep_work: bool = False
    fresh: bool = False
    timeout: float | None = None

    @classmethod
    def of(cls, action: Action, key: Digest, fence: str, **more: Any) -> Request:
        """The request for an action whose key is known; `more` are the fields that no action has."""
        return cls(
            key=key,
            label=str(action.label),
            fence=fence,
            fingerprint=action.fingerprint,
            outcome=action.outcome,
            artifact=action.artifact,
            reporting=tuple(sorted(name for name, spec in action.outputs.items() if spec.reporting)),
            settings=action.settings,
            resources=action.resources,
            secrets=action.secrets,
            heavy=action.heavy,
            code=action.code.digest if action.code else None,
            **more,
        )

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {name: plain.to_json(getattr(self, name)) for name in _PLAIN}
        fields["key"] = str(self.key)
        fields["code"] = str(self.code) if self.code else None
        fields["resources"] = resources_to_json(self.resources)
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Request:
        """The request that `to_json` gave. Raises ValueError, TypeError or KeyError for anything else."""
        rest = {name: plain.from_json(value) for name, value in fields.items()}
        rest["key"] = Digest.parse(rest["key"])
        rest["code"] = Digest.parse(rest["code"]) if rest["code"] else None
        resources = dict(rest["resources"])
        lists = {name: tuple(resources[name]) for name in ("regions", "alternatives")}
        rest["resources"] = Resources(**{**resources, **lists})
        for name in _TUPLES:
            rest[name] = tuple(rest[name])
        return cls(**rest)


_TUPLES = ("reporting", "secrets", "pass_env", "writable", "producer_keys")
_PLAIN = (
    *_TUPLES,
    "label", "fence", "fingerprint", "record", "outcome", "artifact", "settings", "machine_env", "heavy", "keep_work",
    "fresh", "timeout",
)  # fmt: skip


def resources_to_json(resources: Resources) -> dict[str, Any]:
    return {name: plain.to_json(getattr(resources, name)) for name in Resources.__slots__}
