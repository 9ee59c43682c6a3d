"""What may happen to a blob, and what builds owe their user then: right bytes, or exit code 4 and a message."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from marin_cas.digest import hash_file
from tests.cli.conftest import Mini
from tests.cli.inside import run_inside


def _changed(path: Path) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data if path.stat().st_size else b"x")


def truncated(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o200)
    if path.stat().st_size:
        os.truncate(path, path.stat().st_size // 2)
    else:
        path.write_bytes(b"x")


def flipped(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o200)
    _changed(path)


def mode_restored(path: Path) -> None:
    mode = path.stat().st_mode
    flipped(path)
    path.chmod(mode)


def deleted(path: Path) -> None:
    path.unlink()


def rotten(path: Path) -> None:
    """Changed by the disk itself: no time moves."""
    before = path.stat()
    mode_restored(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


KINDS: dict[str, Callable[[Path], None]] = {
    "truncated": truncated,
    "flipped": flipped,
    "mode restored": mode_restored,
    "deleted": deleted,
    "rotten": rotten,
}


def served(mini: Mini) -> None:
    """The next build finds everything as it left it."""


def laid_out_again(mini: Mini) -> None:
    """The next build has every requested output to lay out."""
    subprocess.run(["rm", "-rf", mini.root / "cache/out", mini.root / "cache/trees"], check=True)


@dataclass(frozen=True, slots=True)
class Sound:
    """A workspace that was built, kept as it was. `again` is the target whose run reads what the others made. `unlike`
    are outputs, below `out/`, that come out differently each time."""

    mini: Mini
    targets: Sequence[str]
    again: str
    unlike: tuple[str, ...] = ()

    def blobs(self) -> list[str]:
        return sorted(path.name for path in (self.mini.root / "cache/cas").glob("*/*"))

    def copy(self, folder: Path) -> Mini:
        # Links between the store and what is laid out stay links.
        subprocess.run(["cp", "-a", self.mini.root, folder / "w"], check=True)
        return Mini(folder / "w", self.mini.home)


def outputs(mini: Mini, unlike: tuple[str, ...]) -> dict[str, bytes]:
    """All that people see, by its path below `out/`, but what is unlike."""
    found: dict[str, bytes] = {}
    for folder, _, files in os.walk(mini.root / "cache/out", followlinks=True):
        for name in files:
            path = Path(folder, name)
            if not (place := str(path.relative_to(mini.root / "cache/out"))).startswith(unlike):
                found[place] = path.read_bytes()
    return found


def suffer(sound: Sound, folder: Path, blob: str, kind: str, *, fresh: bool, again: bool) -> bool:
    """Damages a blob of a copy, builds, repairs, builds; whether the damage stopped the first build.

    `fresh`: outputs are to be laid out; `again`: what reads the others' outputs runs. Raises AssertionError for wrong
    bytes, another exit code, a message that does not say what is damaged, or what stays damaged.
    """
    mini, expected = sound.copy(folder), outputs(sound.mini, sound.unlike)
    cache = mini.root / "cache"
    # A request that was never made: an unchanged one looks at no blob, and is answered without.
    (cache / "snapshot").unlink(missing_ok=True)
    if fresh:
        laid_out_again(mini)
    path = cache / "cas" / blob[:2] / blob
    KINDS[kind](path)
    flags = ["--again", sound.again] if again else []
    stopped = False
    if kind != "rotten":
        ran = run_inside(mini, "build", *sound.targets, *flags, code=None)
        stopped = ran.code == 4
        if stopped:
            assert kind != "deleted", ran.err
            assert blob[:12] in ran.err, ran.err
            assert re.search(r"//\w*:\w+", ran.err), ran.err
            assert "marin cache verify" in ran.err, ran.err
        else:
            assert ran.code == 0, ran.err
            assert outputs(mini, sound.unlike) == expected
    verified = run_inside(mini, "cache", "verify", code=None)
    damaged = path.exists() and _is_wrong(path)
    assert verified.code == (4 if damaged else 0), verified.out + verified.err
    assert not damaged or blob[:12] in verified.out
    assert damaged or not stopped
    run_inside(mini, "cache", "verify", "--repair")
    run_inside(mini, "build", *sound.targets)
    assert outputs(mini, sound.unlike) == expected
    run_inside(mini, "cache", "verify")
    return stopped


def _is_wrong(path: Path) -> bool:
    return hash_file(path).hex != path.name.removesuffix(".x")
