"""A mini workspace for tests of the language: files in, a Loader out."""

from __future__ import annotations

from pathlib import Path

from marin_cas.lang.loader import Loader

RULES = '''"""Rules for tests."""

CheckpointInfo = provider("A checkpoint.", fields = {"hf": "For evals.", "native": "To resume."})

def _train(ctx):
    made = ctx.actions.run(
        tool = "train",
        revision = 3,
        params = {"lr": ctx.attr.lr, "model": ctx.attr.model},
        inputs = {"init": ctx.attr.init.CheckpointInfo.hf} if ctx.attr.init else {},
        outputs = {"hf": "tree", "metrics": "file"},
        reporting = ["metrics"],
    )
    return [DefaultInfo(outputs = made), CheckpointInfo(hf = made["hf"])]

train_lm = rule(
    implementation = _train,
    attrs = {
        "lr": attr.float(mandatory = True, doc = "Peak rate."),
        "init": attr.label(providers = [CheckpointInfo]),
        "model": attr.dict(schema = "levanter.LmConfig"),
        "tracker": attr.string(bears = "reporting", values = ["none", "wandb"], default = "none"),
    },
    toolchain = ["jax", "marin-levanter"],
    doc = "Trains.",
)

def pair(name, lr = 1):
    train_lm(name = name + "_a", lr = lr)
    train_lm(name = name + "_b", lr = lr)

def picky(name):
    if name == "bad":
        fail("`bad` is not allowed as a name")
    pair(name)

def files(name):
    filegroup(name = name, srcs = glob(["*.nope"]))

def broken(name):
    y = 1 + name
    return y

def endless(n):
    return endless(n + 1)
'''
LOAD = 'load("//rules:x.bzl", "broken", "endless", "files", "pair", "picky", "train_lm")\n'


def workspace(root: Path, files: dict[str, str | bytes], **options) -> Loader:
    """Writes `files` below `root` (`rules/x.bzl` is there already) and opens them; `@marin//rules` is `lib/`."""
    for name, content in {"rules/x.bzl": RULES, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Loader(root, root / "lib", **options)
