"""Downloading from a Hub that misbehaves: what comes out is right, or nothing does and the reason is said."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_cas.tools import fetching, hf_download, patience
from marin_cas.worker.context import ToolContext, ToolError
from tests.hub.server import Fault, Hub

LARGE = random.Random(0).randbytes(3_000_000)
FILES = {
    "README.md": b"# a dataset\n",
    "data/train-0.bin": LARGE,
    "data/train-1.bin": LARGE[::-1],
    "data/same.bin": LARGE,
    "data/empty": b"",
    "more/ü b.txt": "ü\n".encode(),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_S", 0.01)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("HF_TOKEN", raising=False)


class Told(list):
    """What the tool reported, in order."""

    def progress(self, done, total, unit, fields) -> None:
        self.append((done, total, unit))


@pytest.fixture
def get(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, bytes]]:
    """Downloads `me/data` at `commit` and gives what came; each call is one more attempt of the same key."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    attempts: list[Path] = []

    def run(commit: str, *globs: str, id: str = "me/data", type: str = "dataset", told: Told | None = None, **more):
        place = tmp_path / str(len(attempts))
        (place / "out").mkdir(parents=True)
        (place / "scratch").mkdir()
        params = {
            "repo_type": type,
            "repo_id": id,
            "commit": commit,
            "globs": globs,
            "optional": [],
            "subset": None,
            "split": None,
            **more,
        }
        earlier = tuple(reversed(attempts))
        attempts.append(place / "scratch")
        context = ToolContext(params, {}, {}, {"files": place / "out"}, place / "scratch", earlier)
        if told is not None:
            object.__setattr__(context, "report", told)
        hf_download.run(context)
        return {
            p.relative_to(place / "out").as_posix(): p.read_bytes() for p in (place / "out").rglob("*") if p.is_file()
        }

    return run


def test_every_file_of_every_type_of_repo(hub: Hub, get) -> None:
    for type in ("dataset", "model", "space"):
        commit, told = hub.repo("me/data", type=type).commit(FILES), Told()
        assert get(commit, type=type, told=told) == FILES
        assert told[-1] == (6_000_015, 6_000_015, "bytes") and told[0][0] == 0
    assert len(hub.requests("GET /cdn/")) == 6, "what lies there under two names is fetched once"
    asked = [request for request in hub.log if "/cdn/" not in request.path]
    assert all(any(c in r.path for repo in hub.repos.values() for c in repo.commits) for r in asked), "by the commit"


def test_pages_patterns_and_what_may_be_missing(hub: Hub, get) -> None:
    hub.page = 2
    commit = hub.repo("me/data").commit(FILES)
    assert set(get(commit, "data/train-*", "*.md")) == {"README.md", "data/train-0.bin", "data/train-1.bin"}
    assert set(get(commit, "*.md", optional=["*.txt", "**/*.txt"])) == {"README.md", "more/ü b.txt"}
    with pytest.raises(ToolError, match=r"no file of the dataset `me/data` matches `data/trian-0.bin`") as caught:
        get(commit, "*.md", "data/trian-0.bin")
    assert caught.value.hint == "did you mean `data/train-0.bin`?"
    with pytest.raises(ToolError) as caught:
        get(commit, "train/**")
    assert caught.value.hint and "it has `README.md`, `data/empty`" in caught.value.hint
    with pytest.raises(ToolError, match="has no files"):
        get(hub.repo("me/none").commit({}), id="me/none")


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET /cdn", cut=1_000_000),
        Fault("GET /cdn", times=3, cut=700_000),
        Fault("GET /cdn", reset=1_000_000),
        Fault("GET /cdn", times=2, status=503),
        Fault("GET /datasets/.*train", times=2, status=500),
        Fault("GET /datasets/.*README", cut=5),
        Fault("GET .*/tree/", times=2, status=502),
        Fault("GET .*/tree/", status=429, headers={"Retry-After": "0"}),
        Fault("GET /cdn", flip=1_500_000),
        Fault("GET .*README", flip=3),
    ],
    ids=str,
)
def test_what_passes_is_tried_again(hub: Hub, get, fault: Fault) -> None:
    commit = hub.repo("me/data").commit(FILES)
    hub.faults = [fault]
    assert get(commit) == FILES
    assert fault.times == 0


