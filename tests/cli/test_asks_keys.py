"""What users of other tools suffered, at the command line: probes on keys and hashing, one or more a row."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from marin_cas.analysis import schema as schemas
from marin_cas.cache.cache import open_cache
from marin_cas.cache.holder import Holder
from marin_cas.cache.lease import Lease
from marin_cas.digest import Digest
from marin_cas.result import Output, Producer, Result
from tests.cli.conftest import DATA, Mini

WRITE = "def f(ctx):\n    (ctx.output_path / 'out.txt').write_text(repr(ctx.params))\n"


def wait_for(done: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def records(mini: Mini, pattern: str = "//...") -> dict[str, dict[str, Any]]:
    """What `aquery` says of every action, by its label."""
    return {record["label"]: record for record in mini.ok("aquery", pattern, "--output", "json").json}


def keys(mini: Mini, pattern: str = "//...") -> dict[str, str]:
    return {id: record["key"] for id, record in records(mini, pattern).items()}


def made(mini: Mini) -> dict[str, dict[str, str]]:
    """The digests of the outputs of what is in the cache, by label."""
    listed = mini.ok("cache", "ls", "--output", "json").json
    return {r["label"]: {name: output["digest"] for name, output in r["outputs"].items()} for r in listed}


# Row 1: an input that is edited while its action runs.

WAITS = '''
import time
from pathlib import Path


def f(ctx):
    """Says that it runs, and waits for a file `go` beside the workspace."""
    while not Path(ctx.params["go"]).exists():
        time.sleep(0.02)
    (ctx.output_path / "a").write_text("done")
'''


def test_1_an_input_edited_meanwhile_forbids_publishing(
    mini: Mini, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    go = tmp_path / "go"
    names = ("file", "same_size", "renamed", "tree", "deleted", "touched")
    inputs = {**{name: f"{name}.txt" for name in names}, "tree": ":files"}
    rest = f'params = {{"go": "{go}"}}, resources = {{"cpu": 0.1, "ram": "1m"}}'
    mini.write(
        {
            **{f"{name}.txt": f"{name} before" for name in names if name != "tree"},
            **{f"tree/{name}.txt": "before" for name in "ab"},
            "f.py": WAITS,
            "g.py": WAITS,
            "BUILD.marin": DATA
            + 'filegroup(name = "files", srcs = glob(["tree/*"]))\n'
            + "".join(
                f'py_action(name = "{name}", function = "f.py:f", inputs = {{"d": "{given}"}}, {rest})\n'
                for name, given in inputs.items()
            )
            + f'raw_download(name = "code", function = "g.py:f", {rest})\n',
        }
    )
    process = mini.start("build", "-k", "-j", "9", "//...", "--output", "json")
    request.addfinalizer(process.kill)
    wait_for(lambda: len(list((mini.root / "cache").glob("work/*/*/out"))) == 7)
    time.sleep(0.3)
    (mini.root / "file.txt").write_text("after")
    stat = (mini.root / "same_size.txt").stat()
    (mini.root / "same_size.txt").write_text("same_size BEFORE")
    os.utime(mini.root / "same_size.txt", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (mini.root / "new").write_text("AFTER!")
    os.replace(mini.root / "new", mini.root / "renamed.txt")
    (mini.root / "tree/b.txt").write_text("after")
    (mini.root / "deleted.txt").unlink()
    (mini.root / "g.py").write_text(WAITS.replace("done", "DONE"))
    os.utime(mini.root / "touched.txt")  # touched is not changed
    go.write_text("")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    changed = {"//:file": "file.txt", "//:same_size": "same_size.txt", "//:renamed": "renamed.txt",
               "//:tree": "tree/b.txt", "//:deleted": "deleted.txt", "//:code": "g.py"}  # fmt: skip
    for label, file in changed.items():
        assert f"`{file}` changed while `{label}` ran, so its result was not published" in err
    assert json.loads(out)["counts"]["failed"] == len(changed)
    assert "tree/a.txt" not in err
    assert list(made(mini)) == ["//:touched"]
    assert mini.ok("cache", "verify").out == ""
    # The next build is one of the files as they are now, and gets them.
    (mini.root / "deleted.txt").write_text("again")
    assert mini.counts("//...")["executed"] == len(changed)
    assert (mini.root / "cache/out/code/a").read_text() == "DONE"


# Row 2: the executable bit.


def test_2_the_executable_bit_is_in_the_key_and_no_other_mode_is(mini: Mini) -> None:
    mini.write(
        {
            "tools/run": "#!/bin/sh\necho hello\n",
            "tools/data": "1\n",
            "f.py": """
                import subprocess


                def f(ctx):
                    said = subprocess.check_output([str(ctx.inputs["d"] / "tools/run")])
                    (ctx.output_path / "said").write_bytes(said)
                    (ctx.output_path / "run").write_text("#!/bin/sh\\necho again\\n")
                    (ctx.output_path / "run").chmod(0o751)


                def g(ctx):
                    (ctx.output_path / "said").write_bytes(subprocess.check_output([str(ctx.inputs["d"] / "run")]))
                """,
            "BUILD.marin": DATA
            + 'filegroup(name = "tools", srcs = glob(["tools/*"]))\n'
            + 'py_action(name = "x", function = "f.py:f", inputs = {"d": ":tools"})\n'
            + 'py_action(name = "y", function = "f.py:g", inputs = {"d": ":x"})\n',
        }
    )
    run = mini.root / "tools/run"
    run.chmod(0o644)
    plain = keys(mini, "//:x")
    run.chmod(0o640)
    assert keys(mini, "//:x") == plain
    assert "Permission denied" in mini.run("build", "//:x", code=1).err
    run.chmod(0o755)
    executable = keys(mini, "//:x")
    assert executable != plain
    run.chmod(0o511)
    assert keys(mini, "//:x") == executable
    mini.ok("build", "//...")
    assert (mini.root / "cache/out/x/said").read_text() == "hello\n"
    assert (mini.root / "cache/out/y/said").read_text() == "again\n"
    assert os.access(mini.root / "cache/out/x/run", os.X_OK)
    assert (mini.root / "cache/out/x/said").stat().st_mode & 0o777 == 0o444


# Row 4: empty folders.


def listing(folder: Path) -> list[str]:
    folder = folder.resolve()
    return sorted(f"{path.relative_to(folder)}{'/' if path.is_dir() else ''}" for path in folder.rglob("*"))


def test_4_empty_folders_are_in_cached_trees_as_in_fresh_ones(mini: Mini, tmp_path: Path) -> None:
    mini.write(
        {
            "f.py": """
                def f(ctx):
                    for name in ("a", "b/c", *ctx.params["more"]):
                        (ctx.output_path / name).mkdir(parents=True)
                    (ctx.output_path / "file").write_text("x")


                def g(ctx):
                    x = ctx.inputs["x"]
                    found = sorted(str(p.relative_to(x)) + "/" * p.is_dir() for p in x.rglob("*"))
                    (ctx.output_path / "seen").write_text("\\n".join(found))
                """,
            "BUILD.marin": DATA
            + 'raw_download(name = "x", function = "f.py:f", params = {"more": []})\n'
            + 'raw_download(name = "z", function = "f.py:f", params = {"more": ["b/d"]})\n'
            + 'py_action(name = "y", function = "f.py:g", inputs = {"x": ":x"})\n',
        }
    )
    mini.ok("build", "//...")
    expected = ["a/", "b/", "b/c/", "file"]
    assert listing(mini.root / "cache/out/x") == expected
    assert (mini.root / "cache/out/y/seen").read_text().splitlines() == expected
    # Served from the store, in another workspace.
    elsewhere = Mini(tmp_path / "elsewhere", mini.home)
    elsewhere.write({name: (mini.root / name).read_text() for name in ("marin.toml", "f.py", "BUILD.marin")})
    os.rename(mini.root / "cache", elsewhere.root / "cache")
    for name in ("out", "trees"):
        shutil.rmtree(elsewhere.root / "cache" / name)
    assert elsewhere.counts("//...")["executed"] == 0
    assert listing(elsewhere.root / "cache/out/x") == expected
    assert made(elsewhere)["//:x"] != made(elsewhere)["//:z"]


# Row 5: what is around a build.


def test_5_what_is_around_a_build_is_in_neither_its_keys_nor_its_bytes(mini: Mini, tmp_path: Path) -> None:
    files = {
        "f.py": """
            import os, tempfile, time, locale
            from pathlib import Path


            def f(ctx):
                inside = {name: os.path.relpath(os.environ[name]) for name in ("HOME",)}
                inside["TMPDIR"] = tempfile.gettempdir() == os.environ["TMPDIR"]
                others = {n: v for n, v in sorted(os.environ.items()) if n not in ("HOME", "TMPDIR")}
                seen = [inside, others, {"one", "two", "three", "four"}, os.listdir("."), time.tzname, os.umask(0o22)]
                (ctx.output_path / "seen").write_text("\\n".join(map(repr, seen)))
            """,
        "exp/BUILD.marin": DATA + 'raw_download(name = "x", function = "f.py:f", toolchain = [])\n',
    }
    mini.write(files)
    mini.ok("build", "//exp:x")
    first = (keys(mini), made(mini), (mini.root / "cache/out/exp/x/seen").read_text())
    elsewhere = Mini(tmp_path / "another place", tmp_path / "another home")
    elsewhere.write({"marin.toml": "", **files})
    for folder in ("another home", "programs", "tmp"):
        (tmp_path / folder).mkdir()
    env = {
        "PATH": str(tmp_path / "programs"),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "USER": "somebody",
        "NPROC": "5",
        "HF_HOME": str(tmp_path),
        "FOO": "bar",
    }
    elsewhere.ok("build", ":x", cwd="exp", env=env)
    again = (keys(elsewhere), made(elsewhere), (elsewhere.root / "cache/out/exp/x/seen").read_text())
    assert again == first
    assert "FOO" not in first[2]


# Row 6: versions that matter.


def lock(**versions: str) -> str:
    pinned = "".join(f'{name.replace("_", "-")} = "{pin}"\n' for name, pin in versions.items())
    return f"format = 1\n\n[toolchain]\n{pinned}"


def test_6_a_locked_version_is_in_the_key_and_a_worker_that_differs_refuses(mini: Mini) -> None:
    mini.write(
        {
            "f.py": "import click\n\n\n" + WRITE,
            "BUILD.marin": DATA
            + 'raw_download(name = "x", function = "f.py:f", toolchain = ["click"])\n'
            + 'raw_download(name = "y", function = "f.py:f", toolchain = ["click"], params = {"a": 1})\n',
            "marin.lock": lock(click=version("click")),
        }
    )
    here = keys(mini)
    mini.ok("build", "//:x")
    mini.write({"marin.lock": lock(click="0.0.1")})
    other = keys(mini)
    assert here["//:x"] != other["//:x"]
    assert f'toolchain.click: {json.dumps(version("click"))} -> "0.0.1"' in mini.ok("why", "//:x").out.replace("'", '"')
    refused = mini.run("build", "//:y", code=3)
    assert f"`click` is {version('click')} here, but `marin.lock` says 0.0.1" in refused.err
    assert "BUILD.marin:3" in refused.err
    assert list(made(mini)) == ["//:x"]
    mini.write({"marin.lock": lock(click=version("click"))})
    assert keys(mini) == here
    assert mini.counts("//...")["executed"] == 1


def test_6_a_version_that_nobody_locked_is_asked_for(mini: Mini) -> None:
    mini.write(
        {
            "f.py": "import click\n\n\n" + WRITE,
            "BUILD.marin": DATA + 'raw_download(name = "x", function = "f.py:f", toolchain = ["click"])\n',
        }
    )
    assert "marin.lock" in mini.run("build", "//:x", code=2).err
    mini.write({"marin.lock": lock(python="3.0.0", click=version("click"))})
    mini.ok("build", "//:x")  # it does not list python


def test_6_a_worker_of_another_revision_refuses(mini: Mini) -> None:
    mini.write(
        {
            "own.bzl": """\
                # A rule that asks for what this worker does not have.

                def _impl(ctx):
                    made = ctx.actions.run(
                        tool = ctx.attr.tool, revision = ctx.attr.revision, params = {}, outputs = {"files": "tree"},
                    )
                    return [DefaultInfo(outputs = made)]

                own = rule(
                    implementation = _impl,
                    attrs = {"tool": attr.string(mandatory = True), "revision": attr.int(mandatory = True)},
                )
                """,
            "BUILD.marin": 'load("//:own.bzl", "own")\n'
            + 'own(name = "newer", tool = "function", revision = 99)\n'
            + 'own(name = "unknown", tool = "no_such_tool", revision = 1)\n',
        }
    )
    ran = mini.run("build", "-k", "//...", code=3)
    assert "revision 1 of tool `function`, the rule asks for 99" in ran.err
    assert "no tool `no_such_tool`" in ran.err
    assert made(mini) == {}


# Rows 10 and 16: a type for each value, a frame around each part.


def test_10_16_values_that_look_alike_have_keys_of_their_own(mini: Mini) -> None:
    literals = [
        '["ab", "c"]', '["a", "bc"]', '["abc"]', '["a", "b", "c"]', '[["ab"], "c"]', '"abc"', "[]", "{}", '""', "None",
        "0", "0.0", "False", '"0"', '"False"', '"None"', '{"a": {"b": 1}}', '{"a": {}, "b": 1}', '{"a.b": 1}', "[1, 2]",
        "[[1], 2]", "12", '{"1": 1}', '{"1": "1"}', '{"": 1}', "1 << 70", "-1", '"\\u00e9"', '"e\\u0301"',
    ]  # fmt: skip
    mini.write(
        {
            "f.py": WRITE,
            "BUILD.marin": DATA
            + "".join(
                f'raw_download(name = "x{index}", function = "f.py:f", params = {{"v": {literal}}})\n'
                for index, literal in enumerate(literals)
            )
            + 'raw_download(name = "zero", function = "f.py:f", params = {"v": -0.0})\n'
            + 'raw_download(name = "pair", function = "f.py:f", params = {"v": (1, 2)})\n',
        }
    )
    found = keys(mini)
    assert len({found[f"//:x{index}"] for index in range(len(literals))}) == len(literals)
    assert found["//:zero"] == found[f"//:x{literals.index('0.0')}"]


@pytest.mark.parametrize("value", ["{1: 2}", "{True: 2}", "{None: 2}", '{(1, "a"): 2}', "float('nan')", "float('inf')"])
def test_10_what_has_no_encoding_is_refused_at_its_place(mini: Mini, value: str) -> None:
    mini.write(
        {
            "f.py": WRITE,
            "BUILD.marin": DATA + f'\nraw_download(name = "x", function = "f.py:f", params = {{"v": {value}}})\n',
        }
    )
    ran = mini.run("build", "//:x", code=2)
    assert ran.err.startswith("error: BUILD.marin:3: ")
    assert "params" in ran.err


def test_16_a_file_with_the_bytes_of_a_recipe_is_only_a_file(mini: Mini) -> None:
    mini.write(
        {
            "f.py": WRITE
            + "\n\ndef g(ctx):\n    (ctx.output_path / 'b').write_bytes((ctx.inputs['r']).read_bytes())\n",
            "BUILD.marin": DATA
            + 'raw_download(name = "x", function = "f.py:f")\n'
            + 'py_action(name = "y", function = "f.py:g", inputs = {"r": "recipe"})\n',
        }
    )
    mini.ok("build", "//:x")
    key = keys(mini, "//:x")["//:x"]
    record = (mini.root / f"cache/cas/{key[:2]}/{key}").read_bytes()
    assert record.startswith(b"marin-cas recipe 1\n")
    assert blake3(record).hexdigest() == key
    (mini.root / "recipe").write_bytes(record)
    assert mini.counts("//:y")["executed"] == 1
    assert (mini.root / "cache/out/y/b").read_bytes() == record
    assert mini.counts("//...")["executed"] == 0
    assert mini.ok("cache", "verify").out == ""
    # Nor does a record that is no action's stand for one: the key of a miss may lie in the store.
    (mini.root / "cache" / "ac").rename(mini.root / "cache" / "gone")
    assert mini.counts("//:x")["executed"] == 1


# Row 11: where the bytes lie.


def test_11_the_place_of_the_cache_is_in_no_key(mini: Mini, tmp_path: Path) -> None:
    mini.write(
        {
            "d.txt": "data",
            "f.py": WRITE,
            "BUILD.marin": DATA
            + 'py_action(name = "x", function = "f.py:f", inputs = {"d": "d.txt"})\n'
            + 'py_action(name = "y", function = "f.py:f", inputs = {"x": ":x"})\n',
        }
    )
    found = []
    for place in ("cache", str(tmp_path / "us-central1" / "bucket")):
        env = {"MARIN_CACHE": place}
        report = mini.ok("build", "//...", "--output", "json", env=env).json
        assert report["counts"]["executed"] == 2
        listed = mini.ok("cache", "ls", "--output", "json", env=env).json
        found.append({each["label"]: (each["key"], each["outputs"]) for each in listed})
        assert (mini.root / place / "out/x/out.txt").is_file()
    assert found[0] == found[1]


# Row 12: code.

HELPERS = '''
"""Helpers."""

LIMIT = 3


def helper():
    return "helped" * LIMIT
'''
CODE = """
from lib.helpers import helper


