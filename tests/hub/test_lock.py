"""What marin.lock lacks: provisional, refused where nobody may ask, found out by `marin lock` or on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path

from tests.hub.conftest import Beside
from tests.hub.server import Fault

FILES = {"README.md": b"# words\n", "data/train.txt": b"one two\n" * 20_000}
DECLARED = 'hf_download(name = "words", hf_id = "me/words", revision = "{}")\n'


def lock_lines(beside: Beside) -> list[str]:
    return (beside.mini.root / "marin.lock").read_text().splitlines()


def on_a_terminal(beside: Beside, *args: str) -> tuple[int, str, str]:
    """Runs a command whose stderr is a terminal: exit code, stdout, what the terminal showed."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        beside.mini.command(*args),
        cwd=beside.mini.root,
        env=beside.mini.environ(**beside.hub.environ()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    shown = b""
    while select.select([mine], [], [], 60)[0]:
        try:
            piece = os.read(mine, 1 << 16)
        except OSError:  # how a terminal says that nobody has it open any more
            break
        shown += piece
    out, _ = process.communicate(timeout=60)
    os.close(mine)
    return process.returncode, out, shown.decode()


def test_a_branch_is_provisional_then_locked_then_built_then_a_hit(beside: Beside) -> None:
    commit = beside.hub.repo("me/words").commit(FILES)
    beside.declare(DECLARED.format("main"))

    planned = beside.ok("build", "-n", "//exp:words")
    assert "?" in planned.out and "`dataset me/words@main` is not in marin.lock: run `marin lock`" in planned.out
    assert "provisional" in planned.err
    (record,) = beside.ok("aquery", "//exp:words", "--output", "json").json
    assert record["provisional"] and record["key"] is None
    assert beside.ok("query", "deps(//exp:words)").out == "//exp:words\n"
    for args, env, why in (
        ((), {}, "not on a terminal"),
        (("--locked",), {}, "`--locked`"),
        ((), {"CI": "true"}, "`CI` is set"),
    ):
        refused = beside.run("build", "//exp:words", *args, code=2, **env)
        assert why in refused.err and "exp/BUILD.marin:2" in refused.err and "run `marin lock`" in refused.err
    assert not beside.hub.log, "only `marin lock` asks"

    locked = beside.ok("lock")
    assert f"dataset me/words@main: (not locked) -> {commit}" in locked.out
    assert lock_lines(beside)[-2:] == ["[hub]", f'"dataset me/words@main" = "{commit}"']
    beside.hub.log.clear()
    assert "up to date" in beside.ok("lock").err and not beside.hub.log

    built = beside.ok("build", "//exp:words", "--locked", "--output", "json").json
    assert built["counts"]["executed"] == 1
    out = beside.mini.root / "cache/out/exp/words"
    assert {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()} == FILES
    beside.hub.__exit__()
    # The branch in words or the commit itself: one key, and no network.
    beside.declare(DECLARED.format(commit.upper()) + "# another snapshot\n")
    assert beside.ok("build", "//exp:words", "--output", "json").json["counts"]["executed"] == 0
    # What deleting it would cost says how much would come over the network again.
    beside.ok("cache", "roots", "--forget", "//exp:words")
    planned = beside.ok("cache", "gc", "-n", "--max-size", "0", "--grace", "0s", "--output", "json").json
    (item,) = [item for item in planned["items"] if item.get("label") == "//exp:words"]
    assert item["bytes_downloaded"] == sum(map(len, FILES.values()))


def test_on_a_terminal_build_locks_first(beside: Beside) -> None:
    commit = beside.hub.repo("me/words").commit(FILES)
    beside.declare(DECLARED.format("main"))
    code, out, shown = on_a_terminal(beside, "build", "//exp:words")
    assert code == 0, shown
    assert f"locked dataset me/words@main: (not locked) -> {commit}" in shown
    assert out == "//exp:words  cache/out/exp/words\n"
    assert f'"dataset me/words@main" = "{commit}"' in lock_lines(beside)
    code, _, shown = on_a_terminal(beside, "build", "--locked", "//exp:words")
    assert code == 0 and "locked dataset" not in shown


def test_branches_move_only_when_asked(beside: Beside) -> None:
    repo = beside.hub.repo("me/words", FILES)
    first = repo.refs["main"]
    repo.tags["v1"] = repo.refs["feature/x"] = first
    targets = {"main": "main", "tag": "v1", "short": first[:7], "odd": "feature/x", "whole": first}
    beside.declare(
        "\n".join(f'hf_download(name = "{n}", hf_id = "me/words", revision = "{r}")' for n, r in targets.items())
    )
    beside.ok("lock")
    assert sorted(lock_lines(beside)[-4:]) == sorted(
        f'"dataset me/words@{revision}" = "{first}"' for revision in ("main", "v1", first[:7], "feature/x")
    ), "a whole commit needs no entry"
    keys = {record["key"] for record in beside.ok("aquery", "//exp:all", "--output", "json").json}
    assert len(keys) == 1
    second = repo.commit({"README.md": b"moved"})
    assert "up to date" in beside.ok("lock").err
    moved = beside.ok("lock", "--upgrade=me/words")
    assert f"dataset me/words@main: {first} -> {second}" in moved.out and "v1" not in moved.out
    assert "did you mean `me/words`?" in beside.run("lock", "--upgrade=me/word", code=2).err
    # An older Hub that knows no beginnings of commits; a branch that moves while it is locked.
    beside.hub.short = False
    third = repo.commit({"README.md": b"again"})
    beside.hub.faults = [Fault("GET .*/revision/main", then=lambda: repo.commit({"README.md": b"later"}))]
    beside.ok("lock", "--upgrade")
    assert f'"dataset me/words@{first[:7]}" = "{first}"' in lock_lines(beside)
    assert f'"dataset me/words@main" = "{third}"' not in lock_lines(beside)


def test_labels_and_what_nothing_needs_and_what_cannot_be_found(beside: Beside) -> None:
    hub = beside.hub
    hub.repo("me/words", FILES)
    hub.repo("me/more", FILES, private=True)
    declared = (
        DECLARED.format("main")
        + 'hf_download(name = "more", hf_id = "me/more", revision = "main", tags = ["manual"])\n'
    )
    beside.declare(declared)
    assert "1 target" not in beside.ok("lock", "//exp:words").err
    assert "me/more" not in "\n".join(lock_lines(beside))
    beside.ok("lock")
    beside.ok("lock", "--upgrade")
    assert not hub.requests("me/more"), "what a target tagged manual needs is asked for by its name"
    refused = beside.run("lock", "//exp:more", code=2)
    assert "exp/BUILD.marin:3: `dataset me/more@main`" in refused.err and "no token was sent" in refused.err
    hub.tokens["mine-mine"] = {"me/more"}
    beside.ok("lock", "//exp:more", HF_TOKEN="mine-mine")
    beside.ok("lock")
    assert "me/more" in "\n".join(lock_lines(beside)), "a target tagged manual keeps its line"
    beside.declare(DECLARED.format("nope"))
    missing = beside.run("lock", code=2)
    assert "dataset me/more@main" in missing.out and "(no target needs it)" in missing.out
    assert "has no revision `nope`" in missing.err
    # The lock stays what it was understood to be.
    lock = beside.mini.root / "marin.lock"
    lock.write_text(lock.read_text() + '\n[hub]\n"dataset me/words@main" = "short"\n')
    assert "`short` cannot be what section `hub` says" in beside.run("build", "-n", "//exp:words", code=2).err


def test_a_token_is_asked_for_by_name_and_stays_nowhere(beside: Beside) -> None:
    beside.hub.tokens["hf-token-of-mine"] = {"me/words"}
    commit = beside.hub.repo("me/words", gated=True).commit(FILES)
    beside.declare(
        DECLARED.format(commit)
        + f'hf_download(name = "must", hf_id = "me/words", revision = "{commit}", secrets = ["HF_TOKEN"])\n'
    )
    assert "no token was sent" in beside.run("build", "//exp:words", code=1).err
    assert "needs the secret `HF_TOKEN`" in beside.run("build", "//exp:must", code=3).err
    ran = beside.ok("build", "//exp:must", "//exp:words", "--events", "e.jsonl", HF_TOKEN="hf-token-of-mine")
    assert "hf-token-of-mine" not in ran.out + ran.err
    assert not [p for p in beside.mini.root.rglob("*") if p.is_file() and b"hf-token-of-mine" in p.read_bytes()]


def test_a_killed_download_goes_on(beside: Beside) -> None:
    large = os.urandom(12_000_000)
    commit = beside.hub.repo("me/words").commit({"a.bin": large, "b.txt": b"b"})
    beside.declare(DECLARED.format(commit))
    beside.hub.rate = 6e6
    process = beside.mini.start("build", "//exp:words", env=beside.hub.environ())
    scratch = beside.mini.root / "cache/scratch"
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 3_000_000 for path in scratch.rglob("parts/*")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate()
    beside.hub.rate = 0
    beside.hub.log.clear()
    beside.ok("build", "//exp:words")
    (request,) = beside.hub.requests("GET /cdn")
    assert int(request.range.removeprefix("bytes=").removesuffix("-")) >= 3_000_000
    assert (beside.mini.root / "cache/out/exp/words/a.bin").read_bytes() == large
    assert not list(scratch.rglob("parts/*"))


def test_progress_is_told_in_bytes(beside: Beside) -> None:
    commit = beside.hub.repo("me/words").commit(FILES)
    beside.declare(DECLARED.format(commit))
    events = Path(beside.mini.root / "e.jsonl")
    beside.ok("build", "//exp:words", "--events", str(events))
    told = [json.loads(line) for line in events.read_text().splitlines()]
    last = [event for event in told if event["event"] == "progress"][-1]
    assert (last["done"], last["total"], last["unit"], last["fields"]) == (160_008, 160_008, "bytes", {"files": 2})
