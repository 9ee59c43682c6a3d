"""Weights & Biases beside the metrics that are an output: one run for all attempts of a key.

It is told where its key is in the environment, or where `WANDB_MODE=offline` asks for a local record. When it cannot
be reached the training goes on without it: nothing it does may cost a run.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from levanter.tracker import NoopTracker, Tracker, TrackerConfig
from levanter.tracker.wandb import WandbConfig, truncate_wandb_run_name

_log = logging.getLogger("marin_cas.train_lm")
_KEY, _MODE = "WANDB_API_KEY", "WANDB_MODE"
_ONLINE, _OFFLINE = "online", "offline"
_END_S = 60.0


def mode(environ: Mapping[str, str]) -> str | None:
    """`online`, `offline`, or None where nobody asked for it."""
    asked = environ.get(_MODE, "").lower()
    if asked in ("disabled", "dryrun"):
        return _OFFLINE if asked == "dryrun" else None
    if asked == _OFFLINE:
        return _OFFLINE
    return _ONLINE if environ.get(_KEY) else None


def config(settings: Mapping[str, Any], run_id: str, environ: Mapping[str, str]) -> TrackerConfig | None:
    """The tracker to add; None where W&B is not asked for. `run_id` is the same for every attempt of a key."""
    how = mode(environ)
    if how is None or not settings["wandb_project"]:
        return None
    return _Forgiving(
        WandbConfig(
            entity=environ.get("WANDB_ENTITY"),
            project=settings["wandb_project"],
            group=settings["wandb_group"],
            name=truncate_wandb_run_name(settings["run_id"] or run_id),
            tags=list(settings["tags"]),
            id=run_id,
            mode=how,
            resume="allow",
            save_code=False,
        )
    )


def end(seconds: float = _END_S) -> None:
    """Ends the library's own process while the interpreter still may start threads, and waits no longer than this."""
    import wandb
    from levanter.tracker.wandb import _teardown_wandb_service_bounded

    atexit.unregister(_teardown_wandb_service_bounded)  # it starts a thread, which is too late there
    ending = threading.Thread(target=wandb.teardown, name="wandb teardown", daemon=True)
    ending.start()
    ending.join(seconds)


@TrackerConfig.register_subclass("marin_cas_wandb")
@dataclass(init=False)
class _Forgiving(TrackerConfig):
    """A dataclass without fields: Levanter copies and prints those of its config."""

    def __init__(self, inner: WandbConfig) -> None:
        self._inner = inner

    def init(self, run_id: str | None) -> Tracker:
        try:
            return self._inner.init(self._inner.id)
        except Exception as error:  # whatever a service, a network or its client may raise
            _log.warning("Weights & Biases is not told of this run: %s: %s", type(error).__name__, error)
            return NoopTracker()
