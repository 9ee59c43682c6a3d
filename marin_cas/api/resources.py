"""What an attempt needs: the values of resources.bzl, under the names of Marin's scripts. Never in a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from marin_cas.api.step import call

# Marin's word for "wherever there is room".
ANY_REGION = "*"


@dataclass(frozen=True, slots=True)
class ResourceConfig:
    """`fields` are what `cpu()`, `tpu()` and `gpu()` of resources.bzl return."""

    fields: dict[str, Any]

    @classmethod
    def with_cpu(cls, **options: Any) -> ResourceConfig:
        """A machine: `cpu` cores, `ram`, `disk`, `preemptible`, `regions`."""
        return cls(call("resources.bzl", "cpu", options).value)

    @classmethod
    def with_gpu(cls, variant: str, count: int = 1, **options: Any) -> ResourceConfig:
        """`count` GPUs such as `H100` in one machine."""
        return cls(call("resources.bzl", "gpu", {"variant": variant, "count": count, **options}).value)

    @classmethod
    def with_tpu(cls, variant: str | Sequence[str], *, slice_count: int = 1, **options: Any) -> ResourceConfig:
        """`slice_count` slices such as `v4-128`; of several types any will do."""
        return cls(call("resources.bzl", "tpu", {"variant": variant, "slice_count": slice_count, **options}).value)

    def plain(self) -> dict[str, Any]:
        return self.fields
