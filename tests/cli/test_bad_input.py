"""Wrong BUILD files: one clear message that names the thing and the place, exit code 2, nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marin_cas.analysis import schema as schemas
from tests.cli.conftest import DATA, Mini

TRAIN = 'load("@marin//rules:train.bzl", "train_lm")\nload("@marin//rules:mixture.bzl", "mixture")\n'

# Each: the BUILD file of exp, then texts that the message must hold.
CASES = {
    "syntax": ("x = 1\n\ny = = 2\n", ["exp/BUILD.marin:3"]),
    "unclosed": ("x = (1,\n\ny = 2\n", ["exp/BUILD.marin:1", "`(`"]),
    "function": ("x = 1\ndef f():\n    pass\n", ["exp/BUILD.marin:2", ".bzl"]),
    "unknown_name": (
        DATA + 'py_actoin(name = "x")\n',
        ["exp/BUILD.marin:2", "`py_actoin`", "did you mean `py_action`?"],
    ),
    "unknown_attribute": (
        DATA + 'raw_download(\n    name = "x",\n    functoin = "exp/f.py:f",\n)\n',
        ["exp/BUILD.marin:2", "`functoin`", "did you mean `function`?"],
    ),
    "mandatory": (DATA + 'raw_download(name = "x")\n', ["exp/BUILD.marin:2", "`function`"]),
    "wrong_type": (
        DATA + 'raw_download(name = "x", function = 3)\n',
        ["exp/BUILD.marin:2", "`function`", "string"],
    ),
    "wrong_element": (
        DATA + 'raw_download(name = "x", function = "exp/f.py:f", tags = ["a", 1])\n',
        ["exp/BUILD.marin:2", "`tags[1]`", "string"],
    ),
    "wrong_value": (
        DATA + 'raw_download(name = "x", function = "exp/f.py:f", code = "guessed")\n',
        ["exp/BUILD.marin:2", "`code`", "guessed", "traced"],
    ),
    "callable": (
        DATA + 'raw_download(name = "x", function = "exp/f.py:f", params = {"f": glob})\n',
        ["exp/BUILD.marin:2", "params"],
    ),
    "missing_target": (
        DATA
        + 'raw_download(name = "words", function = "exp/f.py:f")\n'
        + 'py_action(name = "x", function = "exp/f.py:f", inputs = {"a": ":wrods"})\n',
        ["exp/BUILD.marin:3", "`//exp:wrods`", "did you mean", "words"],
    ),
    "missing_package": (
        DATA + 'py_action(name = "x", function = "exp/f.py:f", inputs = {"a": "//exq:words"})\n',
        ["exp/BUILD.marin:2", "exq"],
    ),
    "not_a_label": (
        DATA + 'py_action(name = "x", function = "exp/f.py:f", inputs = {"a": "//exp:..:b"})\n',
        ["exp/BUILD.marin:2", "not a label"],
    ),
    "missing_file": ('load("//exp:nothing.bzl", "x")\n', ["exp/BUILD.marin:1", "nothing.bzl"]),
    "missing_symbol": (
        'load("@marin//rules:data.bzl", "py_actoin")\n',
        ["exp/BUILD.marin:1", "`py_actoin`", "py_action"],
    ),
    "glob_matches_nothing": (
        DATA
        + 'trained = glob(["*.jsno"])\n',
        ["exp/BUILD.marin:2", "`*.jsno`", "allow_empty"],
    ),
    "duplicate": (
        DATA
        + 'raw_download(name = "x", function = "exp/f.py:f")\n\n'
        + 'raw_download(name = "x", function = "exp/f.py:f")\n',
        ["exp/BUILD.marin:4", "exp/BUILD.marin:2", "x"],
    ),
    "self_cycle": (
        DATA + 'py_action(name = "x", function = "exp/f.py:f", inputs = {"a": ":x"})\n',
        ["exp/BUILD.marin:2", "//exp:x", "cycle"],
    ),
    "one_name_and_version": (
        DATA
        + 'raw_download(name = "x", function = "exp/f.py:f", artifact = "data/a", version = "2026.01.31")\n'
        + 'raw_download(name = "y", function = "exp/f.py:f", artifact = "data/a", version = "2026.01.31")\n',
        ["exp/BUILD.marin:2", "exp/BUILD.marin:3", "//exp:x", "//exp:y", "data/a@2026.01.31"],
    ),
    "missing_function_file": (
        DATA + 'raw_download(name = "x", function = "exp/nothing.py:f")\n',
        ["exp/BUILD.marin:2", "exp/nothing.py"],
    ),
    "missing_function": (
        DATA + 'raw_download(name = "x", function = "exp/f.py:g")\n',
        ["exp/BUILD.marin:2", "`g`", "exp/f.py"],
    ),
    "identity_select": (
        DATA + 'raw_download(name = "x", function = select({"//conditions:default": "exp/f.py:f"}))\n',
        ["exp/BUILD.marin:2", "`function`", "select"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_message_with_the_place(mini: Mini, name: str) -> None:
    build_file, texts = CASES[name]
    mini.write({"exp/f.py": "def f(ctx):\n    pass\n", "exp/BUILD.marin": build_file})
    ran = mini.run("build", "//...", code=2)
    for text in texts:
        assert text in ran.err, ran.err
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert ran.err.count("error: ") == 1 + ran.err.count("syntax error: ")
    assert not list((mini.root / "cache").glob("cas/*/*"))


def model(**changed: str) -> str:
    fields = {"type": '"llama"', "hidden_dim": "16", "intermediate_dim": "32", "num_layers": "1", "num_heads": "2",
              "num_kv_heads": "2", "max_seq_len": "64"} | changed  # fmt: skip
    return "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "-float('inf')", "'1e-3'", "True"])
def test_a_learning_rate_that_is_no_number(mini: Mini, value: str) -> None:
    ran = train(mini, optimizer=f'{{"type": "adam", "learning_rate": {value}}}')
    assert "exp/BUILD.marin:" in ran
    assert "learning_rate" in ran


def test_an_unknown_model_field(mini: Mini) -> None:
    shown = train(mini, model=model(hiden_dim="3"))
    assert "exp/BUILD.marin:" in shown
    assert "`hiden_dim`" in shown
    assert "did you mean `hidden_dim`?" in shown


def test_an_unknown_model_type(mini: Mini) -> None:
    shown = train(mini, model=model(type='"lama"'))
    assert "`lama`" in shown
    assert "llama" in shown


def train(mini: Mini, **changed: str) -> str:
    """The message for a training that is wrong in one attribute; loading it needs no library."""
    attributes = {
        "name": '"tiny"',
        "datasets": '":mix"',
        "model": model(),
        "optimizer": '{"type": "adam", "learning_rate": 1e-3}',
        "num_train_steps": "2",
        "batch_size": "2",
        "seq_len": "8",
        "z_loss_weight": "0",
    } | changed
    body = "".join(f"    {name} = {value},\n" for name, value in attributes.items())
    mini.write(
        {
            "exp/docs.jsonl": '{"text": "some words"}\n',
            "marin.lock": LOCK,
            "exp/BUILD.marin": TRAIN
            + 'load("@marin//rules:data.bzl", "tokenized", "trained_tokenizer")\n'
            + 'trained_tokenizer(name = "tok", paths = ["docs.jsonl"], vocab_size = 300)\n'
            + 'tokenized(name = "a", paths = ["docs.jsonl"], tokenizer = ":tok")\n'
            + 'mixture(name = "mix", train = {":a": 1.0})\n'
            + f"train_lm(\n{body})\n",
        }
    )
    ran = mini.run("build", "//exp:tiny", code=2)
    assert ran.err.startswith("error: ")
    return ran.err


LEVANTER = max(schemas.SCHEMAS.glob("levanter-*.json")).stem.removeprefix("levanter-")
LOCK = f'format = 1\n\n[toolchain]\nmarin-levanter = "{LEVANTER}"\n' + "".join(
    f'{name} = "1"\n'
    for name in ("tokenizers", "transformers", "marin-haliax", "tensorstore", "jax", "jaxlib", "optax")
)


# Tools that misbehave. Each: the function's body, then texts that the message must hold.
TOOLS = {
    "raises": ('raise KeyError("colour")', ["f.py:6", "KeyError", "colour"]),
    "killed": ("os.kill(os.getpid(), 9)", ["killed by SIGKILL"]),
    "exits": ("os._exit(0)", ["`//:x`"]),
    "leaves_nothing": ("pass", ["empty"]),
    "removes_its_output": ("os.rmdir(ctx.output_path)", ["files"]),
    "leaves_a_child": (
        '(ctx.output_path / "a").write_text("a"); subprocess.Popen(["sleep", "60"])',
        ["left a process running", "sleep 60"],
    ),
    "writes_outside": ('open("/var/tmp/outside-of-it", "w")', ["wrote outside its folder", "/var/tmp/outside-of-it"]),
    "writes_its_input": ('(ctx.inputs["d"]).write_text("changed")', ["input"]),
    "leaks_its_folder": ('(ctx.output_path / "a").write_text(str(ctx.output_path.absolute()))', ["a", "work"]),
    "escaping_link": ('os.symlink("/etc/passwd", ctx.output_path / "a")', ["/etc/passwd"]),
    "pipe": ('os.mkfifo(ctx.output_path / "a")', ["a"]),
}  # fmt: skip


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_that_misbehaves(mini: Mini, name: str) -> None:
    body, texts = TOOLS[name]
    mini.write(
        {
            "data.txt": "data\n",
            "f.py": f"import os\nimport subprocess\n\n\ndef f(ctx):\n    {body}\n",
            "BUILD.marin": DATA + 'py_action(name = "x", function = "f.py:f", inputs = {"d": "data.txt"})\n',
        }
    )
    ran = mini.run("build", "//:x", code=1)
    assert "BUILD.marin:2" in ran.err, ran.err
    assert ran.err.count("error: ") == 1
    for text in texts:
        assert text in ran.err, ran.err
    assert mini.ok("cache", "verify").out == ""
    mini.write({"f.py": "def f(ctx):\n    (ctx.output_path / 'a').write_text(ctx.inputs['d'].read_text())\n"})
    assert mini.counts("//:x")["executed"] == 1
    assert (mini.root / "cache/out/x/a").read_text() == "data\n"


# More of them, in one build: each body, then what is said of its target.
MORE = {
    "daemon": (
        "pid = os.fork()\n"
        "    if not pid:\n"
        "        os.setsid()\n"
        "        os.fork() and os._exit(0)\n"
        "        os.execvp('sleep', ['sleep', '61'])\n"
        "    os.waitpid(pid, 0)\n"
        "    time.sleep(0.2)\n"
        "    (ctx.output_path / 'a').write_text('a')",
        "left a process running: ",
    ),
    "segv": ("os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
    "group": ("os.killpg(0, 9)", "was killed by SIGKILL"),
    "status": ("raise SystemExit(7)", "ended with exit status 7"),
    "beside": ("open('../../../../beside', 'w').write('x')", "wrote outside its folder: `../../../../beside`"),
    "in_the_store": ("open('../../../cas/x', 'w').write('x')", "wrote outside its folder: `../../../cas/x`"),
    "extra": ("open('out/more', 'w').write('x')", "wrote `out/more`, which is not one of its outputs (`files`)"),
    "a_file": ("os.rmdir(ctx.output_path); open(ctx.output_path, 'w')", "should be a folder, and is a file"),
    "a_name": ("open(os.fsencode(ctx.output_path) + b'/\\xff', 'w').write('a')", "has a name that is not UTF-8"),
    "a_socket": (
        "import socket; socket.socket(socket.AF_UNIX).bind(str(ctx.output_path / 's'))",
        "the output `files` of `//:a_socket`",
    ),
    "a_generator": ("yield 1", "`a_generator` is a generator or a coroutine"),
    "interrupts": ("raise KeyboardInterrupt", "failed: KeyboardInterrupt"),
    "recursion": ("f = lambda n: f(n + 1)\n    f(0)", "failed: RecursionError"),
    "long": ("raise ValueError('x' * 3_000_000)", "(3,000,000 characters, its log has them all)"),
    "lines": ("raise ValueError('one\\nerror: two')", "failed: ValueError: one\n  error: two"),
    "colours": ("raise ValueError('\\x1b[31mred\\x1b[0m\\x07')", "failed: ValueError: red\\x07\n"),
    "floods": ("os.write(1, b'y' * 3_000_000); raise ValueError('flooded')", "failed: ValueError: flooded"),
}


def test_more_tools_that_misbehave(mini: Mini) -> None:
    functions = "".join(f"\n\ndef {name}(ctx):\n    {body}\n" for name, (body, _) in MORE.items())
    mini.write(
        {
            "f.py": "import os\nimport time\n" + functions,
            "BUILD.marin": DATA
            + "".join(f'raw_download(name = "{name}", function = "f.py:{name}")\n' for name in MORE)
            + 'raw_download(name = "well", function = "g.py:f")\n',
            "g.py": "def f(ctx):\n    (ctx.output_path / 'a').write_text('a')\n",
        }
    )
    ran = mini.run("build", "-k", "//...", "--progress", "none", code=1)
    said = ran.err.split("\nerror: ")
    assert len(said) == len(MORE)
    for line, (name, (_, text)) in enumerate(MORE.items(), 2):
        [block] = [each for each in said if f"`//:{name}`" in each]
        assert text in block
        assert f"BUILD.marin:{line}" in block
        assert len(block) < 20_000
    assert "\x1b" not in ran.err
    assert not (mini.root / "beside").exists()
    assert ["sleep", "61"] not in [command_line(pid) for pid in filter(str.isdecimal, os.listdir("/proc"))]
    assert ran.out == "//:well  cache/out/well\n"
    assert mini.ok("cache", "verify").out == ""
    assert not list((mini.root / "cache/work").iterdir())


def command_line(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    except OSError:
        return []


def test_a_full_disk(mini: Mini) -> None:
    mini.write(
        {
            "f.py": "def f(ctx):\n    (ctx.output_path / 'a').write_bytes(bytes(ctx.params['size']))\n",
            "BUILD.marin": DATA + 'raw_download(name = "x", function = "f.py:f", params = {"size": 3000000})\n',
        }
    )
    limited = [
        sys.executable,
        "-c",
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000000, 2000000)); "
        "from marin_cas.cli.main import main; sys.exit(main(['build', '//:x']))",
    ]
    ran = subprocess.run(limited, cwd=mini.root, env=mini.environ(), capture_output=True, text=True)
    assert ran.returncode == 3, ran.stderr
    assert "a file grew beyond what is allowed here" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert mini.counts("//:x")["executed"] == 1
