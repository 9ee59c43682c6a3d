"""Sixteen builds of one graph at once: each action runs once, everybody works, and everybody waits for others."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, TRACEBACK, Mini

pytestmark = pytest.mark.slow

CROWD = 16
LEAVES, MIDDLES = 64, 16
# A tool cannot write outside its folder, so it counts over a socket: who ran what, whatever the store says.
FUNCTIONS = '''
import os, socket, time


def work(ctx):
    """Tells the test that it ran, takes its time, and writes what its inputs and its number make."""
    with socket.create_connection(("127.0.0.1", ctx.params["port"])) as line:
        line.sendall(f"{os.environ['CROWD']} {ctx.params['number']}\\n".encode())
    time.sleep(ctx.params["seconds"])
    below = [p.read_text() for name in sorted(ctx.inputs) for p in sorted(ctx.inputs[name].rglob("*.txt"))]
    (ctx.output_path / "out.txt").write_text(f"{ctx.params['number']}({' '.join(below)})")
'''
# All have imported everything when the first begins.
DRIVER = """
import sys
import marin_cas.cli.build, marin_cas.scheduler.build, marin_cas.scheduler.runner, marin_cas.executors.local
import marin_cas.cli.session, marin_cas.lang.loader, marin_cas.ui.summary
from marin_cas.cli.main import main
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main(sys.argv[1:]))
"""


class Counting(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        who, number = self.rfile.readline().decode().split()
        self.server.ran.append((who, number))  # type: ignore[attr-defined]


@pytest.fixture
def counter() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Counting) as server:
        server.ran = []  # type: ignore[attr-defined]
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def declare(name: str, number: int, port: int, seconds: float, deps: list[str]) -> str:
    params = json.dumps({"port": port, "number": number, "seconds": seconds})
    return (
        f'py_action(name = "{name}", function = "functions.py:work", params = {params}, '
        f"inputs = {json.dumps({dep: f':{dep}' for dep in deps})},)\n"
    )


def graph(port: int) -> tuple[str, int]:
    """A BUILD file of leaves of 150 ms, sixteen that read four each, and one above; and how many these are."""
    text = DATA
    names = []
    for index in range(LEAVES):
        text += declare(f"leaf{index}", index, port, 0.15, [])
    for index in range(MIDDLES):
        below = [f"leaf{index * 4 + each}" for each in range(4)]
        text += declare(f"middle{index}", 100 + index, port, 0.05, below)
        names.append(f"middle{index}")
    text += declare("top", 200, port, 0.05, names)
    return text, LEAVES + MIDDLES + 1


def test_sixteen_builds_of_one_graph(tmp_path: Path, counter: socketserver.ThreadingTCPServer) -> None:
    root, home = tmp_path / "w", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    mini = Mini(root, home)
    text, actions = graph(counter.server_address[1])
    mini.write({"marin.toml": 'pass_env = ["CROWD"]\n', "functions.py": FUNCTIONS, "BUILD.marin": text})
    builds: list[subprocess.Popen[str]] = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                DRIVER,
                "build",
                "//:top",
                "--output",
                "json",
                "--events",
                str(tmp_path / f"{who}.events"),
            ],
            cwd=root,
            env=mini.environ(CROWD=str(who)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for who in range(CROWD)
    ]
    for build in builds:
        assert build.stdout is not None and build.stdout.readline() == "ready\n"
    for build in builds:
        assert build.stdin is not None
        build.stdin.write("go\n")
        build.stdin.flush()
    ended = [build.communicate(timeout=300) for build in builds]
    for build, (_, err) in zip(builds, ended, strict=True):
        assert build.returncode == 0, err
        assert TRACEBACK not in err

    ran: list[tuple[str, str]] = counter.ran  # type: ignore[attr-defined]
    assert Counter(number for _, number in ran).most_common(1)[0][1] == 1
    assert len(ran) == actions
    assert {who for who, _ in ran} == {str(who) for who in range(CROWD)}
    waits = sum(
        json.loads(line)["event"] == "action_waiting"
        for who in range(CROWD)
        for line in (tmp_path / f"{who}.events").read_text().splitlines()
    )
    assert waits > 0
    executed = sum(json.loads(out)["counts"]["executed"] for out, _ in ended)
    assert executed == actions
    result = (root / "cache/out/top/out.txt").read_text()
    assert result.startswith("200(100(0() 1() 2() 3())")
    assert mini.ok("cache", "verify").code == 0
