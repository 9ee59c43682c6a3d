"""The stat cache: right or silent, whatever is done to the files or to the database."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from marin_cas.cache.stats import StatCache
from marin_cas.digest import Digest
from marin_cas.tree.sources import hash_file_source

OLD_NS = 1 << 62  # "taken" long after the file was last changed


def known(path: Path, data: bytes = b"text") -> tuple[os.stat_result, Digest]:
    path.write_bytes(data)
    return path.stat(), Digest.of(data)


def test_remembers_over_processes(tmp_path: Path) -> None:
    st, digest = known(tmp_path / "f")
    cache = StatCache(tmp_path / "sub/state.db")
    assert cache.digest_of("f", st) is None
    cache.remember("f", st, digest, OLD_NS)
    assert cache.digest_of("f", st) == digest
    cache.close()
    again = StatCache(tmp_path / "sub/state.db")
    assert again.digest_of("f", st) == digest
    again.close()


def test_nothing_is_opened_before_it_is_asked(tmp_path: Path) -> None:
    StatCache(tmp_path / "state.db").close()
    assert not (tmp_path / "state.db").exists()


def test_young_files_are_read_again(tmp_path: Path) -> None:
    st, digest = known(tmp_path / "f")
    cache = StatCache(tmp_path / "state.db")
    cache.remember("f", st, digest, st.st_mtime_ns + 1_000_000)
    assert cache.digest_of("f", st) is None
    cache.remember("f", st, digest, st.st_mtime_ns + 100_000_000)
    assert cache.digest_of("f", st) == digest
    cache.close()


def test_files_of_file_systems_that_tick_in_seconds(tmp_path: Path) -> None:
    st, digest = known(tmp_path / "f")
    whole = st.st_mtime_ns // 1_000_000_000 * 1_000_000_000
    fields = list(st[:10])

    class Coarse:
        st_dev, st_ino, st_size = st.st_dev, st.st_ino, st.st_size
        st_mtime_ns = st_ctime_ns = whole

    cache = StatCache(tmp_path / "state.db")
    cache.remember("f", Coarse(), digest, whole + 1_500_000_000)  # type: ignore[arg-type]
    assert cache.digest_of("f", Coarse()) is None  # type: ignore[arg-type]
    cache.remember("f", Coarse(), digest, whole + 2_500_000_000)  # type: ignore[arg-type]
    assert cache.digest_of("f", Coarse()) == digest  # type: ignore[arg-type]
    assert fields
    cache.close()


@pytest.mark.parametrize("change", ["content", "same size", "touch", "mode", "replaced", "mtime put back"])
def test_any_change_is_seen(tmp_path: Path, change: str) -> None:
    path = tmp_path / "f"
    st, digest = known(path)
    cache = StatCache(tmp_path / "state.db")
    cache.remember("f", st, digest, OLD_NS)
    time.sleep(0.02)
    match change:
        case "content":
            path.write_bytes(b"longer text")
        case "same size":
            path.write_bytes(b"TEXT")
        case "touch":
            os.utime(path)
        case "mode":
            path.chmod(0o755)
        case "replaced":
            (tmp_path / "g").write_bytes(b"TEXT")
            os.utime(tmp_path / "g", ns=(st.st_atime_ns, st.st_mtime_ns))
            (tmp_path / "g").rename(path)
        case "mtime put back":
            path.write_bytes(b"TEXT")
            os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    assert cache.digest_of("f", path.stat()) is None
    cache.close()


def test_with_sources(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"text")
    os.utime(tmp_path / "f", (1, 1))
    cache = StatCache(tmp_path / "state.db")
    time.sleep(0.1)  # older than the clock's grain
    assert hash_file_source(tmp_path, "f", cache) == Digest.of(b"text")
    assert cache.digest_of("f", (tmp_path / "f").stat()) == Digest.of(b"text")
    cache.close()


def damage_bytes(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def damage_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:4000] = b"\xff" * 3900
    path.write_bytes(bytes(data))


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_schema(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE stats")
        database.execute("CREATE TABLE stats (x)")


def damage_version(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")


def damage_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [damage_bytes, damage_middle, damage_empty, damage_schema, damage_version, damage_folder]
)
def test_damage_is_never_an_error(tmp_path: Path, damage: object) -> None:
    st, digest = known(tmp_path / "f")
    cache = StatCache(tmp_path / "state.db")
    cache.remember("f", st, digest, OLD_NS)
    cache.close()
    damage(tmp_path / "state.db")  # type: ignore[operator]
    cache = StatCache(tmp_path / "state.db")
    assert cache.digest_of("f", st) in (None, digest)
    cache.remember("f", st, digest, OLD_NS)
    assert cache.digest_of("f", st) == digest
    cache.close()


@pytest.mark.parametrize("damage", [damage_bytes, damage_version])
def test_a_damaged_database_is_made_anew(tmp_path: Path, damage: object) -> None:
    st, digest = known(tmp_path / "f")
    for cache in (StatCache(tmp_path / "state.db"), StatCache(tmp_path / "state.db")):
        cache.remember("f", st, digest, OLD_NS)
        cache.close()
        damage(tmp_path / "state.db")  # type: ignore[operator]
    StatCache(tmp_path / "state.db").digest_of("f", st)  # finds the damage and removes it
    cache = StatCache(tmp_path / "state.db")
    cache.remember("f", st, digest, OLD_NS)
    cache.close()
    assert StatCache(tmp_path / "state.db").digest_of("f", st) == digest


def test_a_locked_database_is_not_waited_for(tmp_path: Path) -> None:
    st, digest = known(tmp_path / "f")
    StatCache(tmp_path / "state.db").digest_of("f", st)
    with sqlite3.connect(tmp_path / "state.db") as other:
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        cache = StatCache(tmp_path / "state.db")
        assert cache.digest_of("f", st) is None
        cache.remember("f", st, digest, OLD_NS)
        cache.close()
        assert time.monotonic() - began < 5
    assert (tmp_path / "state.db").exists()


def test_inode_numbers_of_64_bits(tmp_path: Path) -> None:
    class Big:
        st_dev, st_ino, st_size = 1, (1 << 64) - 5, 4
        st_mtime_ns = st_ctime_ns = 17

    cache = StatCache(tmp_path / "state.db")
    cache.remember("f", Big(), Digest.of(b"text"), OLD_NS)  # type: ignore[arg-type]
    cache.close()
    assert StatCache(tmp_path / "state.db").digest_of("f", Big()) == Digest.of(b"text")  # type: ignore[arg-type]


def test_many_at_once_are_what_each_is(tmp_path: Path) -> None:
    looks, cache = [], StatCache(tmp_path / "state.db")
    for n in range(1_200):
        (tmp_path / f"{n}").write_bytes(b"%d" % n)
        looks.append((tmp_path / f"{n}").stat())
        if n % 3:
            cache.remember("", looks[-1], Digest.of(b"%d" % n), OLD_NS)
        if n == 600:
            cache.flush()  # some are in the database, some only learnt
    (tmp_path / "4").write_bytes(b"another")
    looks[4] = (tmp_path / "4").stat()
    answers = cache.digests_of(looks)
    assert answers == [cache.digest_of("", st) for st in looks]
    assert answers == [Digest.of(b"%d" % n) if n % 3 and n != 4 else None for n in range(1_200)]
