"""The accelerators that an attempt can ask for: 39 TPU types with chips and hosts, and names of GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from marin_cas.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class Host:
    """One host machine of a TPU generation: cores, GiB of memory, and GiB of HBM of each of its chips."""

    cpu: int
    ram_gib: int
    hbm_gib: int


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice of a TPU type."""

    chips: int
    hosts: int
    host: Host


_HOSTS = {
    "v4": Host(240, 400, 32),
    "v5litepod": Host(112, 192, 16),
    "v5p": Host(208, 448, 95),
    "v6e": Host(180, 720, 32),
}
# A larger type is made of hosts with four chips each; the smallest of some generations are one host.
_CHIPS_A_HOST = 4
_CORES_A_CHIP = {"v4": 2, "v5p": 2}  # types of these generations are named by cores, the others by chips
_ONE_HOST = {"v5litepod": 8, "v6e": 8}
_SIZES = {
    "v4": (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
    "v5litepod": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "v5p": (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288),
    "v6e": (1, 4, 8, 16, 32, 64, 128, 256),
}


def _slices() -> Iterator[tuple[str, Slice]]:
    for generation, sizes in _SIZES.items():
        for size in sizes:
            chips = size // _CORES_A_CHIP.get(generation, 1)
            hosts = 1 if size <= _ONE_HOST.get(generation, 0) else chips // _CHIPS_A_HOST
            yield f"{generation}-{size}", Slice(chips, hosts, _HOSTS[generation])


TPUS: Mapping[str, Slice] = dict(_slices())
GPUS = ("A10", "A100-40G", "A100-80G", "A10G", "B100", "H100", "H200", "L4", "T4", "V100", "auto")


def unknown(device: str, variant: str) -> tuple[str, str] | None:
    """What is wrong with a variant of a `tpu` or a `gpu`, and a hint; None for one that exists."""
    names = TPUS if device == "tpu" else GPUS
    if variant in names:
        return None
    generation, dash, size = variant.partition("-")
    if generation == "v5e" and f"v5litepod-{size}" in names:
        return f"there is no TPU `{variant}`", f"did you mean `v5litepod-{size}`?"
    if dash and generation in _SIZES and device == "tpu":
        hint = f"{generation} has {', '.join(f'{generation}-{known}' for known in _SIZES[generation])}"
        return f"there is no TPU `{variant}`", hint
    longer = [name for name in names if variant and name.startswith(variant.upper())]
    near = f"did you mean {' or '.join(f'`{name}`' for name in longer)}?" if longer else did_you_mean(variant, names)
    kinds = ", ".join(f"{name}-N" for name in _SIZES) if device == "tpu" else ", ".join(GPUS)
    return f"there is no {device.upper()} `{variant}`", near or f"there are {kinds}"
