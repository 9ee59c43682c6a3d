"""What a build tells at its end: places, scores, losses, failures, and the plan's lines."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin_cas.action import Action, Built, Resources
from marin_cas.digest import Digest
from marin_cas.errors import BuildError, Location
from marin_cas.label import Label
from marin_cas.reasons import Code, Reason
from marin_cas.result import Output, Producer, Result
from marin_cas.scheduler import events
from marin_cas.scheduler.events import Event
from marin_cas.scheduler.report import ActionOutcome, BuildReport
from marin_cas.store.memory import MemoryStore
from marin_cas.ui import dryrun, failure
from marin_cas.ui.scores import Numbers, numbers
from marin_cas.ui.summary import Summary, outcome_line, up_to_date
from marin_cas.ui.trace import Trace

SCORES = {"tasks": {"topics": {"acc": 0.43125, "acc_stderr": 0.0221, "sure": 1.5, "sure_stderr": 1e-17}}}
METRICS = '{"step": 1, "train/loss": 7.5}\n{"step": 360, "train/loss": 4.25, "eval/loss": 4.5}\n{"step": 361, "train/l'
EVAL, TRAIN = Label("exp", "eval"), Label("exp", "tiny")


@dataclass
class Handle:
    artifact: Any


@dataclass
class Target:
    kind: str
    providers: dict[str, Any]
    actions: tuple[str, ...]


@dataclass
class Analysis:
    targets: dict[Label, Target]
    actions: dict[str, Action] = field(default_factory=dict)


class Nothing:
    def by_fingerprint(self, fingerprint: bytes) -> Result | None:
        return None


def action(label: Label, **changed: Any) -> Action:
    fields = {"id": str(label), "label": label, "rule": "lm_eval", "location": Location("exp/BUILD.marin", 7)}
    rest = {"tool": "t", "revision": 1, "params": {}, "inputs": {}, "outputs": {}, "fingerprint": b"\1" * 32}
    return Action(**(fields | rest | changed))


def outcome(label: Label, outputs: dict[str, Output], **changed: Any) -> ActionOutcome:
    key = Digest.of(str(label).encode())
    result = Result(key, b"", "exact", outputs, Producer("me", "here"), 0.0, 1.0)
    return ActionOutcome(**({"action": action(label), "source": "executed", "reason": Reason(Code.MISS_NEW),
                             "key": key, "result": result} | changed))  # fmt: skip


def built() -> tuple[Analysis, BuildReport, MemoryStore]:
    store = MemoryStore()
    scores = Output("file", store.put(json.dumps(SCORES).encode()))
    metrics = Output("file", store.put(METRICS.encode()), reporting=True)
    outcomes = {
        str(TRAIN): outcome(TRAIN, {"metrics": metrics}),
        str(EVAL): outcome(EVAL, {"scores": scores}),
    }
    targets = {
        TRAIN: Target("train_lm", {"CheckpointInfo": {"metrics": Handle(Built(str(TRAIN), "metrics", "file", True))}},
                      (str(TRAIN),)),
        EVAL: Target("lm_eval", {"EvalInfo": {"scores": Handle(Built(str(EVAL), "scores", "file"))}}, (str(EVAL),)),
    }  # fmt: skip
    counts = dict.fromkeys(events.COUNTS, 0) | {"executed": 2, "local_hits": 3}
    places = {EVAL: {"scores": Path("/w/cache/out/exp/eval/scores"), "samples": Path("/w/cache/out/exp/eval/samples")}}
    return Analysis(targets), BuildReport(outcomes, counts, (), 0, 1.5, places), store


def test_scores_and_losses_are_read_from_the_outputs() -> None:
    analysis, report, store = built()

    def result(id: str) -> Result | None:
        return report.outcomes[id].result

    found = numbers(analysis.targets[EVAL], result, store)  # type: ignore[arg-type]
    assert found == Numbers(SCORES["tasks"], {})
    found = numbers(analysis.targets[TRAIN], result, store)  # type: ignore[arg-type]
    assert found == Numbers({}, {"train/loss": 4.25, "eval/loss": 4.5}, 360)  # the torn last line counts for nothing
    store.delete(report.outcomes[str(TRAIN)].result.outputs["metrics"].digest)  # type: ignore[union-attr]
    assert numbers(analysis.targets[TRAIN], result, store) is None  # type: ignore[arg-type]


def test_the_summary_shows_places_and_numbers() -> None:
    analysis, report, store = built()
    summary = Summary.of(analysis, [EVAL], report, Nothing(), store)  # type: ignore[arg-type]
    assert list(summary.lines(Path("/w"))) == [
        "//exp:tiny",
        "  step 360  train/loss 4.25, eval/loss 4.5",
        "//exp:eval",
        "  scores   cache/out/exp/eval/scores",
        "  samples  cache/out/exp/eval/samples",
        "  topics  acc 0.4313 ± 0.022, sure 1.5",
    ]
    assert "  scores   /w/cache/out/exp/eval/scores" in summary.lines(Path("/elsewhere"))
    data = summary.to_json()
    assert data["//exp:eval"]["scores"] == SCORES["tasks"]  # type: ignore[index]
    assert data["//exp:tiny"] == {"outputs": {}, "losses": {"train/loss": 4.25, "eval/loss": 4.5}, "step": 360}


def test_the_last_line() -> None:
    none = dict.fromkeys(events.COUNTS, 0)
    assert outcome_line(none | {"executed": 2, "local_hits": 3}, 0, 1.5) == "done: 2 executed, 3 served (1.5 s)"
    assert outcome_line(none | {"local_hits": 3}, 0, 0.1) == "up to date: 3 served (0.1 s)"
    assert outcome_line(none, 0, 0.1) == "up to date: nothing to run (0.1 s)"
    assert (
        outcome_line(none | {"failed": 1, "skipped": 2}, 1, 60) == "not done (exit 1): 1 failed, 2 skipped (1 min 00 s)"
    )
    assert up_to_date(none | {"executed": 2, "local_hits": 3}) == none | {"up_to_date": 5}


def test_a_failure_shows_its_log_but_no_traceback() -> None:
    log = "loading\nstep 1\nTraceback (most recent call last):\n  File x\nValueError: no\n"
    failed = outcome(
        EVAL, {}, error=BuildError("`//exp:eval` failed: no", where="exp/f.py:3", hint="look"), log_tail=log
    )
    assert list(failure.lines(failed)) == [
        "error: exp/f.py:3: `//exp:eval` failed: no",
        "  declared at exp/BUILD.marin:7",
        "  hint: look",
        "  the end of its log:",
        "    loading",
        "    step 1",
        "  the whole log: `marin logs //exp:eval`",
    ]
    unplaced = outcome(EVAL, {}, error=BuildError("`//exp:eval` failed"))
    assert list(failure.lines(unplaced)) == ["error: exp/BUILD.marin:7: `//exp:eval` failed"]


def test_resources_in_words() -> None:
    assert dryrun.resources(Resources(cpu=2, ram=4 << 30)) == "2 cpu, 4.0 GiB"
    assert dryrun.resources(Resources(device="gpu", variant="H100", count=8)) == "gpu H100 x8"
    assert (
        dryrun.resources(Resources(device="tpu", variant="v4-128", slice_count=2))
        == "tpu v4-128 x2: 32 hosts, 128 chips"
    )
    assert dryrun.resources(Resources(device="tpu", variant="v4-128")) == "tpu v4-128: 16 hosts, 64 chips"


def test_the_trace_puts_what_overlaps_on_different_lanes() -> None:
    trace = Trace()
    for name, time, action_id in [
        (events.BUILD_STARTED, 10.0, ""),
        (events.ACTION_STARTED, 10.0, "a"),
        (events.ACTION_STARTED, 11.0, "b"),
        (events.ACTION_FINISHED, 12.0, "a"),
        (events.ACTION_STARTED, 12.5, "c"),
        (events.ACTION_FINISHED, 13.0, "b"),
        (events.ACTION_FINISHED, 13.0, "c"),
        (events.BUILD_FINISHED, 14.0, ""),
    ]:
        trace(Event(name, time, {"action": action_id}))
    spans = {span["name"]: span for span in json.loads(trace.text())["traceEvents"]}
    assert {name: span["tid"] for name, span in spans.items()} == {"a": 1, "b": 2, "c": 1, "build": 0}
    assert (spans["b"]["ts"], spans["b"]["dur"]) == (1_000_000, 2_000_000)