def test_a_broken_body_goes_on_where_it_stopped(hub: Hub, get) -> None:
    commit = hub.repo("me/data").commit({"a.bin": LARGE})
    hub.faults = [Fault("GET /cdn", cut=1_000_000), Fault("GET /cdn", cut=500_000)]
    get(commit)
    ranges = [request.range for request in hub.requests("GET /cdn")]
    assert ranges == ["", "bytes=1000000-", "bytes=1500000-"]


def test_a_server_that_cannot_skip_begins_anew(hub: Hub, get) -> None:
    commit = hub.repo("me/data").commit({"a.bin": LARGE})
    hub.faults = [Fault("GET /cdn", cut=1_000_000), Fault("GET /cdn", deaf=True)]
    assert get(commit) == {"a.bin": LARGE}
    hub.faults = [Fault("GET /cdn", times=99, cut=1_000_000, deaf=True)]
    with pytest.raises(ToolError, match=r"without sending complete message body .* \(6 times\)") as caught:
        get(hub.repo("me/data").commit({"b.bin": LARGE[1:] + b"x"}))
    assert caught.value.environment


def test_wrong_bytes_are_refused_the_second_time(hub: Hub, get) -> None:
    commit = hub.repo("me/data").commit(FILES)
    for match, name, algorithm in (
        ("GET /cdn", "data/train-1.bin", "sha256"),
        ("GET .*README", "README.md", "git blob"),
    ):
        hub.faults = [Fault(match, times=99, flip=2)]
        hub.log.clear()
        with pytest.raises(
            ToolError, match=f"`{name}` of the dataset `me/data` is not what it should be, twice"
        ) as caught:
            get(commit, name)
        assert f"its {algorithm} is" in str(caught.value) and not caught.value.environment
        assert len([r for r in hub.requests(match.partition(".*")[0]) if "tree" not in r.path]) == 2


