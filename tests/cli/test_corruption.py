"""Each blob of a pipeline damaged in turn, in every way."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, Mini
from tests.cli.damage import KINDS, Sound, suffer
from tests.cli.inside import run_inside
from tests.conftest import CAMPAIGN

FUNCTIONS = '''
import json


def corpus(ctx):
    """Two folders, one of them deep; an empty file, a script, a link, and bytes that come twice."""
    for part in ("a", "b/c"):
        folder = ctx.output_path / part
        folder.mkdir(parents=True)
        for n in range(3):
            (folder / f"{n}.txt").write_text(f"{part} {n % 2}\\n")
    (ctx.output_path / "empty").write_bytes(b"")
    (ctx.output_path / "run.sh").write_text("#!/bin/sh\\n")
    (ctx.output_path / "run.sh").chmod(0o755)
    (ctx.output_path / "link").symlink_to("a/0.txt")


def clean(ctx):
    """Reads a source and what was made, and makes more of it."""
    words = ctx.inputs["words"].read_text() if ctx.inputs["words"].is_file() else "".join(
        p.read_text() for p in sorted(ctx.inputs["words"].rglob("*")) if p.is_file())
    text = "".join(p.read_text() for p in sorted(ctx.inputs["corpus"].rglob("*.txt")))
    for n, line in enumerate(sorted(set(text.splitlines()))):
        (ctx.output_path / f"{n}.jsonl").write_text(json.dumps({"text": line, "words": words}))


def join(ctx):
    found = {}
    for name in sorted(ctx.inputs):
        for path in sorted(ctx.inputs[name].rglob("*")):
            if path.is_file():
                found[f"{name}/{path.name}"] = path.read_bytes().decode()
    (ctx.output_path / "all.json").write_text(json.dumps(found, sort_keys=True))
'''

BUILD = """
filegroup(name = "words", srcs = ["words.txt", "more.txt"])
raw_download(name = "corpus", function = "exp/f.py:corpus")
py_action(name = "clean", function = "exp/f.py:clean", inputs = {"words": ":words", "corpus": ":corpus"})
py_action(name = "joined", function = "exp/f.py:join", inputs = {"clean": ":clean", "corpus": ":corpus"})
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    base = tmp_path_factory.mktemp("sound")
    for name in ("w", "home"):
        (base / name).mkdir()
    mini = Mini(base / "w", base / "home")
    mini.write(
        {
            "marin.toml": "",
            "exp/f.py": textwrap.dedent(FUNCTIONS),
            "exp/words.txt": "some\nwords\n",
            "exp/more.txt": "",
            "exp/BUILD.marin": DATA + BUILD,
        }
    )
    targets = ("//exp:corpus", "//exp:clean", "//exp:joined")
    run_inside(mini, "build", *targets)
    return Sound(mini, targets, "//exp:joined")


# In CI every second blob in each way, others for each, and every way of asking; in the campaign each with each.
ASKED = [(fresh, again) for fresh in (False, True) for again in (False, True)]


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_a_build_ends_right_or_says_what_is_damaged(
    sound: Sound, tmp_path: Path, kind: str, record_property: pytest.RecordProperty
) -> None:
    blobs = sound.blobs()
    assert len(blobs) > 20
    stopped = tried = 0
    for n, blob in enumerate(blobs if CAMPAIGN else blobs[list(KINDS).index(kind) % 2 :: 2]):
        for fresh, again in ASKED if CAMPAIGN else [ASKED[n % 4]]:
            folder = tmp_path / f"{tried}"
            folder.mkdir()
            stopped += suffer(sound, folder, blob, kind, fresh=fresh, again=again)
            tried += 1
    assert (stopped > 0) == (kind not in ("deleted", "rotten"))
    record_property("faults", (f"blobs {kind}", tried, tried, 0))
