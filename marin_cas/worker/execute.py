"""Runs one action from its key to its published result.

Nothing is published unless the tool ended well, left nothing running, changed no input, wrote exactly the declared
outputs without a trace of this machine, and the workspace files that it was given are still what they were.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from marin_cas.action import EXACT
from marin_cas.cache.lease import LostLease
from marin_cas.digest import Digest
from marin_cas.disk import DISK, disk_problem
from marin_cas.errors import BuildError, EnvironmentProblem, IntegrityError, Interrupted, MarinError, RequestError
from marin_cas.recipe import UNRESOLVED, Recipe
from marin_cas.result import Cost, Output, Result
from marin_cas.store.base import MissingBlob
from marin_cas.tree.ingest import Ingested, ingest
from marin_cas.tree.walk import first_missing
from marin_cas.worker import environment, inputs, job, outputs, process, producer, redact, scan, shortcut, wire
from marin_cas.worker.attempt import Attempt, Cancel, Listener, Progress, Started, Status
from marin_cas.worker.client import Channel, ForkServer
from marin_cas.worker.failure import judge
from marin_cas.worker.forget import forget
from marin_cas.worker.request import Request, resources_to_json
from marin_cas.worker.trash import Trash
from marin_cas.worker.workplace import Workplace, tmp_folder

if TYPE_CHECKING:
    from marin_cas.cache.cache import Cache

GRACE_S = 10.0
# A result that took so long to make survives a power cut as soon as it is published.
FLUSH_FROM_S = 60.0
_LOOK_S = 1.0
LOGS = "logs"


class Lease(Protocol):
    """What a worker needs of a lease: `lost` turns true when another builder took the key over."""

    @property
    def lost(self) -> bool: ...

    def publish(self, result: Result) -> Result: ...


class _Ended(Exception):
    """The attempt ends here with that status."""

    def __init__(self, status: Status, error: MarinError) -> None:
        super().__init__(str(error))
        self.status, self.error = status, error


@dataclass(frozen=True, slots=True)
class Orders:
    """What one attempt is given besides its request. `recheck` raises a MarinError when a source has changed;
    `publish` stands in for the lease's (to record another attempt of a key that is done)."""

    lease: Lease
    cancel: Cancel
    listener: Listener | None = None
    recheck: Callable[[], None] | None = None
    publish: Callable[[Result], Result] | None = None


class Worker:
    """Runs attempts on this machine, several at once from several threads."""

    def __init__(
        self,
        cache: Cache,
        root: Path,
        environ: Mapping[str, str],
        *,
        confine: bool = True,
        grace: float = GRACE_S,
    ) -> None:
        self.cache, self.root, self.environ = cache, root, environ
        self.confine, self.grace = confine, grace
        # What a tool could give away of this machine: its own folders are below the cache's.
        self.folders = tuple({form for folder in (cache.root, root) for form in (folder.absolute(), folder.resolve())})
        self.server = ForkServer(environment.base_environment())
        self._oom_kills = process.oom_kills()
        self.environments = producer.Environments(cache.store)
        self.trash = Trash(cache.temporary)

    def new_oom_kills(self) -> bool:
        """Whether the kernel ended a process for want of memory since this was last asked."""
        before, self._oom_kills = self._oom_kills, process.oom_kills()
        return self._oom_kills > before

    def close(self) -> None:
        """Ends the warm process, and with it every attempt that still runs."""
        self.server.close()
        self.trash.close()

    def execute(self, request: Request, orders: Orders) -> Attempt:
        """One attempt. Raises nothing that a user could cause: every end is an Attempt."""
        try:
            place = self._place(request)
        except MarinError as problem:
            return Attempt(Status.INFRA, error=problem)
        return _Run(self, request, orders, place).run()

    def _place(self, request: Request) -> Workplace:
        work = self.cache.work(request.key)
        earlier = () if request.fresh else tuple(self.cache.earlier_scratch(request.key, request.fence))
        stale = tuple(work / fence for fence in self.cache.earlier_fences(request.key, request.fence))
        return Workplace(
            work / request.fence,
            tmp_folder(self.cache.temporary, request.fence),
            self.cache.scratch(request.key, request.fence),
            earlier,
            stale,
        )