def f(ctx):
    (ctx.output_path / "a").write_text(helper())


def other(ctx):
    pass
"""


@pytest.fixture
def coded(mini: Mini) -> Mini:
    mini.write(
        {
            "lib/helpers.py": HELPERS,
            "lib/unused.py": "x = 1\n",
            "f.py": CODE,
            "BUILD.marin": DATA
            + 'raw_download(name = "x", function = "f.py:f")\n'
            + 'raw_download(name = "y", function = "f.py:f", code = "declared", revision = 1)\n',
        }
    )
    assert mini.counts("//...")["executed"] == 2
    return mini


def edit(mini: Mini, name: str, before: str, after: str) -> None:
    path = mini.root / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_12_a_remark_runs_nothing(coded: Mini) -> None:
    for name, before, after in (
        ("f.py", "def f(ctx):\n", "# why\n\n\ndef f(ctx):  # it is so\n\n    # more\n"),
        ("lib/helpers.py", "LIMIT = 3\n", "# a remark\nLIMIT = 3  # another\n\n"),
        ("lib/unused.py", "x = 1", "x = 2"),
        ("BUILD.marin", "\nraw_download", "\n\n# a remark\nraw_download"),
    ):
        edit(coded, name, before, after)
        assert coded.counts("//...")["executed"] == 0


def test_12_an_edit_of_a_helper_or_a_constant_runs_again_what_traces_it(coded: Mini) -> None:
    for name, before, after, text in (
        ("lib/helpers.py", '"helped"', '"HELPED"', "HELPED" * 3),
        ("lib/helpers.py", "LIMIT = 3", "LIMIT = 2", "HELPED" * 2),
        ("f.py", "helper()", "helper() + '!'", "HELPED" * 2 + "!"),
    ):
        edit(coded, name, before, after)
        report = coded.ok("build", "//...", "--output", "json").json
        assert [a["label"] for a in report["actions"] if a["source"] == "executed"] == ["//:x"]
        assert (coded.root / "cache/out/x/a").read_text() == text
    assert (coded.root / "cache/out/y/a").read_text() == "helped" * 3
    edit(coded, "BUILD.marin", "revision = 1", "revision = 2")
    assert coded.counts("//...")["executed"] == 1
    assert (coded.root / "cache/out/y/a").read_text() == "HELPED" * 2 + "!"


# Rows 13, 18 and 19: tokenizers and checkpoints, made by functions here: their keys ask for no library.

LEVANTER = max(schemas.SCHEMAS.glob("levanter-*.json")).stem.removeprefix("levanter-")
LM_EVAL = max(schemas.SCHEMAS.glob("lm_eval-*.json")).stem.removeprefix("lm_eval-")
NAMES = ("tokenizers", "transformers", "marin-haliax", "tensorstore", "jax", "jaxlib", "optax", "datasets")
PINS = {**dict.fromkeys(NAMES, "1"), "marin-levanter": LEVANTER, "lm-eval": LM_EVAL}
STUBS = """# Checkpoints that nobody trained.
load("@marin//rules:common.bzl", "CheckpointInfo", "TreeInfo")

