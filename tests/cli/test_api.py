"""Python scripts on the command line and by themselves: the same targets, results and errors as BUILD files have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from marin_cas.analysis.lock import lock_text
from tests.cli.conftest import Mini, Ran
from tests.identity.space import lock

BUILD = """
load("@marin//rules:data.bzl", "hf_download", "py_action", "raw_download", "tokenized", "trained_tokenizer")
load("@marin//rules:eval.bzl", "core_tasks")
load("@marin//rules:mixture.bzl", "mixture")
load("@marin//rules:models.bzl", "adam", "llama")
load("@marin//rules:resources.bzl", "tpu")
load("@marin//rules:train.bzl", "train_lm")

hf_download(name = "raw", artifact = "raw/words", hf_id = "me/words", revision = "main", version = "2026.06.28")
trained_tokenizer(
    name = "tok",
    artifact = "tok",
    paths = glob(["text/*.txt"]),
    version = "2026.06.28",
    vocab_size = 300,
)
tokenized(
    name = "words",
    artifact = "tokenized/words",
    glob = "train/*.jsonl",
    raw = ":raw",
    tokenizer = ":tok",
    version = "2026.06.28",
)
tokenized(
    name = "held",
    artifact = "tokenized/held",
    paths = ["text/a.txt"],
    tokenizer = ":tok",
    validation = True,
    version = "2026.06.28",
)
train_lm(
    name = "small",
    artifact = "checkpoints/small",
    batch_size = 2,
    datasets = {":words": 1.5},
    evals = core_tasks(every = 10),
    model = llama(hidden_dim = 16, num_heads = 2, num_kv_heads = 2, max_seq_len = 16),
    num_train_steps = 20,
    optimizer = adam(learning_rate = 3e-3, warmup = 5),
    resources = tpu("v4-8"),
    seq_len = 16,
    tags = ["SMALL"],
    validation = [":held"],
    version = "2026.06.28",
    z_loss_weight = 1e-4,
)
"""
SCRIPT = """
from marin_cas.api import (
    AdamConfig, ArtifactStep, LevanterCheckpoint, LlamaConfig, ResourceConfig, StepRunner, core_tasks, hf_download,
    lower, tokenized, train_lm, trained_tokenizer,
)


def build(*, version: str = "2026.06.28") -> ArtifactStep[LevanterCheckpoint]:
    raw = hf_download("raw/words", hf_id="me/words", revision="main", version=version)
    tok = trained_tokenizer("tok", paths=["exp/text/a.txt", "exp/text/b.txt"], vocab_size=300, version=version)
    words = tokenized("tokenized/words", tokenizer=tok, raw=raw, glob="train/*.jsonl", version=version)
    held = tokenized("tokenized/held", tokenizer=tok, paths=["exp/text/a.txt"], validation=True, version=version)
    return train_lm(
        name="checkpoints/small",
        version=version,
        model=LlamaConfig(hidden_dim=16, num_heads=2, num_kv_heads=2, max_seq_len=16),
        optimizer=AdamConfig(learning_rate=3e-3, warmup=5),
        datasets={words: 1.5},
        validation=[held],
        batch_size=2,
        seq_len=16,
        num_train_steps=20,
        z_loss_weight=1e-4,
        evals=core_tasks(every=10),
        resources=ResourceConfig.with_tpu("v4-8"),
        tags=["SMALL"],
    )


if __name__ == "__main__":
    StepRunner().run([lower(build())], dry_run=True)
"""


@pytest.fixture
def both(mini: Mini) -> Mini:
    """The same targets in `//exp` and in `exp/small.py`."""
    mini.write(
        {
            "exp/BUILD.marin": BUILD,
            "exp/small.py": SCRIPT,
            "exp/text/a.txt": "some words\n",
            "exp/text/b.txt": "more words\n",
            "marin.lock": lock_text(lock()),
        }
    )
    return mini


def python(mini: Mini, *args: str, cwd: str = "") -> Ran:
    done = subprocess.run(
        [sys.executable, *args], cwd=mini.root / cwd, env=mini.environ(), capture_output=True, text=True, timeout=120
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def prints(mini: Mini, expression: str) -> dict[str, str]:
    """Fingerprints by artifact, of a target's main action."""
    records = mini.ok("aquery", expression, "--output", "json").json
    return {record["artifact"]: record["fingerprint"] for record in records if record["artifact"]}


