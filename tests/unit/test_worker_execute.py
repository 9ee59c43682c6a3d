"""Real attempts in real processes: what a tool may do, how each of its ends is told, and what is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import marin_cas
from marin_cas.action import SAMPLED, Resources
from marin_cas.cache.cache import Cache, open_cache
from marin_cas.cache.holder import Holder
from marin_cas.errors import BuildError, EnvironmentProblem, Interrupted, MarinError
from marin_cas.executors.local import LocalExecutor
from marin_cas.recipe import FILE, TREE, Input, Recipe
from marin_cas.result import Result
from marin_cas.tree.ingest import ingest
from marin_cas.tree.materialise import materialise
from marin_cas.worker import execute, landlock
from marin_cas.worker.attempt import Attempt, Progress, Started, Status
from marin_cas.worker.execute import LOGS
from marin_cas.worker.request import Request

CANARY = "canary-5ecret-value"


@dataclass
class Bench:
    """A workspace with one function, and an executor. `lease` of each run is a real one."""

    base: Path
    environ: dict[str, str] = field(default_factory=dict)
    confine: bool = True
    grace: float = 5.0

    def __post_init__(self) -> None:
        self.root = self.base / "space"
        (self.root / "exp").mkdir(parents=True)
        self.cache = open_cache(self.root / "cache")
        self.executor = self.new_executor()
        self.holder = Holder.here()
        self.said: list = []
        self.lease = None

    def new_executor(self) -> LocalExecutor:
        return LocalExecutor(self.cache, self.root, environ=self.environ, confine=self.confine, grace=self.grace)

    def code(self, source: str, **others: str):
        folder = self.base / "code"
        subprocess.run(["rm", "-rf", folder], check=True)
        (folder / "exp").mkdir(parents=True)
        for name, text in {"f": source, **others}.items():
            (folder / "exp" / f"{name}.py").write_text(textwrap.dedent(text))
        return ingest(self.cache.store, folder, move=False).digest

    def given(self, files: dict[str, str]) -> Input:
        folder = self.base / "given"
        subprocess.run(["rm", "-rf", folder], check=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return Input(TREE, ingest(self.cache.store, folder, move=False).digest)

    def submit(self, source: str, *, recipe: dict | None = None, others: dict | None = None, recheck=None, **fields):
        code = self.code(source, **(others or {}))
        params = {"function": "exp/f.py:go", "code": code.hash, "params": fields.pop("params", {})}
        values = {
            "tool": "function",
            "revision": 1,
            "params": params,
            "inputs": fields.pop("inputs", {}),
            "outputs": {"files": TREE},
        } | (recipe or {})
        made = Recipe(**values)
        lease = self.cache.actions.acquire(made.key(), self.holder, force=True)
        assert not isinstance(lease, Result)
        self.lease = lease
        request = Request(key=made.key(), label="//exp:x", fence=lease.fence, record=made.record(), code=code, **fields)
        return self.executor.submit(request, lease, self.said.append, recheck=recheck)

    def run(self, source: str, **fields) -> Attempt:
        attempt = self.submit(source, **fields).wait(60)
        assert attempt is not None
        assert self.lease is not None
        self.lease.release()
        return attempt

    def fails(self, source: str, status: Status = Status.FAILED, kind: type[MarinError] = BuildError, **fields):
        attempt = self.run(source, **fields)
        assert attempt.status == status, attempt
        assert attempt.result is None
        assert type(attempt.error) is kind
        return attempt, attempt.error

    def output(self, attempt: Attempt, name: str = "files") -> dict[str, str]:
        assert attempt.error is None, (attempt.error, attempt.log_tail)
        made = attempt.result.outputs[name]  # type: ignore[union-attr]
        dest = self.base / f"seen-{time.monotonic_ns()}"
        materialise(self.cache.store, made.kind, made.digest, dest)
        return {os.path.relpath(path, dest): path.read_text() for path in sorted(dest.rglob("*")) if path.is_file()}

    def left_over(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.cache.root))
            for name in ("work", "scratch")
            for path in (self.cache.root / name).rglob("*")
        )


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.executor.close()


WRITES = """
    def go(ctx):
        (ctx.output_path / "a.txt").write_text("hello")
