"""The number of a cache's format: new, older, newer, damaged, foreign folders, and upgrades that are cut short."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_cas.cache.cache import open_cache
from marin_cas.cache.format import FORMAT, UPGRADES, open_format
from marin_cas.digest import Digest
from marin_cas.disk import DISK, Disk
from marin_cas.errors import EnvironmentProblem, RequestError
from marin_cas.store.faulty import FaultyDisk
from marin_cas.store.temporary import Temporary

LINE = f"marin-cas cache {FORMAT}\n"


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def open_as(root: Path, upgrades: list[Callable[[str, Disk], None]], disk: Disk = DISK) -> None:
    open_format(root, disk, Temporary(root / "tmp", disk), upgrades)


def test_a_new_cache_says_its_format(tmp_path: Path) -> None:
    open_cache(tmp_path / "deep" / "cache")
    assert (tmp_path / "deep/cache/format").read_text() == LINE
    open_cache(tmp_path / "deep" / "cache")


def test_a_cache_from_before_there_were_numbers_is_taken_over(tmp_path: Path) -> None:
    digest = open_cache(tmp_path).store.put(b"kept")
    (tmp_path / "format").unlink()
    (tmp_path / "notes of mine").write_text("")
    again = open_cache(tmp_path)
    assert (tmp_path / "format").read_text() == LINE
    assert again.store.read(digest) == b"kept"


@pytest.mark.parametrize("left", [b"", b"\0" * 18, b"marin-ca", b"marin-cas cache 1\0"])
def test_what_a_power_cut_leaves_of_the_number_is_written_again(tmp_path: Path, left: bytes) -> None:
    open_cache(tmp_path)
    for name in ("ac", "cas"):
        (tmp_path / "format").write_bytes(left)
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        for other in ("roots/pins", "taints", "verify"):
            (tmp_path / other).mkdir(parents=True, exist_ok=True)
        open_cache(tmp_path)
        assert (tmp_path / "format").read_text() == LINE


def test_a_newer_cache_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "format").write_text(f"marin-cas cache {FORMAT + 1}\n")
    with pytest.raises(EnvironmentProblem) as caught:
        open_cache(tmp_path)
    assert f"made by a newer marin-cas (format {FORMAT + 1}); this one knows {FORMAT}" in caught.value.message
    assert "update marin-cas" in str(caught.value.hint)
    assert names(tmp_path) == ["format"]


@pytest.mark.parametrize(
    "text", ["marin-cas cache one\n", "restic 2\n", LINE + LINE, "marin-cas cache 1 ", "\n", "1\n"]
)
def test_a_damaged_number_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "format").write_text(text)
    with pytest.raises(EnvironmentProblem, match="does not say which format") as caught:
        open_cache(tmp_path)
    assert "delete that file" in str(caught.value.hint)
    assert names(tmp_path) == ["format"]


def test_a_folder_of_other_things_is_not_filled(tmp_path: Path) -> None:
    for name in ("thesis.tex", "figures"):
        (tmp_path / name).mkdir()
    with pytest.raises(RequestError) as caught:
        open_cache(tmp_path)
    assert f"`{tmp_path}` is no cache, and it is not empty: it holds `figures` and 1 more" in caught.value.message
    assert names(tmp_path) == ["figures", "thesis.tex"]


def test_what_people_put_beside_a_cache_is_fine(tmp_path: Path) -> None:
    # A checked-in README and .gitignore, a fresh disk's own folder, what a first run may leave before it opens one.
    for name in ("README.md", ".gitignore", "lost+found", "CACHEDIR.TAG", "jax", "bug-1.txt", "tmp"):
        (tmp_path / name).mkdir()
    open_cache(tmp_path)
    assert (tmp_path / "format").read_text() == LINE


def test_a_file_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(EnvironmentProblem, match="cache"):
        open_cache(tmp_path / "cache")


# Upgrades


def first(root: str, disk: Disk) -> None:
    if os.path.exists(f"{root}/old"):
        disk.rename(f"{root}/old", f"{root}/new")


def second(root: str, disk: Disk) -> None:
    if not os.path.exists(f"{root}/extra"):
        disk.write(f"{root}/extra", b"of format 3")


STEPS = [*UPGRADES, first, second]


def old_cache(root: Path, number: int) -> None:
    (root / "cas").mkdir(parents=True)
    (root / "old").write_text("data")
    if number:
        (root / "format").write_text(f"marin-cas cache {number}\n")


@pytest.mark.parametrize("number", [0, 1])
def test_each_step_runs_once(tmp_path: Path, number: int) -> None:
    old_cache(tmp_path, number)
    open_as(tmp_path, STEPS)
    assert (tmp_path / "format").read_text() == "marin-cas cache 3\n"
    assert (tmp_path / "new").read_text() == "data"
    calls: list[str] = []
    open_as(tmp_path, STEPS, FaultyDisk(calls.append))
    assert not calls


def test_an_upgrade_cut_short_anywhere_goes_on(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    for n in range(1, 100):
        root, left = tmp_path / str(n), n
        old_cache(root, 0)

        def before(call: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        try:
            open_as(root, STEPS, FaultyDisk(before))
        except Killed:
            # The number never promises what is not there.
            number = (root / "format").read_text() if (root / "format").exists() else ""
            assert number < "marin-cas cache 2" or (root / "new").exists()
            assert number < "marin-cas cache 3" or (root / "extra").exists()
            open_as(root, STEPS)
        else:
            assert n > 12
            break
        assert (root / "format").read_text() == "marin-cas cache 3\n"
        assert (root / "new").read_text() == "data"
        assert (root / "extra").read_text() == "of format 3"


def test_a_step_is_on_disk_before_its_number(tmp_path: Path) -> None:
    old_cache(tmp_path, 1)
    calls: list[str] = []
    open_as(tmp_path, [*UPGRADES, first], FaultyDisk(calls.append))
    assert calls.index("sync") < calls.index("write") < len(calls) - 1 - calls[::-1].index("rename")


@pytest.mark.parametrize("old", [False, True])
def test_first_opens_at_once(tmp_path: Path, old: bool) -> None:
    root = tmp_path / "cache"
    if old:
        old_cache(root, 0)
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)}
    command = [sys.executable, __file__, str(root)]
    processes = [subprocess.Popen(command, env=environ, stdin=subprocess.PIPE) for _ in range(6)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait() for process in processes] == [0] * 6
    assert (root / "format").read_text() == "marin-cas cache 3\n"
    assert not list((root / "tmp").iterdir())


def test_opening_a_cache_of_today_writes_no_number(tmp_path: Path) -> None:
    open_cache(tmp_path)
    before = (tmp_path / "format").stat()
    open_cache(tmp_path).store.put(b"x")
    after = (tmp_path / "format").stat()
    assert (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns)
    assert Digest.of(b"x").hex[:2] in os.listdir(tmp_path / "cas")


if __name__ == "__main__":
    sys.stdin.read()  # until all have started
    open_as(Path(sys.argv[1]), STEPS)
    open_as(Path(sys.argv[1]), STEPS)