def test_a_script_and_a_build_file_that_say_the_same_have_equal_fingerprints(both: Mini) -> None:
    written = prints(both, "deps(//exp:small)")
    declared = prints(both, "deps(exp/small.py:build)")
    assert len(written) == 5 and declared == written


FUNCTIONS = """
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Config:
    folder: str
    words: list[str]


def write(config):
    for word in config.words:
        Path(config.folder, f"{word}.txt").write_text(word)


def join(sources, separator, output):
    words = [path.read_text() for source in sources for path in sorted(Path(source).glob("*.txt"))]
    Path(output, "all.txt").write_text(separator.join(words))


def either(ctx):
    (ctx.output_path / "n.txt").write_text(str(ctx.params["n"] + len(ctx.inputs)))
"""
PIPELINE = """
from exp.functions import Config, either, join, write
from marin_cas.api import OUT, StepRunner, apply, py_action, raw_download, resolve


def words():
    return raw_download("words", fn=write, build_config=lambda ctx: Config(ctx.output_path, ["one", "two"]))


def build():
    made = words()
    joined = apply("joined", join, sources=[made], separator="+", output=OUT)
    return [joined, py_action("counted", either, inputs={"joined": joined}, params={"n": 1})]


if __name__ == "__main__":
    joined, counted = build()
    StepRunner().run([joined])
    print(open(resolve(joined).path + "/all.txt").read(), open(counted.resolve().path + "/n.txt").read())
    print(joined.path().endswith("cache/out/exp/pipeline.py/joined"))
"""


@pytest.fixture
def pipeline(mini: Mini) -> Mini:
    mini.write({"exp/functions.py": FUNCTIONS, "exp/pipeline.py": PIPELINE})
    return mini


def test_a_script_is_built_on_the_command_line_and_by_itself(pipeline: Mini) -> None:
    assert pipeline.counts("exp/pipeline.py:build")["executed"] == 3
    ran = python(pipeline, "-m", "exp.pipeline")
    assert ran.code == 0, ran.err
    assert ran.out == "one+two 2\nTrue\n"
    assert "executed" not in ran.err, "it is served what the command has built"
    shown = pipeline.ok("build", "-n", "exp/pipeline.py:build").out
    assert shown.count("hit") == 2 and "//exp/pipeline.py:joined" in shown
    assert "is served" in pipeline.ok("why", "exp/pipeline.py:words").out
    listed = pipeline.ok("query", "deps(exp/pipeline.py:build)").out.split()
    assert "//exp/pipeline.py:words" in listed
    (place,) = pipeline.ok("path", "exp/pipeline.py:words").out.split()
    assert place.endswith("cache/out/exp/pipeline.py/words")
    inside = pipeline.ok("build", "-n", "pipeline.py:words", cwd="exp")
    assert "hit" in inside.out


def test_a_script_that_changes_what_it_declares_is_read_again(pipeline: Mini) -> None:
    """No snapshot answers for a script: only itself knows what it depends on."""
    pipeline.ok("build", "exp/pipeline.py:words")
    text = (pipeline.root / "exp/pipeline.py").read_text()
    (pipeline.root / "exp/pipeline.py").write_text(text.replace('"two"', '"three"'))
    assert pipeline.counts("exp/pipeline.py:words")["executed"] == 1
    assert not (pipeline.root / "cache/snapshot").exists()


def test_a_failure_of_a_script_by_itself_is_told_in_lines(pipeline: Mini) -> None:
    pipeline.write({"exp/functions.py": FUNCTIONS.replace("separator.join(words)", "separator.joyn(words)")})
    ran = python(pipeline, "-m", "exp.pipeline")
    assert ran.code == 1 and "Traceback" not in ran.err
    assert "joyn" in ran.err and "exp/pipeline.py:" in ran.err


HEAD = "from marin_cas.api import *\n"


