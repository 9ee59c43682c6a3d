"""Digests against the `b3sum` program."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas import digest
from marin_cas.digest import Digest, hash_file


@pytest.mark.skipif(shutil.which("b3sum") is None, reason="the b3sum program is not installed")
@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, (1 << 20) - 1, 1 << 20, 3_000_001])
def test_b3sum_prints_the_same(tmp_path, size):
    path = tmp_path / "blob"
    path.write_bytes(bytes(i * 7 % 251 for i in range(size)))
    expected = subprocess.run(["b3sum", "--no-names", path], capture_output=True, text=True, check=True).stdout.strip()
    for exclusive in (False, True):
        digest = hash_file(path, exclusive=exclusive)
        assert (digest.hex, digest.size) == (expected, size)
    assert Digest.of(path.read_bytes()) == digest


@pytest.mark.parametrize("left", [0, 1 << 20, 65 << 20])
def test_a_file_that_cannot_be_read_to_its_end_does_not_end_the_process(tmp_path, monkeypatch, left):
    # A disk that fails below a mapping raises SIGBUS, as does a mapping beyond the end of its file.
    path = tmp_path / "blob"
    path.write_bytes(b"x")
    os.truncate(path, 66 << 20)
    real = mmap.mmap

    def mapped_and_cut(*args, **named):
        mapped = real(*args, **named)
        os.truncate(path, left)
        return mapped

    monkeypatch.setattr(mmap, "mmap", mapped_and_cut)
    assert hash_file(path, exclusive=True) == Digest.of(path.read_bytes())


def test_without_a_kernel_that_can_map_safely_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "blob"
    path.write_bytes(bytes(3 << 20))
    monkeypatch.setattr(digest, "_POPULATE_READ", 9999)
    assert hash_file(path, exclusive=True) == Digest.of(bytes(3 << 20))


@given(st.binary(max_size=100))
def test_text_and_record_forms_round_trip(data):
    digest = Digest.of(data)
    assert Digest.parse(str(digest)) == digest
    assert Digest.from_record(digest.to_record()) == digest


@pytest.mark.parametrize("text", ["", "ab", "0" * 64, "g" * 64 + "-1", "0" * 64 + "--1", "0" * 64 + "-x"])
def test_what_is_not_a_digest_is_refused(text):
    with pytest.raises(ValueError, match=r"not a digest|non-hexadecimal"):
        Digest.parse(text)


@pytest.mark.parametrize("field", [None, [], [b"x", 1], [b"0" * 32, -1], [b"0" * 32, True], [b"0" * 32, 1, 2]])
def test_what_is_not_a_digest_field_is_refused(field):
    with pytest.raises(ValueError, match="not a digest field"):
        Digest.from_record(field)
