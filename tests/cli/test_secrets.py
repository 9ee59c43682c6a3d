"""Row 66: a secret reaches the tool that declares it, and neither a file nor a log, an event, an argv or a screen."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.conftest import DATA, Mini

# With what JSON, repr and URLs write otherwise.
CANARY = 'canary-"7f3a\\b19c"-é/'
OTHER = "another-canary-51d0"
TRACES = sorted(
    {
        spelling.encode()
        for secret in (CANARY, OTHER)
        for spelling in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe=""))
    }
)

# Each: the body of a function that has the secret in `s`. Those of GIVEN end well.
GIVEN = {
    "prints": 'print("it is", s, repr(s), {"token": s}, json.dumps([s])); print(s, file=sys.stderr)',
    "reports": "ctx.progress(1, 2, s, note=s, deep=[{s: s}])",
    "uses": '(ctx.scratch / "a").write_text(s); Path(os.environ["HOME"], ".netrc").write_text(s)',
    "logs_in_pieces": "[(sys.stdout.write(c), sys.stdout.flush()) for c in s]",
}
REFUSED = {
    "writes": '(ctx.output_path / "b").write_text("x" * 3_000_000 + s)',
    "writes_json": '(ctx.output_path / "b").write_text(json.dumps({"token": s}))',
    "writes_two": '(ctx.output_path / "b").write_text(s + repr(s) + os.environ["OTHER"])',
    "names": '(ctx.output_path / os.environ["OTHER"]).write_text("x")',
    "names_a_folder": '(ctx.output_path / "d" / os.environ["OTHER"]).mkdir(parents=True)',
    "links": '(ctx.output_path / "d").symlink_to("to/" + os.environ["OTHER"])',
}
FAILS = {
    "raises": 'raise ValueError(f"no access with {s}")',
    "raises_repr": "raise KeyError(s)",
    "exits": "sys.exit(s)",
    "leaves_in_scratch": '(ctx.scratch / "a").write_text(s); sys.exit(3)',
    "is_killed": 'print(s, flush=True); (ctx.scratch / "a").write_text(s); os.kill(os.getpid(), 9)',
    "leaves_a_child": 'subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", os.environ["OTHER"]])',
}


def declare(mini: Mini, bodies: dict[str, str], wait: str = "") -> None:
    functions = "import json, os, subprocess, sys, time\nfrom pathlib import Path\n"
    targets = DATA
    for name, body in bodies.items():
        functions += f'\n\ndef {name}(ctx):\n    s = os.environ["CANARY"]\n{wait}    {body}\n'
        functions += '    (ctx.output_path / "a").write_text("done")\n'
        targets += f'raw_download(name = "{name}", function = "f.py:{name}", secrets = ["CANARY", "OTHER"])\n'
    mini.write({"f.py": functions, "BUILD.marin": targets})


def holding(*folders: Path) -> list[str]:
    """The files, folders and links below `folders` whose name or content has a spelling of a secret."""
    found = []
    for folder in folders:
        for base, names, files in os.walk(folder):
            for name in (*names, *files):
                path = os.path.join(base, name)
                texts = [os.fsencode(name)]
                if os.path.islink(path):
                    texts.append(os.fsencode(os.readlink(path)))
                elif os.path.isfile(path):
                    texts.append(Path(path).read_bytes())
                if any(trace in text for trace in TRACES for text in texts):
                    found.append(path)
    return found


@contextmanager
def watching_argv() -> Iterator[list[bytes]]:
    """Gathers every command line of this machine that has the secret."""
    seen: list[bytes] = []
    looks = 0
    done = threading.Event()

    def look() -> None:
        nonlocal looks
        while not done.wait(0.02):
            looks += 1
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                if any(trace in line for trace in TRACES):
                    seen.append(line)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
    assert looks


@pytest.fixture
def folders(mini: Mini, tmp_path: Path) -> tuple[Path, ...]:
    """Wherever a command may leave a file."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    return (mini.root, mini.home, temporary)


