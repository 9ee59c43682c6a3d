"""What it costs to make something again, in one number and in words. Pure.

The number orders deletions and is shown to nobody: seconds of one CPU core. One second of an accelerator counts as 100
of them, a download as its seconds at 20 MB/s.
"""

from __future__ import annotations

import re

from marin_cas.result import Cost

ACCELERATOR_S = 100.0
BYTES_A_SECOND = 20_000_000
# What nothing leads to any more is wanted again one time in ten, say.
UNREACHABLE = 0.1


def price(cost: Cost) -> float:
    """CPU-seconds that stand for the run: its wall time times what it held, and its downloads."""
    count = accelerators(cost)
    cores = _number(cost.resources.get("cpu")) or 1.0
    work = cost.wall_s * count * ACCELERATOR_S if count else max(cost.wall_s * cores, cost.cpu_s)
    return work + cost.bytes_downloaded / BYTES_A_SECOND


def accelerators(cost: Cost) -> int:
    """The chips (for some generations of TPU, cores) that the run held, 0 for a run on CPUs."""
    held = cost.resources
    if held.get("device") not in ("tpu", "gpu"):
        return 0
    count = int(_number(held.get("count")))
    if not count:
        # The size of a TPU slice ends its name: v4-128.
        match = re.search(r"-(\d+)$", str(held.get("variant", "")))
        count = int(match[1]) if match else 1
    return count * max(1, int(_number(held.get("slice_count")) or 1))


def resources(cost: Cost) -> str:
    """What the run held: `8 H100`, `2 v4-128`, `4 CPUs`."""
    held = cost.resources
    variant = str(held.get("variant") or "")
    count, slices = int(_number(held.get("count"))), int(_number(held.get("slice_count")) or 1)
    if held.get("device") == "tpu":
        return " ".join([*([str(count or slices)] if count or slices > 1 else []), variant or "TPU"])
    if held.get("device") == "gpu":
        return f"{count or 1} {variant or 'GPU'}"
    cores = _number(held.get("cpu")) or 1.0
    return f"{cores:g} CPU{'' if cores == 1 else 's'}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
