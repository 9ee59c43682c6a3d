"""`marin build`: builds targets, or with `-n` says what a build would do."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from marin_cas.cli import noop
from marin_cas.cli.options import defines, output_option, select_options
from marin_cas.cli.patterns import PatternCommand
from marin_cas.cli.session import Session
from marin_cas.errors import EXIT_OK, RequestError
from marin_cas.label import Label
from marin_cas.scheduler import snapshot
from marin_cas.ui import out

if TYPE_CHECKING:
    from marin_cas.graph.graph import Graph

CONFIGURED = ("jobs", "keep_going", "progress", "locked", "profile")


@click.command("build", cls=PatternCommand)
@click.argument("patterns", nargs=-1, metavar="PATTERN...")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would run and why.")
@click.option("-k", "--keep-going", is_flag=True, default=None, help="After a failure, build what does not need it.")
@click.option("-j", "--jobs", type=int, metavar="N", help="Run at most N actions at once.")
@click.option("--check", is_flag=True, help="Run what is built once more, and compare the bytes.")
@click.option(
    "--again",
    multiple=True,
    metavar="LABEL",
    help="Run this target again and take the new result; without PATTERN, build it.",
)
@click.option("--accept-new", is_flag=True, help="Where bytes that were lost come out otherwise: take the new ones.")
@click.option("--keep-old", is_flag=True, help="Where bytes that were lost come out otherwise: go on without them.")
@click.option("--keep-work", is_flag=True, help="Leave the work folders of what runs, to look into.")
@click.option("--locked", is_flag=True, default=None, help="Refuse to build where the environment is not marin.lock's.")
@select_options
@click.option("--events", metavar="FILE", help="Write what happens as JSON lines; `-` for stdout.")
@click.option("--trace", metavar="FILE", help="Write a timeline in Chrome's format; `-` for stdout.")
@output_option("text", "json")
@click.option("-v", "--verbose", is_flag=True, help="Also show why, what is served, and the tools' own output.")
@click.option("-q", "--quiet", is_flag=True, help="Show errors and warnings only.")
@click.option("--progress", type=click.Choice(("auto", "plain", "none")), help="How progress is shown.")
def command(**options: Any) -> int:
    """Build targets: `//exp:tiny`, `//exp:all`, `//exp/...`, and `-//exp:x` to leave one out.

    Whatever is already built from the same declarations and the same inputs is served from the cache. Where the
    outputs are goes to stdout, progress and messages to stderr. Exit code 1: a build failed; 2: the request or a
    BUILD file is wrong; 3: the environment; 4: wrong bytes in the store; 8: interrupted.
    """
    if not options["patterns"] and not options["again"]:
        raise click.UsageError("there is nothing to build: name a target, or `//...` for all")
    if options["accept_new"] and options["keep_old"]:
        raise RequestError("`--accept-new` and `--keep-old` exclude each other")
    streams = [name for name in ("events", "trace") if options[name] == "-"]
    streams += ["output"] if options["output"] == "json" else []
    if len(streams) > 1:
        raise RequestError(f"only one of {', '.join(f'`--{name}`' for name in streams)} can go to stdout")
    return _Command(options).run()


class _Command:
    """One build command, step by step."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        flags = {name: options[name] for name in CONFIGURED}
        self.began = time.monotonic()
        self.session = Session({**flags, "define": defines(options["define"])})
        self.patterns = list(options["patterns"] or options["again"])
        self.json = options["output"] == "json"

    def run(self) -> int:
        session, options = self.session, self.options
        plain = not any(
            options[name]
            for name in ("dry_run", "check", "again", "keep_work", "events", "trace", "accept_new", "keep_old")
        )
        if plain and (found := noop.find(self.patterns, session.workspace, session.package)):
            noop.tell(found, time.monotonic() - self.began, quiet=options["quiet"], json_wanted=self.json)
            return EXIT_OK
        self.started = self._start()
        roots = session.expand(self.patterns)
        graph = session.graph(roots)
        self.analysis = session.analyse(graph)
        if not options["dry_run"]:
            self._settle(graph)
        if session.config.locked:
            self._check_lock()
        return self._dry_run(roots) if options["dry_run"] else self._build(roots)

    def _start(self) -> int:
        """The moment before anything is read, when the cache's folder is there."""
        fresh = not self.session.workspace.cache.exists()
        _ = self.session.cache
        if fresh:
            # Making it touched the workspace's root: let the file system's clock tick, or this build, a workspace's
            # first, would count the root as changed meanwhile and the second would not be a no-op.
            time.sleep(2 * snapshot.GRAIN_NS / 1e9)
        return snapshot.start()

    def _again(self) -> frozenset[Label]:
        return frozenset(self.session.expand(list(self.options["again"]))) if self.options["again"] else frozenset()

    def _plan_options(self):
        from marin_cas.scheduler.plan import Options

        options, config = self.options, self.session.config
        return Options(
            jobs=config.jobs,
            ram=config.ram,
            keep_going=config.keep_going,
            check=options["check"],
            again=self._again(),
            accept_new=options["accept_new"],
            keep_old=options["keep_old"],
            keep_work=options["keep_work"],
        )

    def _settle(self, graph: Graph) -> None:
        if any(action.unresolved for action in self.analysis.actions.values()):
            from marin_cas.cli.resolve import settled

            self.analysis = settled(self.session, graph, self.analysis)

    def _check_lock(self) -> None:
        from marin_cas.cli.locked import check_locked

        check_locked(self.analysis, self.session.lock)

    def _dry_run(self, roots: tuple[Label, ...]) -> int:
        from marin_cas.scheduler.local import LocalCache
        from marin_cas.scheduler.plan import plan
        from marin_cas.scheduler.report import exit_code
        from marin_cas.ui import dryrun, values

        local = LocalCache(self.session.cache, self.session.root)
        made = plan(self.analysis, roots, local, self._plan_options())
        if self.json:
            out.data(values.dumps([decision.to_json() for decision in made.decisions.values()]))
        else:
            for line in dryrun.lines(made):
                out.data(line)
            if not self.options["quiet"]:
                out.note(dryrun.total(made))
        for error in (refused := made.errors):
            out.note(error.render())
        return exit_code(list(refused), interrupted=False)

    def _build(self, roots: tuple[Label, ...]) -> int:
        from marin_cas.cli.budget import keep_below
        from marin_cas.scheduler.build import Build
        from marin_cas.scheduler.events import EventLog
        from marin_cas.scheduler.keeping import registering
        from marin_cas.scheduler.local import LocalCache
        from marin_cas.scheduler.machine import local_runner
        from marin_cas.ui.progress import progress
        from marin_cas.ui.summary import Summary
        from marin_cas.ui.trace import Trace

        session, options = self.session, self.options
        cache = session.cache
        local = LocalCache(cache, session.root)
        trace = Trace()
        display = progress("none" if options["quiet"] else session.config.progress, verbose=options["verbose"])
        keep = registering(self.analysis, roots, cache, str(session.root), session.named(self.patterns))
        compiled, pass_env = session.workspace.compilation_cache, session.config.pass_env
        with (
            local_runner(session.root, cache, local, compiled, pass_env) as runner,
            _open(options["events"]) as sink,
            _open(options["trace"]) as trace_file,
        ):
            log = EventLog(sink, [display, *([trace] if trace_file else [])])
            with display:
                report = Build(self.analysis, roots, local, local, runner, self._plan_options(), log, keep).run()
            if trace_file:
                _write_trace(trace_file, trace.text())
        cache.sync()
        summary = Summary.of(self.analysis, roots, report, local, cache.store)
        self._tell(report, summary)
        keep_below(
            cache,
            session.config,
            sum(made.result.cost.bytes_out for made in report.executed if made.result),
            quiet=options["quiet"],
        )
        # What a script depends on, nobody knows but itself.
        if report.exit_code == EXIT_OK and not report.warnings and not session.loader.called:
            self._remember(report, summary)
        return report.exit_code

    def _tell(self, report: Any, summary: Any) -> None:
        from marin_cas.ui import failure, values
        from marin_cas.ui.summary import outcome_line, report_json

        for failed in report.failures:
            for line in failure.lines(failed):
                out.note(line)
        for error in report.errors:
            out.note(error.render())
        if self.json:
            out.data(values.dumps(report_json(report, summary)))
        elif not self.options["quiet"]:
            # Whoever reads events from stdout gets nothing else there.
            tell = out.note if "-" in (self.options["events"], self.options["trace"]) else out.data
            for line in summary.lines(self.session.cwd):
                tell(line)
        if not self.options["quiet"]:
            out.note(outcome_line(report.counts, report.exit_code, time.monotonic() - self.began))

    def _remember(self, report: Any, summary: Any) -> None:
        from marin_cas.ui.summary import report_json, up_to_date

        session = self.session
        data = report_json(report, summary)
        data |= {"counts": up_to_date(report.counts), "actions": [], "checked": {}}
        snapshot.save(
            session.workspace.cache / noop.SNAPSHOT,
            session.root,
            noop.request(self.patterns, session.package, session.config),
            snapshot.Report(list(summary.lines(session.cwd)), data),
            started=self.started,
            watched=session.watched(self.analysis),
            outputs=[path for outputs in report.links.values() for path in outputs.values()],
            contents=[session.workspace.cache / "ac" / "changed", session.workspace.cache / "epoch"],
        )


def _write_trace(file: TextIO, text: str) -> None:
    try:
        file.write(text)
        file.flush()
    except BrokenPipeError:
        out.hush(file)
    except OSError as error:
        out.note(f"warning: the trace is incomplete: {error.strerror or error}")


@contextmanager
def _open(path: str | None) -> Iterator[TextIO | None]:
    """The file to write, None for none. RequestError when it cannot be: before anything runs."""
    if path is None:
        yield None
        return
    if path == "-":
        yield sys.stdout
        return
    try:
        file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - opening and closing fail in different ways
    except OSError as error:
        raise RequestError(f"cannot write `{path}`: {error.strerror or error}") from None
    try:
        yield file
    finally:
        # A full disk shows here at last: the log has warned of it, and it is no reason to lose a build.
        with suppress(OSError):
            file.close()
