"""Files behind URLs: what a lock says of them, what is fetched, and what is refused when it has changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin_cas.digest import Digest
from marin_cas.tools import patience, resolve, url_download
from marin_cas.tools.manifest import Manifest
from marin_cas.tools.patience import Patience
from marin_cas.tools.urls import Urls
from marin_cas.worker.context import ToolContext, ToolError
from tests.hub import buckets
from tests.hub.conftest import Beside
from tests.hub.server import Fault, Hub

LARGE = random.Random(1).randbytes(2_500_000)
FILES = {"a.txt": b"a\n", "deep/er/b.bin": LARGE, "deep/c d.txt": b"c", "ü.txt": b""}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_S", 0.01)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[buckets.Bucket]:
    with buckets.google(tmp_path_factory.mktemp("gcs")) as bucket:
        yield bucket


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[buckets.Bucket]:
    with buckets.seaweed(tmp_path_factory.mktemp("s3")) as bucket:
        yield bucket


def locked(kind: str, url: str) -> str:
    """What `marin lock` would write."""
    return resolve.answer(None, Urls(Patience(4)), kind, url)  # type: ignore[arg-type]


@pytest.fixture
def get(tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """Fetches URLs by what the lock says of each; each call is one more attempt."""
    attempts: list[Path] = []

    def run(**locks: str) -> dict[str, bytes]:
        place = tmp_path / f"at{len(attempts)}"
        (place / "out").mkdir(parents=True)
        (place / "scratch").mkdir()
        earlier = tuple(reversed(attempts))
        attempts.append(place / "scratch")
        sources = [
            {"name": "", "manifest": lock} if url.endswith("/") else {"name": url.split("/")[-1], "content": lock}
            for url, lock in locks.items()
        ]
        context = ToolContext(
            {"sources": sources}, {"urls": list(locks)}, {}, {"files": place / "out"}, place / "scratch", earlier
        )
        url_download.run(context)
        return {
            p.relative_to(place / "out").as_posix(): p.read_bytes() for p in (place / "out").rglob("*") if p.is_file()
        }

    return run


def test_a_manifest_is_names_sizes_and_contents() -> None:
    one = Manifest.of({"b": Digest.of(b"1"), "a/x": Digest.of(b"22")})
    assert one == Manifest.of({"a/x": Digest.of(b"22"), "b": Digest.of(b"1")}) == Manifest.parse(str(one))
    assert str(one).endswith(", 2 files, 3 bytes")
    assert one.digest not in (Manifest.of({"b": Digest.of(b"1"), "a": Digest.of(b"22")}).digest, Digest.of(b""))
    with pytest.raises(ValueError, match="not what a lock says"):
        Manifest.parse("x, 2 files, 3 bytes")


def check_store(url: str, write: Callable, remove: Callable, get: Callable) -> None:
    """Files and prefixes of one store, as they are and as they change."""
    write(FILES)
    prefix, file = locked("prefix", url), locked("url", f"{url}deep/er/b.bin")
    assert file == str(Digest.of(LARGE))
    assert prefix == str(Manifest.of({name: Digest.of(data) for name, data in FILES.items()}))
    assert get(**{url: prefix}) == FILES
    assert get(**{f"{url}deep/er/b.bin": file, f"{url}deep/": locked("prefix", f"{url}deep/")}) == {
        "b.bin": LARGE,
        "er/b.bin": LARGE,
        "c d.txt": b"c",
    }
    write({"a.txt": b"b\n"})
    with pytest.raises(
        ToolError, match=r"the names and sizes add up as in marin\.lock, but not the contents"
    ) as caught:
        get(**{url: prefix})
    assert caught.value.hint and f"marin lock --upgrade={url}" in caught.value.hint
    write({"a.txt": b"longer\n", "deep/er/b.bin": LARGE[1:]})
    with pytest.raises(ToolError, match=r"says 4 files with 2500003 bytes, and there are 4 files with 2500007 bytes"):
        get(**{url: prefix})
    with pytest.raises(ToolError, match="2500000 bytes, and it has 2499999 bytes now"):
        get(**{f"{url}deep/er/b.bin": file})
    write({"deep/er/b.bin": LARGE[1:] + b"x"})
    with pytest.raises(
        ToolError, match=r"has changed: marin.lock says \w{12} with 2500000 bytes, and it is \w{12} with"
    ):
        get(**{f"{url}deep/er/b.bin": file})
    remove("deep/er/b.bin")
    for asked in (lambda: get(**{f"{url}deep/er/b.bin": file}), lambda: locked("url", f"{url}deep/er/b.bin")):
        with pytest.raises(ToolError, match=r"b.bin` is not there"):
            asked()
    with pytest.raises(ToolError, match=r"there is nothing under|is not there"):
        locked("prefix", f"{url}nowhere/")


def test_folders(tmp_path: Path, get) -> None:
    root = tmp_path / "some where"
    root.mkdir()

    def write(files: dict[str, bytes]) -> None:
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)

    check_store(f"file://{root}/", write, lambda name: (root / name).unlink(), get)
    with pytest.raises(ToolError, match="is a folder, no file"):
        locked("url", f"file://{root}/deep")


def test_google_storage(google: buckets.Bucket, get, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in google.env.items():
        monkeypatch.setenv(name, value)
    check_store(google.url, google.write, google.remove, get)


@pytest.mark.slow
def test_s3(seaweed: buckets.Bucket, get, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweed.env.items():
        monkeypatch.setenv(name, value)
    check_store(seaweed.url, seaweed.write, seaweed.remove, get)


def test_web_servers(hub: Hub, get) -> None:
    commit = hub.repo("me/data").commit({"a.bin": LARGE, "b.txt": b"b", "c.bin": LARGE[1:]})
    base = f"{hub.url}/datasets/me/data/resolve/{commit}"
    hub.faults = [Fault("GET .*b.txt", times=2, status=503), Fault("GET /cdn", cut=1_000_000)]
    locks = {f"{base}/{name}": locked("url", f"{base}/{name}") for name in ("a.bin", "b.txt")}
    assert locks[f"{base}/a.bin"] == str(Digest.of(LARGE))
    hub.faults = [Fault("GET /cdn", cut=1_000_000), Fault("GET /cdn", flip=2_000_000), Fault("GET .*b.txt", status=429)]
    assert get(**locks) == {"a.bin": LARGE, "b.txt": b"b"}
    with pytest.raises(ToolError, match="2500000 bytes, and it has 2499999 bytes now"):
        get(**{f"{base}/c.bin": locks[f"{base}/a.bin"]})
    with pytest.raises(ToolError, match="the server answers 404 Not Found"):
        get(**{f"{base}/d.bin": locks[f"{base}/a.bin"]})
    hub.faults = [Fault("GET /cdn", times=99, reset=0)]
    with pytest.raises(ToolError, match=r"`a.bin`: .* \(6 times\)") as caught:
        get(**{f"{base}/a.bin": locks[f"{base}/a.bin"]})
    assert caught.value.environment


def test_a_prefix_is_fetched_once_more_when_a_byte_was_flipped(get, tmp_path: Path, monkeypatch) -> None:
    root = tmp_path / "d"
    root.mkdir()
    (root / "a").write_bytes(b"one")
    lock, real, opened = locked("prefix", f"file://{root}/"), Urls.open, []

    def flipped(self: Urls, url: str, offset: int = 0):
        opened.append(url)
        if len(opened) == 1:
            (root / "b").write_bytes(b"two")
            return real(self, url[:-1] + "b", offset)
        return real(self, url, offset)

    monkeypatch.setattr(Urls, "open", flipped)
    assert get(**{f"file://{root}/": lock}) == {"a": b"one"}
    assert len(opened) == 2


def test_two_prefixes_with_one_name_are_refused(get, tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same").write_bytes(b"1")
    urls = [f"file://{tmp_path}/{folder}/" for folder in ("x", "y")]
    with pytest.raises(ToolError, match="two of the sources have a file `same`"):
        get(**{url: locked("prefix", url) for url in urls})


def test_declared_locked_built_and_changed(beside: Beside, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("one\n")
    (source / "b.txt").write_text("two\n")
    beside.mini.write({"d/b.txt": "two\n", "d/a.txt": "one\n"})
    load = 'load("@marin//rules:data.bzl", "raw_download")\n'

    def declare(*urls: str) -> None:
        beside.mini.write({"exp/BUILD.marin": f'{load}raw_download(name = "raw", urls = {list(urls)})\n'})

    declare(f"file://{source}/a.txt", f"file://{source}/b.txt")
    assert "`file://" in beside.run("build", "//exp:raw", code=2).err
    said = beside.ok("lock")
    assert f"file://{source}/a.txt: (not locked) -> {Digest.of(b'one\n')}" in said.out
    assert beside.mini.counts("//exp:raw")["executed"] == 1
    out = beside.mini.root / "cache/out/exp/raw"
    assert sorted(p.name for p in out.iterdir()) == ["a.txt", "b.txt"]
    # The same bytes elsewhere are the same result; the whole folder is another tree only by what it holds.
    declare(f"file://{beside.mini.root}/d/a.txt", f"file://{beside.mini.root}/d/b.txt")
    beside.ok("lock")
    assert beside.mini.counts("//exp:raw")["executed"] == 0
    assert str(source) not in (beside.mini.root / "marin.lock").read_text(), "what nothing needs is dropped"
    declare(f"file://{source}/")
    beside.ok("lock")
    assert ", 2 files, 8 bytes" in (beside.mini.root / "marin.lock").read_text()
    (source / "a.txt").write_text("new\n")
    failed = beside.run("build", "//exp:raw", code=1)
    assert f"`file://{source}/` has changed" in failed.err and "marin lock --upgrade=" in failed.err
    beside.ok("lock", f"--upgrade=file://{source}/")
    beside.ok("build", "//exp:raw")
    assert (out / "a.txt").read_text() == "new\n"