def told(mini: Mini, folders: tuple[Path, ...], *args: str, code: int) -> str:
    env = {"CANARY": CANARY, "OTHER": OTHER, "TMPDIR": str(folders[2])}
    ran = mini.run(*args, code=code, env=env)
    shown = ran.out + ran.err
    assert not any(trace.decode() in shown for trace in TRACES), shown
    return shown


def test_a_secret_is_used_and_seen_by_nobody(mini: Mini, folders: tuple[Path, ...]) -> None:
    # A moment in which it runs, for who looks at the processes and files of a running action.
    declare(mini, GIVEN, wait="    time.sleep(0.5)\n")
    process = mini.start(
        "build", "//...", "-v", "--keep-work", "--events", "events", "--trace", "trace", "--output", "json",
        env={"CANARY": CANARY, "OTHER": OTHER, "TMPDIR": str(folders[2])},
    )  # fmt: skip
    during = []
    with watching_argv() as commands:
        while process.poll() is None:
            during += [path for path in holding(mini.root / "cache/work") if not path.endswith(("/.netrc", "/a"))]
            time.sleep(0.05)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["counts"]["executed"] == len(GIVEN)
    shown = out + err
    for name in ("prints", "logs_in_pieces"):
        shown += told(mini, folders, "logs", f"//:{name}", code=0)
    for args in (("why", "//:prints"), ("aquery", "//...", "--output", "json"), ("cache", "ls", "--output", "json")):
        shown += told(mini, folders, *args, code=0)
    assert not any(trace.decode() in shown for trace in TRACES)
    assert "it is *** '***' {'token': '***'} [\"***\"]\n***\n" in shown
    assert '"unit":"***"' in (mini.root / "events").read_text()
    assert commands == []
    assert during == []
    assert holding(*folders) == []
    assert told(mini, folders, "cache", "verify", code=0).startswith("checked ")


def test_an_output_with_a_secret_is_not_stored(mini: Mini, folders: tuple[Path, ...]) -> None:
    declare(mini, REFUSED)
    shown = told(mini, folders, "build", "-k", "//...", "--keep-work", "--events", "events", code=1)
    for name in REFUSED:
        assert f"`//:{name}` wrote a secret into its output `files/" in shown
    assert "nothing was stored" in shown
    assert holding(*folders) == []
    assert told(mini, folders, "cache", "ls", code=0) == ""


def test_a_failure_tells_no_secret(mini: Mini, folders: tuple[Path, ...]) -> None:
    declare(mini, FAILS)
    with watching_argv() as commands:
        shown = told(mini, folders, "build", "-k", "//...", "--events", "events", "--output", "json", code=1)
    assert "no access with ***" in shown
    assert "KeyError: '***'" in shown
    assert "time.sleep(60) ***`" in shown
    for name in FAILS:
        assert f"`//:{name}`" in shown
    assert told(mini, folders, "logs", "//:is_killed", code=0) == "***\n"
    assert holding(*folders) == []
    # What a tool itself puts into the argv of a child is its own doing; nothing of ours has it there.
    assert all(b"time.sleep(60)" in command for command in commands)


def test_a_missing_secret_is_named(mini: Mini, folders: tuple[Path, ...]) -> None:
    declare(mini, {"uses": GIVEN["uses"]})
    ran = mini.run("build", "//:uses", code=3, env={"CANARY": CANARY})
    assert "`//:uses` needs the secret `OTHER`" in ran.err
    assert "error: BUILD.marin:2: " in ran.err
    assert ran.err.count("error: ") == 1
    assert "OTHER=... marin build //:uses" in ran.err
    assert CANARY not in ran.err
    assert holding(*folders) == []
    assert told(mini, folders, "build", "//:uses", "--output", "json", code=0)
    # It is in no key: another value, or none, serves what was built.
    assert mini.counts("//:uses")["executed"] == 0