def _checkpoint(ctx):
    made = ctx.attr.files.TreeInfo.artifact
    return [
        DefaultInfo(outputs = {"hf": made}),
        CheckpointInfo(native = made, hf = made, metrics = made, tokenizer = made, tokenizer_id = "", model = {}),
    ]

checkpoint = rule(
    implementation = _checkpoint,
    attrs = {"files": attr.label(mandatory = True, providers = ["TreeInfo"])},
)
"""


def pins(mini: Mini, **changed: str) -> None:
    mini.write({"marin.lock": lock(**(PINS | {name.replace("_", "-"): pin for name, pin in changed.items()}))})


def test_13_a_tokenizer_is_its_files(mini: Mini) -> None:
    mini.write(
        {
            "docs.jsonl": '{"text": "a"}\n',
            "f.py": """
                def f(ctx):
                    for name, text in ctx.params["files"].items():
                        (ctx.output_path / name).write_text(text)


                def g(ctx):
                    for name in reversed(ctx.params["names"]):
                        (ctx.output_path / name).write_text(name + "!")
                """,
            "BUILD.marin": 'load("@marin//rules:data.bzl", "raw_download", "tokenized", "tokenizer")\n'
            + 'FILES = {"x.json": "x.json!", "y.json": "y.json!"}\n'
            + 'raw_download(name = "a", function = "f.py:f", params = {"files": FILES})\n'
            + 'raw_download(name = "b", function = "f.py:g", params = {"names": ["x.json", "y.json"]}, tags = ["b"])\n'
            + 'raw_download(name = "c", function = "f.py:g", params = {"names": ["x.json", "y.json", "z.json"]})\n'
            + "".join(
                f'tokenizer(name = "tok_{name}", files = ":{name}")\n'
                f'tokenized(name = "t{name}", paths = ["docs.jsonl"], tokenizer = ":tok_{name}")\n'
                for name in "abc"
            ),
        }
    )
    pins(mini)
    mini.ok("build", "//:a", "//:b", "//:c")
    found = keys(mini)
    assert found["//:a"] != found["//:b"]
    assert found["//:ta"] == found["//:tb"]  # by different functions, under different names: the same files
    assert found["//:tc"] not in (found["//:ta"], None)
    # Used, looked at, copied out: nothing of that is the tokenizer.
    os.utime(mini.root / "cache/out/a/x.json")
    (mini.root / "cache/trees").rename(mini.root / "cache/elsewhere")
    mini.ok("build", "//:a", "//:b", "//:c")
    assert keys(mini) == found


EVALS = """
load("@marin//rules:data.bzl", "raw_download")
load("@marin//rules:eval.bzl", "lm_eval")
load("//:stubs.bzl", "checkpoint")
DATA = {"piqa": ":wb"}  # or it would have to come from a Hub first
[raw_download(name = n, function = "f.py:f", params = {"weights": w}) for n, w in [("wa", 1), ("wb", 2)]]
raw_download(name = "again", function = "f.py:f", params = {"weights": 1}, code = "declared", revision = 1)
[checkpoint(name = "c" + n, files = ":" + n) for n in ["wa", "wb", "again"]]
[lm_eval(name = "e_" + n, checkpoint = ":c" + n, tasks = ["piqa"], num_fewshot = 0, limit = 4, data = DATA)
 for n in ["wa", "wb", "again"]]
