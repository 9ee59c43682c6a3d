"""Chains of trivial actions: 1,000 run and then cached; 20,000 loaded, analysed, queried and planned."""

from __future__ import annotations

from pathlib import Path

from measure import MARIN, folder, run, verdict

_BUILD = """load("@marin//rules:data.bzl", "py_action")

py_action(name = "step0", function = "step.py:step", params = {"at": 0}, toolchain = [])

[
    py_action(
        name = "step%d" % at,
        function = "step.py:step",
        inputs = {"before": ":step%d" % (at - 1)},
        params = {"at": at},
        toolchain = [],
    )
    for at in range(1, COUNT)
]
"""
_STEP = """def step(ctx):
    (ctx.output_path / "at").write_text(str(ctx.params["at"]))
"""


def workspace(root: Path, count: int) -> None:
    root.mkdir()
    (root / "marin.toml").write_text("")
    (root / "marin.lock").write_text("format = 1\n[toolchain]\n")
    (root / "step.py").write_text(_STEP)
    (root / "BUILD.marin").write_text(_BUILD.replace("COUNT", str(count)))


def main() -> None:
    with folder() as base:
        small, large = base / "small", base / "large"
        workspace(small, 1_000)
        first = run([MARIN, "build", "//:step999"], small)
        print(f"1,000 actions built          {first}")
        verdict("1,000 trivial actions", first.wall, 20)
        (small / "cache" / "snapshot").unlink(missing_ok=True)
        planned = run([MARIN, "build", "//:step999"], small)
        print(f"1,000 actions cached, planned {planned}")
        verdict("cached, planned anew", planned.wall, 1)
        cached = run([MARIN, "build", "//:step999"], small)
        print(f"1,000 actions up to date     {cached}")
        verdict("cached, nothing changed", cached.wall, 1)
        workspace(large, 20_000)
        print(f"20,000 loaded and queried    {run([MARIN, 'query', 'deps(//:step19999)'], large)}")
        print(f"20,000 analysed and planned  {run([MARIN, 'build', '-n', '//:step19999'], large)}")


if __name__ == "__main__":
    main()