"""


def test_a_function_runs_and_its_result_is_published(bench):
    docs = bench.given({"a.txt": "one", "b/c.txt": "two"})
    attempt = bench.run(
        """
        import sys
        from pathlib import Path

        def go(ctx):
            print("to the log")
            print("this too", file=sys.stderr)
            assert ctx.inputs == {"docs": Path("in/docs")}, ctx.inputs
            text = "".join(sorted(p.read_text() for p in ctx.inputs["docs"].rglob("*.txt")))
            (ctx.output_path / "out.txt").write_text(text * ctx.params["times"])
            ctx.progress(1, 2, "files", loss=0.5)
            ctx.progress(2, 2, "files")
        """,
        params={"times": 2},
        inputs={"docs": docs},
        fingerprint=b"f" * 32,
        producer_keys=(b"k" * 32,),
        artifact="exp/x@dev",
    )
    result = attempt.result
    assert bench.output(attempt) == {"out.txt": "onetwoonetwo"}
    assert result == attempt.made == bench.cache.actions.result(result.key)
    assert Recipe.parse(bench.cache.store.read(result.key)).params["params"] == {"times": 2}
    assert sorted(bench.cache.store.read(result.log).splitlines()) == [b"this too", b"to the log"]
    assert (result.fingerprint, result.producer_keys, result.artifact) == (b"f" * 32, (b"k" * 32,), "exp/x@dev")
    assert result.label == "//exp:x" and result.fence == bench.lease.fence
    assert result.cost.bytes_in == 6 and result.cost.bytes_out == 12
    assert 0 < result.cost.cpu_s < 30 and result.cost.max_rss > 1 << 20 and result.cost.wall_s > 0
    assert result.producer.host == socket.gethostname() or result.producer.host
    assert result.producer.versions["python"] == sys.version.split()[0]
    assert b"blake3==" in bench.cache.store.read(result.producer.environment)
    started, *progress = bench.said
    assert isinstance(started, Started)
    assert progress[0] == Progress(1, 2, "files", {"loss": 0.5}) and progress[-1].done == 2
    assert bench.left_over() == []
    bench.executor.close()  # what was thrown away is removed by then
    assert os.listdir(bench.cache.root / "tmp") == [f"{bench.holder.process.prefix}beat"]


def test_the_environment_is_what_is_declared(tmp_path):
    bench = Bench(tmp_path, environ={"TOKEN": CANARY, "PROXY": "p", "OTHER": "leaks", "PYTHONPATH": "/nowhere"})
    source = """
        import os, time
        def go(ctx):
            (ctx.output_path / "names").write_text(" ".join(sorted(os.environ)))
            for name in ("LANG", "TZ", "PYTHONHASHSEED", "DECLARED", "PROXY", "NPROC", "JAX"):
                (ctx.output_path / name).write_text(os.environ.get(name, ""))
            assert os.environ["HOME"] == os.getcwd() + "/home" and os.path.isdir(os.environ["HOME"])
            assert os.path.samefile(os.environ["TMPDIR"], "tmp") and os.listdir("tmp") == []
            (ctx.output_path / "hash").write_text(str(hash("text")))
            (ctx.output_path / "zone").write_text(str(time.localtime(0).tm_hour))
            (ctx.output_path / "argv").write_text(str(b"canary" in open("/proc/self/cmdline", "rb").read()))
    """
    common = "DECLARED HOME JAX LANG NPROC PATH PROXY PYTHONDONTWRITEBYTECODE PYTHONHASHSEED TMPDIR TOKEN TZ"
    seen = []
    for heavy in (False, True):
        attempt = bench.run(
            source,
            recipe={"env": {"DECLARED": "yes"}, "params": {
                "function": "exp/f.py:go", "code": b"", "params": {}, "nproc": 2,
            }},
            secrets=("TOKEN",), pass_env=("PROXY", "ABSENT"), machine_env={"JAX": "cache"}, heavy=heavy,
        )  # fmt: skip
        files = bench.output(attempt)
        assert files["names"].split() == sorted([*common.split(), "HF_HUB_OFFLINE"])
        assert (files["DECLARED"], files["PROXY"], files["NPROC"], files["JAX"]) == ("yes", "p", "2", "cache")
        assert (files["TZ"], files["zone"], files["argv"]) == ("UTC", "0", "False")
        seen.append(attempt.result.outputs["files"].digest)
    assert seen[0] == seen[1]
    networked = bench.run(source, settings={"network": True}, resources=Resources(device="cpu"))
    assert "HF_HUB_OFFLINE" not in bench.output(networked)["names"]
    bench.executor.close()


def test_a_variable_that_python_reads_at_its_start_is_honoured(bench):
    source = """
        import sys
        def go(ctx):
            (ctx.output_path / "flag").write_text(str(sys.flags.utf8_mode))
    """
    assert bench.output(bench.run(source))["flag"] == "0"
    assert bench.output(bench.run(source, recipe={"env": {"PYTHONUTF8": "1"}}))["flag"] == "1"


def test_an_exception_is_told_with_the_line_of_user_code_and_without_a_traceback(bench):
    attempt, error = bench.fails(
        """
        import json
        from exp.helper import inner

        def go(ctx):
            print("before")
            inner()
        """,
        others={"helper": "import json\n\ndef inner():\n    json.loads('{')\n"},
    )
    assert error.message.startswith("`//exp:x` failed: JSONDecodeError: Expecting property name")
    assert error.where == "exp/helper.py:4"
    assert "Traceback" not in error.render()
    log = attempt.log.read_text()
    assert log.startswith("before\n") and "Traceback (most recent call last)" in log
    assert attempt.log == bench.cache.root / LOGS / f"{bench.lease.key.hex}.log"
    assert attempt.log_tail == tuple(log.splitlines()[-20:])
    assert bench.left_over() == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit(3)", "ended with exit status 3"),
        ("sys.exit('not today')", "failed: not today"),
        ("sys.exit(0)", "is empty"),
        ("os._exit(0)", "is empty"),
        ("os.rmdir(ctx.output_path); os._exit(0)", "ended well but did not write its output `files`"),
        ("os._exit(9)", "ended with exit status 9"),
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        ("open('out/more', 'w').write('x')", "wrote `out/more`, which is not one of its outputs (`files`)"),
        ("(ctx.output_path / 'empty').mkdir()", "the output `files` of `//exp:x` is empty"),
        ("os.rmdir(ctx.output_path); ctx.output_path.write_text('x')", "should be a folder, and is a file"),
        ("os.rmdir(ctx.output_path); os.symlink('.', ctx.output_path)", "neither a file nor a folder"),
        ("os.mkfifo(ctx.output_path / 'p'); (ctx.output_path / 'a').write_text('x')", "`p` is a named pipe"),
        ("os.symlink('/etc', ctx.output_path / 'etc')", "`etc`"),
        ("raise KeyboardInterrupt", "failed: KeyboardInterrupt"),
        ("return (x for x in ())", "is a generator or a coroutine"),
        ("raise ImportError('é' * 5000)", "ImportError: é"),
        ("raise ValueError('x' * 5_000_000)", "x... (5,000,000 characters, its log has them all)"),
        ("sys.stdout = sys.stderr = None; raise ValueError('quiet')", "failed: ValueError: quiet"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()", "failed: Odd"),
    ],
)
def test_ways_to_fail(bench, body, message):
    _, error = bench.fails(f"import os, sys\ndef go(ctx):\n    {body}\n")
    assert message in error.message
    assert "`//exp:x`" in error.message


def test_what_a_tool_says_to_its_supervisor_by_itself_is_passed_over(bench):
    attempt = bench.run(
        """
        import os
        def go(ctx):
            for fd in range(3, 30):
                if os.path.exists(f"/proc/self/fd/{fd}") and "pipe" in os.readlink(f"/proc/self/fd/{fd}"):
                    for line in ('5', '[]', '"failure"', '{"failure": 3}', '{"progress": 1}', '{"end": 1}', '{'):
                        os.write(fd, line.encode() + b"\\n")
            ctx.progress(1, float("nan"), "steps", loss=float("inf"))
            (ctx.output_path / "a").write_text("a")
        """
    )
    assert bench.output(attempt) == {"a": "a"}
    assert [said.done for said in bench.said if isinstance(said, Progress)] == [1]


def test_progress_may_be_the_numbers_of_an_array_library(bench):
    bench.run(
        """
        class Scalar:
            def item(self):
                return 3
        def go(ctx):
            ctx.progress(Scalar(), 3, "steps", loss=object)
        """
    )
    [said] = [said for said in bench.said if isinstance(said, Progress)]
    assert (said.done, said.total) == (3, 3)


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"toolchain": {"blake3": "0.0.1"}}, "`blake3` is "),
        ({"toolchain": {"nonesuch": "1.0"}}, "`nonesuch` is not installed here, but `marin.lock` says 1.0"),
        ({"toolchain": {"python": "3.1.0"}}, "`marin.lock` says 3.1.0"),
        ({"revision": 99}, "revision 1 of tool `function`, the rule asks for 99"),
        ({"tool": "nonesuch"}, "this worker has no tool `nonesuch`"),
    ],
)
def test_a_worker_that_differs_refuses(bench, recipe, message, heavy):
    _, error = bench.fails(WRITES, Status.INFRA, EnvironmentProblem, recipe=recipe, heavy=heavy)
    assert message in error.message and error.hint


def test_a_full_disk_is_the_machines_fault(bench):
    _, error = bench.fails(
        "import errno\ndef go(ctx):\n    raise OSError(errno.ENOSPC, 'no space', 'out/files/big')\n",
        Status.INFRA,
        EnvironmentProblem,
    )
    assert error.message == "`//exp:x`: the disk is full (writing `out/files/big`)"
    assert error.where == "exp/f.py:3"


def test_children_left_behind_are_named_and_killed(bench):
    attempt, error = bench.fails(
        """
        import os, subprocess, sys
        def go(ctx):
            (ctx.output_path / "a").write_text("x")
            # A daemon as daemons are made: its parent is gone and its session is its own.
            subprocess.run([sys.executable, "-c", (
                "import subprocess;"
                "print(subprocess.Popen(['sleep', '300.25'], start_new_session=True).pid)")], check=True)
        """
    )
    pid = int(attempt.log_tail[-1])
    assert error.message == f"`//exp:x` left a process running: {pid}, `sleep 300.25`"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_helpers_that_end_by_themselves_are_no_failure(bench):
    attempt = bench.run(
        """
        import multiprocessing, subprocess
        def double(x):
            return 2 * x
        def go(ctx):
            subprocess.Popen(["sleep", "0.1"])
            with multiprocessing.get_context("spawn").Manager() as manager:
                values = manager.list([1, 2])
                (ctx.output_path / "a").write_text(str(sum(values)))
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                (ctx.output_path / "c").write_text(str(pool.map(double, [3])))
            with multiprocessing.get_context("fork").Pool(2) as pool:
                (ctx.output_path / "b").write_text(str(pool.map(double, [1, 2])))
        """
    )
    assert bench.output(attempt) == {"a": "3", "b": "[2, 4]", "c": "[6]"}


SLEEPS = """
    import os, signal, sys, time
    def go(ctx):
        earlier = sorted(ctx.scratch.parent.glob("earlier/*/state"))
        (ctx.output_path / "seen").write_text(" ".join(path.read_text() for path in earlier))
        if ctx.params.get("finish"):
            return
        def stop(signum, frame):
            (ctx.scratch / "state").write_text("saved")
            sys.exit(1)
        signal.signal(signal.SIGTERM, stop if ctx.params["polite"] else signal.SIG_IGN)
        (ctx.scratch / "state").write_text("begun")
        ctx.progress(1, 100, "steps")
        time.sleep(300)
