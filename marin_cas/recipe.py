"""The canonical record of all that determines an action's outputs; its digest is the action's key.

Everything that is in a key is a field of `Recipe`, and nothing else is: labels, names, tags, resources, hosts, paths
and times never get here. The fingerprint is the same record with each built input named by its producer instead of
by its bytes, so it is known before anything is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError, Value, decode_record, encode_record

RECIPE_HEADER = "marin-cas recipe 1"
FINGERPRINT_HEADER = "marin-cas fingerprint 1"
KEY_FORMAT = 1

FILE, TREE = "file", "tree"
# A parameter that only a provisional fingerprint has: what `marin.lock` does not say yet. No action with it runs.
UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class Input:
    """An input whose bytes are known. `kind` is `file` or `tree`."""

    kind: str
    digest: Digest


@dataclass(frozen=True, slots=True)
class Pending:
    """An input that another action makes: that action's fingerprint (32 bytes) and the name of its output."""

    kind: str
    producer: bytes
    output: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """The fields of a key. `inputs` are `Input`; with any `Pending` only the fingerprint exists yet.

    `version` is the literal version of a sampled action (every dev version as `dev`), else None.
    """

    tool: str
    revision: int
    params: Mapping[str, Value] = field(default_factory=dict)
    inputs: Mapping[str, Input | Pending] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    toolchain: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None

    def _fields(self, inputs: dict[str, Value]) -> dict[str, Value]:
        fields: dict[str, Value] = {
            "tool": self.tool,
            "revision": self.revision,
            "params": dict(self.params),
            "inputs": inputs,
            "outputs": dict(self.outputs),
            "env": dict(self.env),
            "toolchain": dict(self.toolchain),
        }
        if self.version is not None:
            fields["version"] = self.version
        return fields

    def record(self) -> bytes:
        """The bytes whose digest is the key. Raises ValueError when an input is not built yet."""
        inputs: dict[str, Value] = {}
        for name, source in self.inputs.items():
            if not isinstance(source, Input):
                raise ValueError(f"input `{name}` is not built yet: there is no key")
            inputs[name] = [source.kind, source.digest.to_record()]
        return encode_record(RECIPE_HEADER, self._fields(inputs))

    def key(self) -> Digest:
        return Digest.of(self.record())

    def fingerprint_record(self) -> bytes:
        inputs: dict[str, Value] = {
            name: [source.kind, source.digest.to_record()]
            if isinstance(source, Input)
            else [source.kind, source.producer, source.output]
            for name, source in self.inputs.items()
        }
        return encode_record(FINGERPRINT_HEADER, self._fields(inputs))

    def fingerprint(self) -> bytes:
        """32 bytes, the BLAKE3 of the fingerprint record."""
        return Digest.of(self.fingerprint_record()).hash

    @classmethod
    def parse(cls, record: bytes) -> Recipe:
        """The recipe in a record. Raises EncodingError when it is not one."""
        fields = decode_record(RECIPE_HEADER, record)
        try:
            # Untyped: whatever is not as expected raises one of the errors below.
            rest: dict[str, Any] = dict(cast(Any, fields))
            inputs = {
                name: Input(kind, Digest.from_record(digest)) for name, (kind, digest) in rest.pop("inputs").items()
            }
            return cls(inputs=inputs, **rest)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise EncodingError(f"not a recipe: {error}") from None
