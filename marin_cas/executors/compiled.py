"""Where this machine keeps what its tools have compiled: it saves time and bears on nothing else.

Code compiled for one processor may crash on another, so each kind of processor has a folder of its own.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path

FOLDER = "compiled"
_VARIABLE = "JAX_COMPILATION_CACHE_DIR"


def compilation_cache(cache: Path, environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables that name the folder, and the folder, made if absent. The user's own choice of one counts."""
    chosen = environ.get(_VARIABLE)
    if chosen is not None and "://" in chosen:
        return {_VARIABLE: chosen}, ()
    folder = (Path(chosen) if chosen else cache / FOLDER / _processor()).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    # Tiny models spend most of their time in compilations of less than the second that is worth keeping by default.
    return {_VARIABLE: str(folder), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}, (str(folder),)


def _processor() -> str:
    told = [platform.machine(), platform.processor()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().partition("\n\n")[0].splitlines()
        told += [line for line in first if line.startswith(("model name", "flags", "Features", "CPU part"))]
    except OSError:
        pass
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]