REFUSED = {
    "nothing is there": ("me/none", "", "has no dataset `me/none`, or a private one; no token was sent"),
    "private, no token": ("me/private", "", "or a private one; no token was sent"),
    "private, another's": ("me/private", "other", r"or a private one; a token was sent \(HF_TOKEN\)"),
    "gated, no token": ("me/gated", "", "is gated, and no token was sent"),
    "gated, another's": ("me/gated", "other", r"is gated, and a token was sent \(HF_TOKEN\)"),
    "no token of theirs": ("me/gated", "wrong", r"refuses access to the dataset `me/gated` \(401 Unauthorized\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_whether_a_token_was_sent_and_are_not_tried_again(
    hub: Hub, get, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    id, token, message = REFUSED[case]
    hub.tokens = {"other": set(), "owner": {"me/private", "me/gated"}}
    commits = {name: hub.repo(f"me/{name}", **{name: True}).commit({"a": b"one"}) for name in ("private", "gated")}
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ToolError, match=message) as caught:
        get(commits.get(id[3:], "0" * 40), id=id)
    assert caught.value.hint
    assert len(hub.log) == len({request.path for request in hub.log}), "nothing was asked twice"
    if id in ("me/private", "me/gated"):
        monkeypatch.setenv("HF_TOKEN", "owner")
        assert get(commits[id[3:]], id=id) == {"a": b"one"}


def test_the_token_does_not_go_to_another_host(hub: Hub, get, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.tokens = {"owner": {"me/data"}}
    commit = hub.repo("me/data", gated=True).commit(FILES)
    monkeypatch.setenv("HF_TOKEN", "owner")
    get(commit)
    assert {request.token for request in hub.requests("/cdn/")} == {""}
    assert {request.token for request in hub.log if "/cdn/" not in request.path} == {"owner"}


def test_a_commit_that_was_removed_is_named(hub: Hub, get) -> None:
    repo = hub.repo("me/data", FILES)
    gone = repo.refs["main"]
    repo.commit({"a": b""})
    repo.forget(gone)
    with pytest.raises(ToolError, match=f"the commit `{gone}` of the dataset `me/data` is gone") as caught:
        get(gone)
    assert caught.value.hint and "marin lock --upgrade" in caught.value.hint and "`pin`" in caught.value.hint


def test_a_busy_hub_is_left_alone_as_long_as_it_asks(hub: Hub, get) -> None:
    commit = hub.repo("me/data").commit({f"{n}.txt": b"%d" % n for n in range(20)})
    hub.faults = [Fault("GET .*resolve", status=429, headers={"Retry-After": "1"})]
    get(commit)
    at = [request.at for request in hub.requests("resolve")]
    assert all(later - at[0] < 0.5 or later - at[0] >= 1 for later in at), "every thread waits"
    hub.faults = [Fault("GET .*resolve", status=429, headers={"Retry-After": "5000"})]
    with pytest.raises(ToolError, match="asks to be left alone for 5000 s") as caught:
        get(commit)
    assert caught.value.environment


def test_a_hub_that_stays_broken_ends_it(hub: Hub, get) -> None:
    commit = hub.repo("me/data").commit(FILES)
    hub.faults = [Fault("GET /cdn", times=999, status=503)]
    with pytest.raises(ToolError, match=r"the server answered 503 Service Unavailable \(6 times\)") as caught:
        get(commit)
    assert caught.value.environment
    hub.__exit__()
    with pytest.raises(ToolError, match="6 times"):
        get(commit)


def test_later_attempts_go_on_from_what_earlier_ones_left(hub: Hub, get, tmp_path: Path) -> None:
    commit = hub.repo("me/data").commit({"a.bin": LARGE, "b.bin": LARGE[1:], "c.bin": LARGE[2:], "d.txt": b"d"})
    hub.faults = [Fault("GET .*b.bin", times=99, status=403), Fault("GET /cdn", times=99, cut=1 << 20, slow=0.01)]
    with pytest.raises(ToolError, match="403"):
        get(commit)
    # As if it had been killed here: what is there may be anything.
    parts = tmp_path / "0/scratch/parts"
    names = {c: hashlib.sha256(data).hexdigest() for c, data in (("a", LARGE), ("b", LARGE[1:]), ("c", LARGE[2:]))}
    (parts / names["a"]).write_bytes(LARGE[:2_000_000])
    (parts / names["b"]).write_bytes(LARGE[1:])
    (parts / names["c"]).write_bytes(b"x" * len(LARGE[2:]))
    hub.faults, hub.log[:] = [], []
    assert set(get(commit)) == {"a.bin", "b.bin", "c.bin", "d.txt"}
    ranges = {request.path.split("/")[2][:64]: request.range for request in hub.requests("GET /cdn")}
    assert ranges == {names["a"]: "bytes=2000000-", names["c"]: ""}, "a goes on, b is whole, c is damaged"


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/a", "a//b"])
def test_names_that_lead_out_are_refused(hub: Hub, get, name: str) -> None:
    with pytest.raises(ToolError, match="which no folder can hold"):
        get(hub.repo("me/data").commit({name: b"x"}))


def test_two_threads_never_write_one_part(monkeypatch: pytest.MonkeyPatch, hub: Hub, get) -> None:
    monkeypatch.setattr(fetching, "CONNECTIONS", 32)
    files = {f"{n}/{m}.bin": bytes([m]) * 70_000 for n in range(6) for m in range(6)}
    assert get(hub.repo("me/data").commit(files)) == files
    assert len(hub.requests("GET /cdn")) == 6