lm_eval(name = "shots", checkpoint = ":cwa", tasks = ["piqa"], num_fewshot = 1, limit = 4, data = DATA)
lm_eval(name = "chat", checkpoint = ":cwa", tasks = ["piqa"], num_fewshot = 0, limit = 4, data = DATA,
        apply_chat_template = True)
lm_eval(name = "kwargs", checkpoint = ":cwa", num_fewshot = 0, limit = 4, data = DATA,
        tasks = [{"name": "piqa", "task_kwargs": {"generation_kwargs": {"temperature": 0.0}}}])
lm_eval(name = "kwargs2", checkpoint = ":cwa", num_fewshot = 0, limit = 4, data = DATA,
        tasks = [{"name": "piqa", "task_kwargs": {"generation_kwargs": {"temperature": 1.0}}}])
lm_eval(name = "defined", checkpoint = ":cwa", tasks = ["piqa"], num_fewshot = 0, limit = 4, data = DATA,
        task_files = ["piqa.yaml"])
lm_eval(name = "data", checkpoint = ":cwa", tasks = ["piqa"], num_fewshot = 0, limit = 4, data = {"piqa": ":wa"})
"""


@pytest.fixture
def evals(mini: Mini) -> Mini:
    """Two stub checkpoints, their evaluations, and others of the first that differ in one thing each."""
    mini.write({"f.py": WRITE, "stubs.bzl": STUBS, "piqa.yaml": "task: piqa\n", "BUILD.marin": EVALS})
    pins(mini)
    return mini


def test_18_an_evaluation_is_of_one_checkpoint_and_one_definition(evals: Mini) -> None:
    before = records(evals)
    labels = ["//:e_wa", "//:e_wb", "//:shots", "//:chat", "//:kwargs", "//:kwargs2", "//:defined", "//:data"]
    assert len({before[label]["fingerprint"] for label in labels}) == len(labels)
    assert all(before[label]["key"] is None for label in labels)
    evals.ok("build", "//:wa", "//:wb", "//:again")
    after = records(evals)
    assert len({after[label]["key"] for label in labels} - {None}) == len(labels)
    assert after["//:e_again"]["key"] == after["//:e_wa"]["key"]  # the very same weights
    digests = made(evals)
    for label, weights in (("//:e_wa", "//:wa"), ("//:e_wb", "//:wb")):
        assert after[label]["inputs"]["hf"]["digest"] == digests[weights]["files"]


def test_18_two_trainings_never_share_an_evaluation(mini: Mini) -> None:
    train = (
        'train_lm(name = "{name}", datasets = ":web", batch_size = 2, num_train_steps = 2, seq_len = 16, '
        "z_loss_weight = 0.0, model = llama("
        "hidden_dim = 8, num_heads = 1, num_kv_heads = 1, max_seq_len = 16),"
        " optimizer = adam(learning_rate = {rate}))\n"
        'lm_eval(name = "e_{name}", checkpoint = ":{name}", tasks = ["piqa"])\n'
    )
    mini.write(
        {
            "docs.jsonl": '{"text": "a"}\n',
            "BUILD.marin": 'load("@marin//rules:data.bzl", "tokenized", "trained_tokenizer")\n'
            + 'load("@marin//rules:eval.bzl", "lm_eval")\nload("@marin//rules:models.bzl", "adam", "llama")\n'
            + 'load("@marin//rules:train.bzl", "train_lm")\n'
            + 'trained_tokenizer(name = "tok", paths = ["docs.jsonl"], vocab_size = 300)\n'
            + 'tokenized(name = "web", paths = ["docs.jsonl"], tokenizer = ":tok")\n'
            + "".join(
                train.format(name=name, rate=rate) for name, rate in (("a", "1e-3"), ("b", "2e-3"), ("c", "0.001"))
            ),
        }
    )
    pins(mini)
    found = {id: record["fingerprint"] for id, record in records(mini).items()}
    assert found["//:a"] != found["//:b"]
    assert found["//:e_a"] != found["//:e_b"]
    assert (found["//:a"], found["//:e_a"]) == (found["//:c"], found["//:e_c"])


def publish(mini: Mini, record: Mapping[str, Any]) -> None:
    """A result for an action, as if it had run: real evaluations take minutes."""
    cache = open_cache(mini.root / "cache")
    key = Digest(bytes.fromhex(record["key"]), 0)
    lease = cache.actions.acquire(key, Holder.here())
    outputs = {name: Output("file", cache.store.put(name.encode())) for name in ("scores", "samples")}
    fingerprint = bytes.fromhex(record["fingerprint"])
    if isinstance(lease, Lease):  # two of them have one key
        lease.publish(Result(key, fingerprint, "sampled", outputs, Producer("ann", "host"), 1.0, 2.0))
    cache.fingerprints.put(fingerprint, key)


def test_19_another_library_of_evaluations_asks_for_evaluations_only(evals: Mini) -> None:
    evals.ok("build", "//:wa", "//:wb", "//:again")
    for record in records(evals).values():
        if record["rule"] == "lm_eval":
            publish(evals, record)
    assert {each["status"] for each in evals.ok("build", "-n", "//...", "--output", "json").json} == {"hit"}
    pins(evals, lm_eval="2")
    unknown = evals.run("build", "-n", "//...", code=2)
    assert f"no table of the tasks of `lm-eval` 2, which marin.lock pins: this marin-cas knows {LM_EVAL}" in unknown.err
    pins(evals, datasets="2")
    ran = evals.ok("build", "-n", "//...", "-//:e_again")  # it has the key of another
    plan = {line.split()[2]: line.split()[0] for line in ran.out.splitlines()}
    assert plan == {"raw_download": "hit", "lm_eval": "miss"}
    assert "would run 8 actions (8 lm_eval)" in ran.err


# Row 17: what a key is made of may only change together with its format.


def test_17_a_whole_key_is_frozen(mini: Mini) -> None:
    mini.write(
        {
            "d.txt": "data\n",
            "f.py": "def f(ctx):\n    pass\n",
            "BUILD.marin": DATA
            + 'py_action(name = "x", function = "f.py:f", inputs = {"d": "d.txt"}, toolchain = [],'
            + ' params = {"a": [1, 2.5, "é", True, None, {"z": 1, "aa": 2}]})\n',
        }
    )
    [record] = records(mini, "//:x").values()
    assert record["key"] == "08aa79865a4fbcfef7585ce6df1216b6ac2324c13d0ba991ef286d0ed6f3ea79"
    assert record["fingerprint"] == "540d64a91da148c1effeaa944ce895be426d44f6b3caec1231eaf40da1ed96c8"