class _Run:
    def __init__(self, worker: Worker, request: Request, orders: Orders, place: Workplace) -> None:
        self.worker, self.request, self.orders, self.place = worker, request, orders, place
        self.store = worker.cache.store
        self.secrets: dict[str, str] = {}
        self.warnings: list[str] = []
        self.tmpdir = place.tmp  # a short name of it where its own is too long

    def run(self) -> Attempt:
        status, error = Status.INFRA, None
        result = made = None
        try:
            result, made = self._steps()
            status = Status.SUCCEEDED
        except _Ended as ended:
            status, error = ended.status, ended.error
        except LostLease as lost:
            status, error = Status.LOST_LEASE, lost
        except BuildError as failed:
            status, error = Status.FAILED, failed
        except MarinError as problem:
            error = problem
        except OSError as problem:
            error = disk_problem(problem, self.place.work)
        return self._clean_up(status, result, made, error)

    def _clean_up(
        self, status: Status, result: Result | None, made: Result | None, error: MarinError | None
    ) -> Attempt:
        if self.tmpdir != self.place.tmp:
            with contextlib.suppress(OSError):
                self.tmpdir.unlink()
        if self.secrets:
            self._forget_secrets()
        tail, log = (), None
        kept = self.worker.cache.root / LOGS
        if error is None:
            self.place.remove_scratch()
            with contextlib.suppress(OSError):
                (kept / f"{self.request.key.hex}.log").unlink()  # of a failure before
        else:
            self.place.remove_empty_scratch()
            tail = self.place.tail()
            if not self.request.keep_work:
                log = self.place.keep_log(kept, f"{self.request.key.hex}.log")
        if not self.request.keep_work:
            self.place.remove(self.worker.trash)
        elif error is not None:
            log = self.place.log
        work = self.place.work if self.request.keep_work else None
        return Attempt(status, result, made, error, tail, log, work, tuple(self.warnings))

    def _forget_secrets(self) -> None:
        """Scratch is kept for the next attempt, and the rest may be for its user: neither may hold a secret."""
        place = self.place
        folders = [place.scratch, *place.earlier]
        if self.request.keep_work:
            folders += [place.work / "out", place.work / "home", place.tmp]
        secrets = redact.spellings(self.secrets.values())
        shown = redact.Redactor(secrets)
        for path in forget(folders, secrets):
            self.warnings.append(f"`{shown.text(path.name)}` of `{self.request.label}` held a secret and was removed")

    def _steps(self) -> tuple[Result, Result]:
        started = time.time()
        clock = time.monotonic()
        recipe = self._recipe()
        environment.check_toolchain(recipe.toolchain)
        self.secrets = environment.secret_values(self.request, self.worker.environ)
        self.place.prepare(self.store, self.request, recipe)
        before = inputs.snapshot(self.place.work / "in")
        end = self._run_tool(recipe)
        self._check_inputs(recipe, before)
        files = outputs.check(self.place.work / "out", recipe.outputs, self.request.reporting, self.request.label)
        self._scan(files)
        if self.orders.recheck is not None:
            self.orders.recheck()
        epoch = self.worker.cache.epoch.now()
        taken = self._ingest(recipe)
        log = self._keep_log()
        written = sum(each.bytes for each in taken.values())
        cost = Cost(
            wall_s=time.monotonic() - clock,
            cpu_s=end["cpu_s"],
            max_rss=end["max_rss"],
            bytes_in=inputs.total_size(before),
            bytes_out=written,
            bytes_downloaded=written if self._fetches else 0,
            resources=resources_to_json(self.request.resources),
        )
        made = self._result(recipe, taken, log, cost, started)
        self._put_record(recipe)
        published = self._publish(made, epoch)
        if cost.wall_s >= FLUSH_FROM_S:
            # Before its scratch goes, and not only at the end of a build that may take weeks more.
            self.worker.cache.sync()
        return published, made

    def _publish(self, made: Result, epoch: int) -> Result:
        """Publishes what is whole. Raises MissingBlob when somebody deleted of it since that epoch."""
        with self.worker.cache.gate.shared():
            if self.worker.cache.epoch.now() != epoch:
                for name, output in made.outputs.items():
                    if (blob := first_missing(self.store, output.kind, output.digest)) is not None:
                        raise MissingBlob(blob, f"the output `{name}` of `{self.request.label}`")
            return (self.orders.publish or self.orders.lease.publish)(made)

    def _recipe(self) -> Recipe:
        record = self.request.record or self.store.read(self.request.key)
        if record is None:
            raise EnvironmentProblem(
                f"the recipe `{self.request.key.short}` of `{self.request.label}` is not in the store"
            )
        if Digest.of(record) != self.request.key:
            raise IntegrityError(f"the recipe of `{self.request.label}` is not the one that its key names")
        recipe = Recipe.parse(record)
        if UNRESOLVED in recipe.params:
            raise RequestError(
                f"`{self.request.label}` needs what marin.lock does not say", hint="run `marin lock`, then build again"
            )
        return recipe

    def _put_record(self, recipe: Recipe) -> None:
        if self.request.record:
            self.store.put(self.request.record)

    def _run_tool(self, recipe: Recipe) -> Mapping[str, Any]:
        """The supervisor's last word, for a tool that ended well. Raises _Ended for any other."""
        request, place, worker = self.request, self.place, self.worker
        self.tmpdir = shortcut.shorten(place.tmp)
        env = environment.tool_environment(
            request, recipe, home=place.work / "home", tmp=self.tmpdir, environ=worker.environ
        )
        job.Job(
            recipe.tool,
            recipe.revision,
            recipe.params,
            request.settings,
            tuple(recipe.inputs),
            recipe.outputs,
            earlier=len(place.earlier),
            code=request.code is not None,
            writable=request.writable,
            confine=worker.confine,
            workspace=str(worker.root),
            request=request.to_json(),
        ).write(place.work)
        if self.orders.cancel.requested:
            raise self._cancelled()
        channel = worker.server.spawn({
            "work": str(place.work),
            "log": str(place.log),
            "env": env,
            "secrets": list(self.secrets.values()),
            "heavy": environment.needs_fresh_process(request, recipe),
            "grace": worker.grace,
            "timeout": request.timeout,
        })  # fmt: skip
        try:
            self.orders.cancel.attach(channel)
            end = self._follow(channel)
        finally:
            self.orders.cancel.attach(None)
            channel.close()
        if self.orders.lease.lost:
            raise LostLease(request.key)
        if self.orders.cancel.requested:
            raise self._cancelled()
        bad = judge(
            end,
            request.label,
            work=place.work,
            writable=(*request.writable, str(place.tmp), str(place.scratch)),
            out_of_memory=worker.new_oom_kills,
        )
        if bad is not None:
            raise _Ended(*bad)
        return end

    def _follow(self, channel: Channel) -> Mapping[str, Any]:
        listener = self.orders.listener
        for line in channel.messages(_LOOK_S):
            if line is None:
                if self.orders.lease.lost:
                    channel.order(wire.KILL)
                continue
            message = json.loads(line)
            if "end" in message:
                return message["end"]
            if "broken" in message:
                raise EnvironmentProblem(f"`{self.request.label}` could not be looked after: {message['broken']}")
            if listener is not None and "started" in message:
                listener(Started(message["started"]["pid"], self.place.work, self.place.log))
            elif listener is not None and "progress" in message:
                said = message["progress"]
                listener(Progress(said["done"], said["total"], said["unit"], said.get("fields", {})))
        if self.orders.cancel.requested:
            raise self._cancelled()
        raise EnvironmentProblem(
            f"the process that looked after `{self.request.label}` is gone", hint="somebody killed it: build again"
        )

    def _cancelled(self) -> _Ended:
        return _Ended(Status.CANCELLED, Interrupted(f"`{self.request.label}` was stopped"))

    def _check_inputs(self, recipe: Recipe, before: inputs.Snapshot) -> None:
        after = inputs.snapshot(self.place.work / "in")
        paths = inputs.changed(before, after)
        if not paths:
            return
        inputs.drop_damaged(self.store, recipe.inputs, before, after, paths)  # type: ignore[arg-type]
        raise BuildError(
            f"`{self.request.label}` changed its input `{paths[0]}`",
            hint="copy what is to be changed into an output or scratch first",
        )

    def _scan(self, files: list[tuple[str, int]]) -> None:
        """Refuses secrets in any output; this machine's traces in an exact, consumable one, and warns of them else."""
        if self._fetches:
            return  # the key named its bytes before there were any; that words of a corpus are a host's name is chance
        out, label = self.place.work / "out", self.request.label
        secrets = redact.spellings(self.secrets.values())
        wanted = scan.needles([*self.worker.folders, self.tmpdir], producer.host(), secrets)
        findings = scan.scan(out, files, wanted)
        leaked = [finding for finding in findings if finding.needle.kind == scan.SECRET]
        for finding in leaked:
            DISK.remove_tree(out / finding.file)  # not even a kept work folder may hold it
        if leaked:
            raise BuildError(
                f"`{label}` wrote a secret into its output `{redact.Redactor(secrets).text(leaked[0].file)}`",
                hint="nothing was stored; take it out of what the tool writes",
            )
        for finding in findings:
            what = "the name of this machine" if finding.needle.kind == scan.HOST else "a path of this machine"
            message = f"the output `{finding.file}` of `{label}` holds {what}, `{finding.needle.text.decode()}`"
            if self.request.outcome == EXACT and finding.file.split("/")[0] not in self.request.reporting:
                raise BuildError(message, hint="write paths relative to the working directory, or leave them out")
            self.warnings.append(message)

    @property
    def _fetches(self) -> bool:
        """Whether all that the tool writes are bytes that it downloads."""
        return self.request.settings.get("network") == environment.FETCH

    def _ingest(self, recipe: Recipe) -> dict[str, Ingested]:
        taken: dict[str, Ingested] = {}
        for name in recipe.outputs:
            try:
                taken[name] = ingest(self.store, self.place.work / "out" / name, move=True)
            except BuildError as error:
                raise BuildError(
                    f"the output `{name}` of `{self.request.label}` cannot be stored: {error.message}", hint=error.hint
                ) from error
        return taken

    def _keep_log(self) -> Digest | None:
        try:
            if not self.place.log.stat().st_size:
                return None
        except FileNotFoundError:
            return None
        return self.store.put_file(self.place.log, move=not self.request.keep_work)

    def _result(
        self, recipe: Recipe, taken: Mapping[str, Ingested], log: Digest | None, cost: Cost, started: float
    ) -> Result:
        request = self.request
        return Result(
            key=request.key,
            fingerprint=request.fingerprint,
            outcome=request.outcome,
            outputs={name: Output(each.kind, each.digest, name in request.reporting) for name, each in taken.items()},
            producer=producer.producer(self.worker.root, recipe.toolchain, self.worker.environments.digest()),
            started=started,
            finished=time.time(),
            cost=cost,
            log=log,
            producer_keys=request.producer_keys,
            label=request.label,
            artifact=request.artifact,
            fence=request.fence,
        )