"""


def wait_for(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("polite", "kill", "state"), [(True, False, "saved"), (True, True, "begun"), (False, False, "begun")]
)
def test_stopping_keeps_scratch_for_the_next_attempt(tmp_path, polite, kill, state):
    bench = Bench(tmp_path, grace=0.3)
    job = bench.submit(SLEEPS, params={"polite": polite})
    wait_for(lambda: any(isinstance(said, Progress) for said in bench.said))
    pid = bench.said[0].pid
    began = time.monotonic()
    job.cancel(kill=kill)
    attempt = job.wait(30)
    assert time.monotonic() - began < 5
    assert attempt.status == Status.CANCELLED and type(attempt.error) is Interrupted
    assert is_gone(pid)
    first = bench.lease
    first.release()
    scratch = bench.cache.scratch(first.key, first.fence)
    assert (scratch / "state").read_text() == state
    # The same key again: the earlier scratch is there, and all of it is gone after the success.
    request = Request(
        key=first.key, label="//exp:x", fence="", code=None, record=bench.cache.store.read(first.key) or b""
    )
    assert request.record == b"", "nothing is published of a stopped attempt, not even its recipe"
    bench.executor.close()


def test_the_next_attempt_sees_earlier_scratch_unless_it_is_fresh(bench):
    source = """
        def go(ctx):
            seen = sorted(str(p.resolve().parent.name) for p in ctx.scratch.parent.glob("earlier/*/state"))
            (ctx.scratch / "state").write_text("mine")
            if len(seen) < 2:
                raise ValueError(f"saw {len(seen)}")
            try:
                (ctx.scratch.parent / "earlier/0/state").write_text("changed")
            except PermissionError:
                (ctx.output_path / "seen").write_text(str(len(seen)))
    """
    assert "saw 0" in bench.run(source).error.message
    assert "saw 1" in bench.run(source).error.message
    assert "saw 0" in bench.run(source, fresh=True).error.message
    if landlock.abi():
        assert bench.output(bench.run(source)) == {"seen": "3"}
        assert bench.left_over() == []


@pytest.mark.parametrize("from_s", [0.0, 60.0])
def test_a_long_run_is_flushed_when_it_is_published_and_before_its_scratch_goes(bench, monkeypatch, from_s):
    flushed = []

    def sync(cache: Cache) -> None:
        key, fence = bench.lease.key, bench.lease.fence
        flushed.append(
            (cache.actions.result(key) is not None, (cache.root / f"scratch/{key.hex}/{fence}/state").exists())
        )

    monkeypatch.setattr(Cache, "sync", sync)
    monkeypatch.setattr(execute, "FLUSH_FROM_S", from_s)
    source = """
        def go(ctx):
            (ctx.scratch / "state").write_text("mine")
            (ctx.output_path / "out").write_text("done")
    """
    assert bench.output(bench.run(source)) == {"out": "done"}
    assert flushed == ([(True, True)] if from_s == 0 else [])
    assert bench.left_over() == []


def test_cancelled_before_it_starts(bench):
    from marin_cas.worker.attempt import Cancel
    from marin_cas.worker.execute import Orders

    job = bench.submit(WRITES)
    job.wait(30)
    cancel = Cancel()
    cancel()
    made = bench.cache.actions.acquire(bench.lease.key, bench.holder, force=True)
    request = Request(key=made.key, label="//exp:x", fence=made.fence, code=bench.code(WRITES), timeout=None)
    attempt = bench.executor._worker.execute(request, Orders(made, cancel))
    assert attempt.status == Status.CANCELLED


def test_stopping_at_any_moment_ends_it_soon(bench):
    for delay in (0, 0.001, 0.003, 0.006, 0.01, 0.02, 0.04, 0.08):
        job = bench.submit("import time\ndef go(ctx): time.sleep(300)\n", params={"delay": delay})
        time.sleep(delay)
        job.cancel(kill=delay != 0.003)
        attempt = job.wait(20)
        assert attempt is not None and attempt.status == Status.CANCELLED
        bench.lease.release()


def test_a_time_limit(tmp_path):
    bench = Bench(tmp_path, grace=0.1)
    _, error = bench.fails(SLEEPS, Status.TIMED_OUT, params={"polite": False}, timeout=0.5)
    assert "took longer than it may" in error.message
    bench.executor.close()


def test_a_lost_lease_stops_the_tool(bench):
    job = bench.submit(SLEEPS, params={"polite": False})
    wait_for(lambda: any(isinstance(said, Progress) for said in bench.said))
    bench.lease.lost = True
    attempt = job.wait(30)
    assert attempt.status == Status.LOST_LEASE and "taken over" in attempt.error.message
    assert is_gone(bench.said[0].pid)


def test_a_lease_lost_at_the_end_publishes_nothing(bench):
    def steal():
        # As another driver does it, once ours is held for dead.
        bench.cache.actions.release(bench.lease.key, bench.lease.fence)
        bench.cache.actions.acquire(bench.lease.key, bench.holder)

    attempt = bench.run(WRITES, recheck=steal)
    assert attempt.status == Status.LOST_LEASE
    assert bench.cache.actions.result(bench.lease.key) is None


def test_a_source_that_changed_meanwhile_forbids_publishing(bench):
    def recheck():
        raise BuildError("`exp/data.txt` changed while it was used")

    _, error = bench.fails(WRITES, recheck=recheck)
    assert error.message == "`exp/data.txt` changed while it was used"
    assert bench.cache.actions.result(bench.lease.key) is None


needs_landlock = pytest.mark.parametrize("heavy", [False, True])


@needs_landlock
def test_writing_elsewhere_is_denied_and_named(bench, heavy, tmp_path):
    assert landlock.abi(), "this kernel has no Landlock: run these tests where there is one"
    target = tmp_path / "elsewhere.txt"
    _, error = bench.fails(f"def go(ctx):\n    open({str(target)!r}, 'w')\n", heavy=heavy)
    assert error.message == f"`//exp:x` wrote outside its folder: `{target}`"
    assert error.where == "exp/f.py:2" and not target.exists()
    _, error = bench.fails("def go(ctx):\n    open('scores.json', 'w')\n", heavy=heavy)
    assert error.message == "`//exp:x` wrote outside its folder: `scores.json`"
    docs = bench.given({"a.txt": "one"})
    _, error = bench.fails(
        "def go(ctx):\n    (ctx.inputs['docs'] / 'a.txt').write_text('x')\n", inputs={"docs": docs}, heavy=heavy
    )
    assert error.message == "`//exp:x` wrote to its input `in/docs/a.txt`; inputs are read-only"
    # Nor may what it starts.
    _, error = bench.fails(
        f"import subprocess\ndef go(ctx):\n    subprocess.run(['touch', {str(target)!r}], check=True)\n", heavy=heavy
    )
    assert "CalledProcessError" in error.message and not target.exists()


def test_what_a_tool_may_write(bench):
    attempt = bench.run(
        """
        import multiprocessing, os, tempfile
        from pathlib import Path
        def go(ctx):
            Path.home().joinpath("h").write_text("x")
            with tempfile.TemporaryDirectory() as place:
                Path(place, "t").write_text("x")
                os.rename(Path(place, "t"), ctx.scratch / "t")
            open("/dev/null", "w").write("x")
            multiprocessing.get_context("fork").Lock()
            (ctx.output_path / "deep/er").mkdir(parents=True)
            os.rename(ctx.scratch / "t", ctx.output_path / "deep/er/t")
        """
    )
    assert bench.output(attempt) == {"deep/er/t": "x"}


@pytest.mark.parametrize("grow", [False, True])
def test_without_landlock_a_changed_input_is_found_and_its_blob_dropped(tmp_path, grow):
    bench = Bench(tmp_path, confine=False)
    docs = bench.given({"a.txt": "one", "b.txt": "two"})
    text = "longer" if grow else "eno"
    _, error = bench.fails(
        f"""
        import os
        def go(ctx):
            os.chmod("in/docs/a.txt", 0o644)
            open("in/docs/a.txt", "w").write("{text}")
            (ctx.output_path / "a").write_text("x")
        """,
        inputs={"docs": docs},
    )
    assert error.message == "`//exp:x` changed its input `docs/a.txt`"
    from marin_cas.digest import Digest

    assert not bench.cache.store.contains(Digest.of(b"one"))
    assert bench.cache.store.read(Digest.of(b"two")) == b"two"
    bench.executor.close()


@pytest.mark.parametrize("what", ["os.getcwd()", "os.environ['HOME']", "os.path.realpath('scratch') + '/x'"])
def test_paths_of_this_machine_are_refused_in_exact_outputs(bench, what):
    source = f"import os\ndef go(ctx):\n    (ctx.output_path / 'a').write_text('see ' + {what})\n"
    _, error = bench.fails(source)
    assert f"the output `files/a` of `//exp:x` holds a path of this machine, `{bench.root}`" == error.message
    attempt = bench.run(source, outcome=SAMPLED)
    assert attempt.status == Status.SUCCEEDED and str(bench.root) in attempt.warnings[0]
    attempt = bench.run(source, reporting=("files",))
    assert attempt.status == Status.SUCCEEDED and len(attempt.warnings) == 1


def test_secrets_reach_the_tool_and_nothing_else(tmp_path):
    bench = Bench(tmp_path, environ={"TOKEN": CANARY, "SHORT": "1"})
    attempt = bench.run(
        """
        import os, sys, time, json
        def go(ctx):
            token = os.environ["TOKEN"]
            print("token is", token, json.dumps({"t": token}))
            sys.stdout.write(token[:7]); sys.stdout.flush(); time.sleep(0.1)
            sys.stdout.write(token[7:] + " and 1\\n")
            ctx.progress(1, 1, "steps", note=token)
            (ctx.output_path / "length").write_text(str(len(token)))
        """,
        secrets=("TOKEN", "SHORT"),
    )
    assert bench.output(attempt) == {"length": str(len(CANARY))}
    assert bench.cache.store.read(attempt.result.log) == b'token is *** {"t": "***"}\n*** and 1\n'
    assert bench.said[-1].fields == {"note": "***"}

    failed, error = bench.fails(
        "import os\ndef go(ctx):\n    raise ValueError('no ' + os.environ['TOKEN'])\n", secrets=("TOKEN",)
    )
    assert error.message == "`//exp:x` failed: ValueError: no ***" and "***" in failed.log.read_text()

    for outcome in ("exact", SAMPLED):
        _, error = bench.fails(
            "import os\ndef go(ctx):\n    (ctx.output_path / 'a').write_text('x' + os.environ['TOKEN'])\n",
            secrets=("TOKEN",), outcome=outcome, keep_work=True,
        )  # fmt: skip
        assert error.message == "`//exp:x` wrote a secret into its output `files/a`"
    _, error = bench.fails(WRITES, Status.INFRA, EnvironmentProblem, secrets=("ABSENT",))
    assert error.message == "`//exp:x` needs the secret `ABSENT`, which is not in the environment"
    bench.executor.close()
    holding = [p for p in tmp_path.rglob("*") if p.is_file() and CANARY.encode() in p.read_bytes()]
    assert holding == []


def test_an_import_that_was_not_traced_fails(bench):
    (bench.root / "exp/hidden.py").write_text("VALUE = 1\n")
    _, error = bench.fails(
        """
        def go(ctx):
            from exp.hidden import VALUE
        """
    )
    assert "No module named 'exp.hidden'" in error.message and error.where == "exp/f.py:3"
    _, error = bench.fails(
        f"""
        import sys
        def go(ctx):
            sys.path.append({str(bench.root / "exp")!r})
            import hidden
            (ctx.output_path / "a").write_text("x")
        """
    )
    assert error.message == "`//exp:x` failed: `hidden` was imported from the workspace, but is not in the action's key"


@pytest.mark.parametrize(
    ("source", "message", "where"),
    [
        ("def went(ctx): pass", "`exp/f.py` has no function `go`", "exp/f.py"),
        ("def go(ctx)\n    pass", "SyntaxError", "exp/f.py:1"),
        ("raise ValueError('at import')", "ValueError: at import", "exp/f.py:1"),
    ],
)
def test_code_that_cannot_be_loaded(bench, source, message, where):
    _, error = bench.fails(source)
    assert message in error.message and error.where == where


@pytest.mark.parametrize("heavy", [False, True])
def test_the_workers_package_is_the_drivers_and_the_workspace_is_not_on_its_path(bench, heavy):
    attempt = bench.run(
        """
        import marin_cas, sys
        def go(ctx):
            (ctx.output_path / "a").write_text(str(marin_cas.__file__ == ctx.params["file"]))
            (ctx.output_path / "b").write_text(str(any(not entry for entry in sys.path)))
        """,
        params={"file": marin_cas.__file__},
        heavy=heavy,
    )
    assert bench.output(attempt) == {"a": "True", "b": "False"}


def test_a_function_of_a_package(bench):
    source = "def go(ctx): (ctx.output_path / 'a').write_text(__name__)"
    params = {"function": "exp/__init__.py:go", "code": b"", "params": {}}
    attempt = bench.run("", others={"__init__": source}, recipe={"params": params})
    assert bench.output(attempt) == {"a": "exp"}


def test_keep_work(bench):
    attempt = bench.run(WRITES, keep_work=True)
    assert attempt.work.is_dir() and (attempt.work / "request.json").is_file()
    failed = bench.run("def go(ctx):\n    print('x')\n    1 / 0\n", keep_work=True)
    assert failed.work.is_dir() and failed.log == failed.work / "log" and "ZeroDivisionError" in failed.log.read_text()


def test_what_a_killed_driver_left_is_removed_by_the_next_attempt(bench):
    bench.run("def go(ctx): 1 / 0")
    stale = bench.cache.work(bench.lease.key) / bench.lease.fence
    (stale / "out").mkdir(parents=True)
    bench.run("def go(ctx): 1 / 0")
    assert bench.left_over() == []


def test_who_lost_the_key_without_knowing_leaves_the_new_holders_folders_alone(bench):
    bench.run("def go(ctx): 1 / 0")
    key = bench.lease.key
    first = bench.cache.actions.acquire(key, bench.holder)
    zombie = Request(key=key, label="//exp:x", fence=first.fence)
    place = bench.executor._worker._place(zombie)
    first.release()
    second = bench.cache.actions.acquire(key, bench.holder)
    theirs = bench.executor._worker._place(Request(key=key, label="//exp:x", fence=second.fence))
    for folder in (theirs.work, theirs.scratch):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_text("theirs")
    place.prepare(bench.cache.store, zombie, Recipe("function", 1))
    place.remove_empty_scratch()
    place.remove(bench.executor._worker.trash)
    assert {place.work, place.scratch}.isdisjoint({theirs.work, theirs.scratch})
    assert (theirs.work / "file").read_text() == (theirs.scratch / "file").read_text() == "theirs"


def test_many_at_once(bench):
    code = "import time\ndef go(ctx):\n    time.sleep(.05)\n    open('out/files/i', 'w').write(str(ctx.params['i']))\n"
    jobs, leases = [], []
    for index in range(24):
        jobs.append(bench.submit(code, params={"i": index}))
        leases.append(bench.lease)
    seen = [bench.output(job.wait(60))["i"] for job in jobs]
    assert seen == [str(index) for index in range(24)]


def test_the_warm_process_may_be_killed(bench):
    assert bench.run(WRITES).error is None
    server = bench.executor._worker.server._process
    server.kill()
    server.wait()
    assert bench.run(WRITES, params={"again": 1}).error is None
    job = bench.submit(SLEEPS, params={"polite": True})
    wait_for(lambda: any(isinstance(said, Progress) for said in bench.said))
    pid = next(said.pid for said in reversed(bench.said) if isinstance(said, Started))
    bench.executor._worker.server._process.kill()
    attempt = job.wait(30)
    assert attempt.status == Status.INFRA
    wait_for(lambda: is_gone(pid))


@pytest.mark.parametrize("heavy", [False, True])
def test_a_killed_driver_takes_its_tools_along(tmp_path, heavy):
    script = tmp_path / "driver.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import importlib.util, sys
            from pathlib import Path
            spec = importlib.util.spec_from_file_location("support", {__file__!r})
            support = importlib.util.module_from_spec(spec)
            sys.modules["support"] = support
            spec.loader.exec_module(support)
            bench = support.Bench(Path({str(tmp_path / "b")!r}))
            source = '''
                import subprocess, time
                def go(ctx):
                    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
                    ctx.progress(child.pid, None)
                    time.sleep(300)
            '''
            job = bench.submit(source, heavy={heavy})
            support.wait_for(lambda: len(bench.said) == 2)
            print(bench.said[0].pid, bench.said[1].done, flush=True)
            job.wait()
            """
        )
    )
    (tmp_path / "b").mkdir()
    driver = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    pids = [int(word) for word in driver.stdout.readline().split()]
    assert len(pids) == 2 and not any(is_gone(pid) for pid in pids)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    wait_for(lambda: all(is_gone(pid) for pid in pids))


def test_a_single_file_output(bench):
    attempt = bench.run(
        "import os\ndef go(ctx):\n    assert not ctx.output_path.exists()\n    ctx.output_path.write_text('x')\n",
        recipe={"outputs": {"files": FILE}},
    )
    assert attempt.result.outputs["files"].kind == FILE
    _, error = bench.fails(
        "import os\ndef go(ctx):\n    ctx.output_path.write_text('')\n", recipe={"outputs": {"files": FILE}}
    )
    assert "is empty" in error.message
