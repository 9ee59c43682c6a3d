"""Builds steps in a program that runs by itself, as `marin build` does; results come back as artifacts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from marin_cas.api.artifacts import Artifact
from marin_cas.api.lowering import Lowered, StepSpec, cache_of, lowered
from marin_cas.api.step import ArtifactStep
from marin_cas.errors import EXIT_OK, BuildError, RequestError

type Step = ArtifactStep[Any] | StepSpec


class StepRunner:
    """Builds steps and whatever they need and is not built: each once, several at a time."""

    def run(
        self,
        steps: Sequence[Step] | Step,
        *,
        dry_run: bool = False,
        force_run_failed: bool = True,
        max_concurrent: int | None = None,
    ) -> None:
        """Build them. Progress and, with `dry_run`, what would run go to stderr and stdout as `marin build` has it.

        `max_concurrent` limits the actions that run at once (by default what the machine holds). Raises BuildError
        when a step fails; RequestError for a declaration that is wrong, and for `force_run_failed = False`.
        """
        if not force_run_failed:
            raise RequestError("`force_run_failed = False`: no failure is remembered, a step that failed runs again")
        if max_concurrent is not None and max_concurrent < 1:
            raise ValueError(f"`max_concurrent` is {max_concurrent}: it must be at least 1")
        found = lowered(_unlowered(steps))
        if dry_run:
            _tell_plan(found)
        else:
            _build(found, max_concurrent)


def run(*steps: Step, max_concurrent: int | None = None, force_run_failed: bool = True) -> list[Any]:
    """Build steps and return what they make, in their order. Raises as `StepRunner.run` does."""
    StepRunner().run(list(steps), force_run_failed=force_run_failed, max_concurrent=max_concurrent)
    found = lowered(_unlowered(steps))
    return [artifact(found, step) for step in _unlowered(steps)]


def resolve[T: Artifact](step: ArtifactStep[T], *, max_concurrent: int | None = None) -> T:
    """Build one step, and return what it makes."""
    return run(step, max_concurrent=max_concurrent)[0]


def artifact(found: Lowered, step: ArtifactStep[Any]) -> Artifact:
    """What a built step makes. Raises BuildError when it is not built as it is declared."""
    from marin_cas.action import Built
    from marin_cas.scheduler.local import LocalCache

    cache, spec = cache_of(found.workspace), found.spec(step)
    local = LocalCache(cache, found.workspace.root)
    made = {}
    for name, output in found.analysis.target(spec.label).outputs.items():
        if not isinstance(output, Built):
            continue
        result = local.by_fingerprint(found.analysis.actions[output.action].fingerprint)
        if result is None or output.output not in result.outputs:
            raise BuildError(f"`{step}` is not built", where=step.location)
        made[name] = result.outputs[output.output]
    places: dict[str, Path] = dict(local.link(spec.label, made))
    return step.artifact_type(step.name, step.version, spec.fingerprint, places)


def _unlowered(steps: Iterable[Step] | Step) -> list[ArtifactStep[Any]]:
    given = [steps] if isinstance(steps, ArtifactStep | StepSpec) else list(steps)
    found = []
    for step in given:
        step = step.step if isinstance(step, StepSpec) else step
        if not isinstance(step, ArtifactStep):
            raise RequestError(f"a `{type(step).__name__}` is no step", hint="give what the builders return")
        found.append(step)
    return found


def _tell_plan(found: Lowered) -> None:
    from marin_cas.scheduler.local import LocalCache
    from marin_cas.scheduler.plan import Options, plan
    from marin_cas.ui import dryrun, out

    made = plan(found.analysis, found.labels, LocalCache(cache_of(found.workspace), found.workspace.root), Options())
    for line in dryrun.lines(made):
        out.data(line)
    out.note(dryrun.total(made))


def _build(found: Lowered, jobs: int | None) -> None:
    from marin_cas.scheduler.build import Build
    from marin_cas.scheduler.events import EventLog
    from marin_cas.scheduler.keeping import registering
    from marin_cas.scheduler.local import LocalCache
    from marin_cas.scheduler.machine import local_runner
    from marin_cas.scheduler.plan import Options
    from marin_cas.ui import failure, out
    from marin_cas.ui.progress import progress
    from marin_cas.ui.summary import outcome_line

    began = time.monotonic()
    workspace, config, cache = found.workspace, found.workspace.config, cache_of(found.workspace)
    local = LocalCache(cache, workspace.root)
    options = Options(jobs=jobs or config.jobs, ram=config.ram, keep_going=config.keep_going)
    keep = registering(found.analysis, found.labels, cache, str(workspace.root), found.labels)
    display = progress(config.progress)
    with local_runner(workspace.root, cache, local, workspace.compilation_cache, config.pass_env) as runner, display:
        report = Build(
            found.analysis, found.labels, local, local, runner, options, EventLog(None, [display]), keep
        ).run()
    cache.sync()
    out.note(outcome_line(report.counts, report.exit_code, time.monotonic() - began))
    if report.exit_code == EXIT_OK:
        return
    for failed in report.failures:
        for line in failure.lines(failed):
            out.note(line)
    errors = [*(failed.error for failed in report.failures if failed.error), *report.errors]
    if len(errors) == 1:
        raise errors[0]
    raise BuildError(f"{len(errors)} steps failed", notes=[str(error.message) for error in errors])
