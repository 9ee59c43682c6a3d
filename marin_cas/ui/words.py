"""Durations, sizes, counts and times in few words, the same everywhere."""

from __future__ import annotations

import time

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def seconds(value: float) -> str:
    """`0.3 s`, `42 s`, `3 min 05 s`, `2 h 07 min`."""
    if value < 9.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(whole / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(value: int) -> str:
    """`17 B`, `1.5 KiB`, `230 MiB`."""
    if value < 1024:
        return f"{value} B"
    power = min((value.bit_length() - 1) // 10, 5)
    amount = value / 1024**power
    if amount >= 1023.5 and power < 5:
        amount, power = amount / 1024, power + 1
    return f"{amount:.1f} {_UNITS[power]}" if amount < 9.95 else f"{amount:.0f} {_UNITS[power]}"


def count(number: int, noun: str) -> str:
    """`1 target`, `3 targets`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def when(unix: float) -> str:
    """Local date and time, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix))


def clock(unix: float) -> str:
    """Local time of the day; with its date when that is not today's."""
    today = time.strftime("%Y-%m-%d") == time.strftime("%Y-%m-%d", time.localtime(unix))
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", time.localtime(unix))


def ago(unix: float, now: float) -> str:
    """`5 s ago`, `3 h ago`, `12 days ago`."""
    passed = max(0.0, now - unix)
    for limit, unit, noun in ((60, 1, "s"), (3600, 60, "min"), (2 * 86400, 3600, "h")):
        if passed < limit:
            return f"{int(passed // unit)} {noun} ago"
    return f"{int(passed // 86400)} days ago"


def table(rows: list[list[str]]) -> list[str]:
    """Rows as lines with aligned columns; the last column is as long as it likes."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]
