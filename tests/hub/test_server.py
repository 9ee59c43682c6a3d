"""The local Hub is one to its real client: what it serves comes out, and its refusals have the client's names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.hub.server import LFS_FROM, Fault, Hub

LARGE = bytes(range(256)) * (LFS_FROM // 128)

CLIENT = """
from pathlib import Path
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError

def said(code, token):
    api = HfApi(token=token or False)
    try:
        return eval(code)
    except HfHubHTTPError as error:
        return type(error).__name__

for code, token in {asked!r}:
    print(said(code, token))
"""


def client(hub: Hub, tmp_path: Path, *asked: tuple[str, str]) -> list[str]:
    """What the real client makes of each expression, asked with that token."""
    environ = {"PATH": "/usr/bin:/bin", "HF_HOME": str(tmp_path / "home"), **hub.environ()}
    code = CLIENT.format(asked=asked)
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_snapshot_is_what_was_committed(tmp_path: Path) -> None:
    files = {"a.txt": b"one\n", "data/ü b.bin": LARGE, "data/deep/c.txt": b"", **{f"n/{n}": b"x" for n in range(7)}}
    with Hub(page=3) as hub:
        hub.repo("me/few", files)
        folder = str(tmp_path / "d")
        client(hub, tmp_path, (f"snapshot_download('me/few', repo_type='dataset', local_dir={folder!r})", ""))
        found = {p.relative_to(tmp_path / "d").as_posix(): p.read_bytes() for p in (tmp_path / "d").rglob("*")
                 if p.is_file() and ".cache" not in p.parts}  # fmt: skip
        assert found == files
        assert {request.path.split("?")[0] for request in hub.requests("GET /cdn/")}, "a large file lies elsewhere"
        assert len(hub.requests("/tree/")) > 3, "pages"


REFUSALS = [
    ("api.dataset_info('me/none')", "", "RepositoryNotFoundError"),
    ("api.dataset_info('me/private')", "", "RepositoryNotFoundError"),
    ("api.dataset_info('me/private')", "other", "RepositoryNotFoundError"),
    ("api.dataset_info('me/private').id", "owner", "me/private"),
    ("api.hf_hub_download('me/gated', 'a.txt', repo_type='dataset')", "", "GatedRepoError"),
    ("api.hf_hub_download('me/gated', 'a.txt', repo_type='dataset')", "other", "GatedRepoError"),
    ("Path(api.hf_hub_download('me/gated', 'a.txt', repo_type='dataset')).read_text()", "owner", "one"),
    ("api.dataset_info('me/gated', revision='nope')", "", "RevisionNotFoundError"),
    ("api.hf_hub_download('me/open', 'b.txt', repo_type='dataset')", "", "RemoteEntryNotFoundError"),
    ("api.get_paths_info('me/open', ['a.txt', 'z'], repo_type='dataset')[0].path", "", "a.txt"),
    ("api.list_repo_refs('me/open', repo_type='dataset').branches[0].name", "", "main"),
    ("len(api.list_repo_commits('me/open', repo_type='dataset'))", "", "1"),
    # Why every file is hashed by us: the client itself believes a flipped byte.
    ("Path(api.hf_hub_download('me/open', 'f.txt', repo_type='dataset')).read_bytes() == b'one'", "", "False"),
]


def test_refusals_have_the_clients_names(tmp_path: Path, hub: Hub) -> None:
    hub.tokens = {"owner": {"me/private", "me/gated"}, "other": set()}
    hub.repo("me/open", {"a.txt": b"one", "f.txt": b"one"})
    hub.repo("me/private", {"a.txt": b"one"}, private=True)
    hub.repo("me/gated", {"a.txt": b"one"}, gated=True)
    hub.faults = [Fault("GET .*f.txt", flip=1)]
    answers = client(hub, tmp_path, *((code, token) for code, token, _ in REFUSALS))
    assert answers == [answer for _, _, answer in REFUSALS]