@pytest.mark.parametrize(
    ("script", "message", "line"),
    [
        ("def build(:\n", "syntax error", 2),
        ("import nowhere\ndef build(): ...\n", "is `nowhere` installed here, or a file of the workspace?", 2),
        ("def build():\n    return 1 / 0\n", "ZeroDivisionError: division by zero", 3),
        ("def build(): ...\n", "returns nothing, where a step is due", 2),
        ("def build(n): ...\n", "`build` needs `n`, and is called with nothing", 2),
        ("def build():\n    yield 1\n", "is a generator or a coroutine", 2),
        ("def biuld(): ...\n", "did you mean `biuld`?", 0),
        ("build = 3\n", "`build` of `s.py` is no function", 0),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3", 3),
        ('def build():\n    return apply("a", lambda: 1)\n', "a lambda has no name", 3),
        (
            'def build():\n    def inner(): ...\n    return apply("a", inner)\n',
            "`build.<locals>.inner` is defined inside another function",
            4,
        ),
        ('def build():\n    return apply("a", print)\n', "`print` is no plain function", 3),
        ('def build():\n    return apply("a", "s.py:build", x={1, 2})\n', "is a `set`, not a plain value", 3),
        ('def build():\n    return apply("a", "s.py:build", x=float("nan"))\n', "NaN and infinities are refused", 3),
        ('def build():\n    return hf_download("a", hf_id="a/b", revison="main", revision="x")\n', "`revision`?", 3),
        ('def build():\n    return tokenized("a", tokenizer="a/b")\n', "provide exactly one of `source`", 3),
        ('def build():\n    return tokenized("a", tokenizer="a/b", paths=["gs://b/x"])\n', "give it as `source`", 3),
        ('def build():\n    return hf_download("/a", hf_id="a/b", revision="m")\n', "is not a name", 3),
        ('def build():\n    return hf_download("a", hf_id="a/b", revision="m", version="v1")\n', "the version", 3),
        ("import marin_cas.api as api\napi.LlamaConfig(hiden_dim = 3)\n", "did you mean `hidden_dim`?", 3),
        ('import marin_cas.api as api\napi.LlamaConfig(hidden_dim = "x")\n', "`hidden_dim` must be an integer", 3),
        ("import marin_cas.api as api\napi.AdamConfig(learning_rte = 3)\n", "did you mean `learning_rate`?", 3),
        ('import marin_cas.api as api\napi.ResourceConfig.with_tpu("v4-8", slice_count=0)\n', "at least 1", 3),
        ("from marin_cas.api import LamaConfig\n", "cannot import name 'LamaConfig'", 2),
        (
            "def build():\n"
            '    a = hf_download("a", hf_id="a/b", revision="m")\n'
            '    return [a, hf_download("a", hf_id="a/c", revision="m")]\n',
            "two steps are called `a@dev`, and are not the same",
            4,
        ),
    ],
)
def test_what_is_wrong_with_a_script_is_told_at_its_line(mini: Mini, script: str, message: str, line: int) -> None:
    mini.write({"s.py": HEAD + script, "marin.lock": lock_text(lock())})
    ran = mini.run("build", "-n", "s.py:build", code=2)
    assert message in ran.err
    assert f"s.py:{line}:" in ran.err if line else "s.py" in ran.err


def test_a_script_that_prints_spoils_no_data(mini: Mini) -> None:
    mini.write(
        {"s.py": HEAD + 'print("hello")\ndef build():\n    return hf_download("a", hf_id="a/b", revision="m")\n'}
    )
    ran = mini.ok("query", "s.py:build")
    assert ran.out == "//s.py:a\n" and "hello" in ran.err


def test_equal_steps_are_one_and_versions_tell_steps_of_one_name_apart(mini: Mini) -> None:
    text = HEAD + (
        "def one(version='dev'):\n"
        '    return hf_download("a", hf_id="a/b", revision="m", version=version)\n'
        "def build():\n"
        "    return {'x': one(), 'y': one(), 'z': one('2026.01.01')}\n"
    )
    mini.write({"s.py": text})
    assert mini.ok("query", "s.py:build").out.split() == ["//s.py:a", "//s.py:a@2026.01.01"]
