"""Eight builders, each with a workspace of its own, and a collector that deletes whatever it may, in one cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.conftest import CHECKOUT, DATA, TRACEBACK, Mini

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

BUILDERS = 8
SECONDS = 300 if os.environ.get("MARIN_TEST_CAMPAIGN") else 15
FUNCTIONS = '''
def work(ctx):
    """Writes what its inputs and its number make, a file that all share, and a program."""
    below = [ctx.inputs[name].joinpath("out.txt").read_text() for name in sorted(ctx.inputs)]
    (ctx.output_path / "out.txt").write_text(f"{ctx.params['number']}({' '.join(below)})")
    (ctx.output_path / "deep").mkdir()
    (ctx.output_path / "deep" / "same.bin").write_bytes(b"x" * 5000)
    program = ctx.output_path / "run.sh"
    program.write_text(f"echo {ctx.params['number']}")
    program.chmod(0o755)
'''
# Editions are few, so builders meet at one key again and again, and find what the collector has just taken.
BUILDER = """
import json, random, sys, time
from pathlib import Path
from marin_cas.cli.main import main
who, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
ends, built = time.monotonic() + seconds, 0
while time.monotonic() < ends:
    edition = random.randrange(4)
    Path(who).mkdir(exist_ok=True)
    Path(who, "BUILD.marin").write_text(Path("template").read_text().replace("EDITION", str(edition)))
    code = main(["build", f"//{who}:top", "-q"])
    text = Path("../cache/out", who, "top", "out.txt").read_text()
    due = f"3(1({edition}() 0()) 2({edition}()))"
    if code or text != due:
        sys.exit(f"{who}: exit {code}, {text!r} instead of {due!r}")
    built += 1
print(json.dumps(built))
"""
COLLECTOR = """
import json, sys, time
from marin_cas.cache.cache import open_cache
from marin_cas.cache.collect import collect
from marin_cas.cache.gc import Wanted, plan
ends, blobs = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < ends:
    cache = open_cache(sys.argv[1])
    blobs += collect(cache, plan(cache, Wanted(grace_s=float(sys.argv[3]), max_size=0))).blobs
    cache.close()
print(json.dumps(blobs))
"""


def declare(name: str, number: str, deps: list[str]) -> str:
    inputs = json.dumps({dep: f":{dep}" for dep in deps})
    return (
        f'py_action(name = "{name}", function = "functions.py:work", params = {{"number": {number}}}, '
        f"inputs = {inputs})\n"
    )


@pytest.mark.parametrize("grace_s", [0.0, 1.0])
def test_eight_builders_and_a_collector(tmp_path: Path, grace_s: float) -> None:
    home = tmp_path / "home"
    home.mkdir()
    template = (
        DATA
        + declare("zero", "0", [])
        + declare("edited", "EDITION", [])
        + declare("one", "1", ["zero", "edited"])
        + declare("two", "2", ["edited"])
        + declare("top", "3", ["one", "two"])
    )
    minis = []
    for who in range(BUILDERS):
        root = tmp_path / f"w{who}"
        root.mkdir()
        mini = Mini(root, home)
        files = {"marin.toml": 'cache = "../cache"\n', "functions.py": textwrap.dedent(FUNCTIONS), "template": template}
        mini.write(files)
        minis.append(mini)

    def start(mini: Mini, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", *command],
            cwd=mini.root,
            env=mini.environ(PYTHONPATH=str(CHECKOUT)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    builders = [start(mini, BUILDER, f"b{who}", str(SECONDS), str(who)) for who, mini in enumerate(minis)]
    collector = start(minis[0], COLLECTOR, str(tmp_path / "cache"), str(SECONDS), str(grace_s))
    said = [process.communicate(timeout=SECONDS + 300) for process in (*builders, collector)]
    for process, (_, err) in zip((*builders, collector), said, strict=True):
        assert process.returncode == 0, err[-3000:]
        assert TRACEBACK not in err
    *built, collected = [json.loads(out.splitlines()[-1]) for out, _ in said]
    print(f"{sum(built)} builds, {collected} blobs collected")
    assert all(built)
    assert collected > 0
    assert minis[0].ok("cache", "verify").code == 0
