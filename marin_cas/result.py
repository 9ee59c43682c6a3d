"""The record of a finished action: small, kept when its bytes are gone, never in a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from marin_cas.digest import Digest
from marin_cas.encoding import EncodingError, Value, decode_record, encode_record

RESULT_HEADER = "marin-cas result 1"


@dataclass(frozen=True, slots=True)
class Output:
    """`kind` is `file` or `tree`. A `reporting` output is for people: losing it makes nothing hollow."""

    kind: str
    digest: Digest
    reporting: bool = False


@dataclass(frozen=True, slots=True)
class Producer:
    """Who made it. `commit` is None outside git; `environment` is the blob that lists every installed version."""

    user: str
    host: str
    commit: str | None = None
    dirty: bool | None = None
    versions: Mapping[str, str] = field(default_factory=dict)  # marin-cas, python, platform and the recipe's toolchain
    environment: Digest | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What it took: seconds of wall and CPU, peak resident bytes, bytes read, written, downloaded, resources held."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    max_rss: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_downloaded: int = 0
    resources: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """`producer_keys` are the 32-byte keys of every action below this one; times are Unix seconds."""

    key: Digest
    fingerprint: bytes
    outcome: str
    outputs: Mapping[str, Output]
    producer: Producer
    started: float
    finished: float
    cost: Cost = Cost()
    log: Digest | None = None
    producer_keys: tuple[bytes, ...] = ()
    label: str = ""
    artifact: str = ""
    executor: str = "local"
    fence: str = ""
    note: str = ""  # why an equated or accepted result stands here

    def record(self) -> bytes:
        fields: dict[str, Value] = {
            "key": self.key.to_record(),
            "fingerprint": self.fingerprint,
            "outcome": self.outcome,
            "outputs": {n: [o.kind, o.digest.to_record(), o.reporting] for n, o in self.outputs.items()},
            "producer": {
                "user": self.producer.user,
                "host": self.producer.host,
                "commit": self.producer.commit,
                "dirty": self.producer.dirty,
                "versions": dict(self.producer.versions),
                "environment": _optional(self.producer.environment),
            },
            "started": float(self.started),
            "finished": float(self.finished),
            "cost": {
                "wall_s": float(self.cost.wall_s),
                "cpu_s": float(self.cost.cpu_s),
                "max_rss": self.cost.max_rss,
                "bytes_in": self.cost.bytes_in,
                "bytes_out": self.cost.bytes_out,
                "bytes_downloaded": self.cost.bytes_downloaded,
                "resources": dict(self.cost.resources),
            },
            "log": _optional(self.log),
            # One byte string, so that a chain of thousands stays cheap to read.
            "producer_keys": b"".join(sorted(self.producer_keys)),
            "label": self.label,
            "artifact": self.artifact,
            "executor": self.executor,
            "fence": self.fence,
            "note": self.note,
        }
        return encode_record(RESULT_HEADER, fields)

    @classmethod
    def parse(cls, record: bytes) -> Result:
        """The result in a record. Raises EncodingError when it is not one."""
        try:
            # Untyped: whatever is not as expected raises one of the errors below.
            fields: dict[str, Any] = dict(cast(Any, decode_record(RESULT_HEADER, record)))
            producer, cost, keys = dict(fields["producer"]), dict(fields["cost"]), fields["producer_keys"]
            producer["environment"] = _parse_optional(producer["environment"])
            fields["producer"] = Producer(**producer)
            fields["cost"] = Cost(**cost)
            fields["key"] = Digest.from_record(fields["key"])
            fields["log"] = _parse_optional(fields["log"])
            fields["outputs"] = {
                name: Output(kind, Digest.from_record(digest), reporting)
                for name, (kind, digest, reporting) in fields["outputs"].items()
            }
            fields["producer_keys"] = tuple(keys[i : i + 32] for i in range(0, len(keys), 32))
            return cls(**fields)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise EncodingError(f"not a result: {error}") from None


def _optional(digest: Digest | None) -> Value:
    return None if digest is None else digest.to_record()


def _parse_optional(value: object) -> Digest | None:
    return None if value is None else Digest.from_record(value)
