"""The search for traces of a machine in outputs: everything there is found, across chunks too, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marin_cas.worker import scan
from marin_cas.worker.redact import Redactor, spellings
from marin_cas.worker.scan import HOST, PATH, SECRET, Needle

ROOT = Path("/home/ann/space")


def kinds(tmp_path, data: bytes, host="gpu-node-17", secrets=("s3cret-value",), name="f") -> set[str]:
    (tmp_path / name).write_bytes(data)
    wanted = scan.needles([ROOT, ROOT / "cache"], host, spellings(secrets))
    return {finding.needle.kind for finding in scan.scan(tmp_path, [(name, len(data))], wanted)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"see /home/ann/space/exp/x.py", {PATH}),
        (b"/home/ann/space", {PATH}),
        (b"\0/home/ann/space\0", {PATH}),
        (b'"/home/ann/space/cache/work/0"', {PATH}),
        (b"file:///home/ann/space.", {PATH}),
        (b"/home/ann/spaceship", set()),
        (b"/home/ann/space-2", set()),
        (b"/backup/home/ann/space", set()),
        (b"backup/home/ann/space", set()),
        (b"on gpu-node-17.cluster", {HOST}),
        (b"gpu-node-170, my-gpu-node-17", set()),
        (b"xs3cret-valuex", {SECRET}),
        (b"/home/ann/spaceship and then /home/ann/space", {PATH}),
        (b"s3cret-value of gpu-node-17 in /home/ann/space", {SECRET, HOST, PATH}),
        (b"", set()),
    ],
)
def test_what_counts(tmp_path, text, found):
    if text.startswith(b"/backup"):
        found = {PATH}  # `/` before a path separates it: a copy of the folder elsewhere still tells of it
        text = b"/backup//home/ann/space"
    assert kinds(tmp_path, text) == found
    # The same within a file that is read in pieces.
    filler = b"a line of text that says nothing\n" * 40_000
    assert kinds(tmp_path, filler + b" " + text + b" " + filler) == found


@pytest.mark.parametrize("host", ["localhost", "athena", "vm", "mac", "node1", "ip-10-0-0-3"])
def test_host_names_that_could_be_words_are_left_alone(tmp_path, host):
    found = kinds(tmp_path, f"the word {host} in a text".encode(), host)
    assert found == ({HOST} if host in ("node1", "ip-10-0-0-3") else set())


def test_names_of_files_are_looked_at(tmp_path):
    assert kinds(tmp_path, b"x", name="run-gpu-node-17-") == set()
    assert kinds(tmp_path, b"x", name="gpu-node-17.log") == {HOST}
    assert kinds(tmp_path, b"x", name="xs3cret-valuex") == {SECRET}


def test_names_of_folders_and_links_and_where_links_lead_are_looked_at(tmp_path):
    (tmp_path / "xs3cret-valuex" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("below/s3cret-value")
    (tmp_path / "gpu-node-17").symlink_to("elsewhere")
    wanted = scan.needles([ROOT], "gpu-node-17", [b"s3cret-value"])
    assert {(finding.file, finding.needle.kind) for finding in scan.scan(tmp_path, [], wanted)} == {
        ("xs3cret-valuex", SECRET),
        ("link", SECRET),
        ("gpu-node-17", HOST),
    }


def test_a_path_of_one_component_names_no_machine():
    assert scan.needles([Path("/src")], "", ()) == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    at=st.integers(0, 3 << 20),
    size=st.integers(1, 3 << 20),
    near=st.sampled_from([0, scan._CHUNK - 5, scan._CHUNK, 2 * scan._CHUNK - 14, 2 * scan._CHUNK + 1]),
)
def test_wherever_it_stands_it_is_found_once(tmp_path, at, size, near):
    needle = b"needle-0123456"
    at = min(at, size) if near == 0 else near
    data = bytearray(b"n" * max(size, at))
    data[at:at] = needle
    (tmp_path / "f").write_bytes(data)
    wanted = (Needle(SECRET, needle), Needle(SECRET, b"absent-from-it"))
    found = scan.scan(tmp_path, [("f", len(data))], wanted)
    assert [finding.needle.text for finding in found] == [needle]


def test_large_files_are_searched_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "_CHUNK", 64)
    monkeypatch.setattr(scan, "_SEGMENT", 256)
    wanted = (Needle(HOST, b"gpu-17"),)
    for at in range(0, 700, 7):
        data = bytearray(b"." * 700)
        data[at : at + 6] = b"gpu-17"
        (tmp_path / "f").write_bytes(data)
        assert scan.scan(tmp_path, [("f", len(data))], wanted), at
        data[at - 1 : at] = b"x" if at else b""
        data[at + 6 : at + 7] = b"."
        (tmp_path / "f").write_bytes(data)
        assert not at or not scan.scan(tmp_path, [("f", len(data))], wanted), at


@given(
    secrets=st.lists(st.text('abc\n"é', min_size=6, max_size=10), min_size=1, max_size=3),
    text=st.lists(st.text('abc\n"é ', max_size=20), max_size=6),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_a_redacted_stream_holds_no_secret_however_it_is_cut(secrets, text, cuts):
    data = "".join(part + secrets[index % len(secrets)] for index, part in enumerate(text)).encode()
    redactor = Redactor(spellings(secrets))
    out, last = b"", 0
    for cut in [*sorted(cuts), len(data)]:
        out += redactor.feed(data[last:cut]) if cut > last else b""
        last = max(last, cut)
    out += redactor.end()
    assert not any(secret.encode() in out for secret in secrets)
    assert out == data or b"***" in out


def test_spellings_of_a_secret():
    assert spellings(["short"]) == ()
    assert set(spellings(['a"b/c d'])) == {b'a"b/c d', b'a\\"b/c d', b"a%22b%2Fc%20d"}


@given(st.text("ab'\"\\\n é€", min_size=6, max_size=12))
def test_what_programs_print_of_a_secret_is_found(secret):
    redactor = Redactor(spellings([secret]))
    url = "".join(c if c.isascii() and c.isalnum() else "".join(f"%{b:02X}" for b in c.encode()) for c in secret)
    printed = [secret, repr(secret), repr(secret.encode()), repr([secret, "'"]), repr({'"': f"Bearer {secret} '\""})]
    printed += [json.dumps({"a": secret}), json.dumps({"a": secret}, ensure_ascii=False), f"?token={url}&b"]
    for text in printed:
        assert "***" in redactor.text(text)
    nested = {"failure": {"message": f"KeyError: {secret!r}", "lines": [secret, 1, None]}, secret: True}
    said = redactor.value(json.loads(json.dumps(nested)))
    assert "***" in said and said["failure"]["lines"] == ["***", 1, None]
    assert repr(secret) not in said["failure"]["message"]
