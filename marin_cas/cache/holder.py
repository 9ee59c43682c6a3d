"""Who holds a lease: shown to those who wait, and enough to tell whether the process is still there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from marin_cas.encoding import Value
from marin_cas.store.process import Process, this_process


@dataclass(frozen=True, slots=True)
class Holder:
    """`since` is in Unix seconds on the holder's clock, for people; `job` is the backend's name for the run."""

    user: str
    process: Process
    since: float
    job: str = ""

    @classmethod
    def here(cls, job: str = "") -> Holder:
        """This process, now."""
        return cls(user_name(), this_process(), time.time(), job)

    @property
    def host(self) -> str:
        return self.process.host

    @property
    def pid(self) -> int:
        return self.process.pid

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (process {self.pid})"

    def to_record(self) -> dict[str, Value]:
        process = self.process
        return {
            "user": self.user,
            "host": process.host,
            "boot": process.boot,
            "space": process.space,
            "pid": process.pid,
            "started": process.started,
            "since": float(self.since),
            "job": self.job,
        }

    @classmethod
    def from_record(cls, fields: Mapping[str, object]) -> Holder:
        """Raises KeyError, TypeError or ValueError for anything else than `to_record` makes."""
        process = Process(
            str(fields["host"]),
            str(fields["boot"]),
            str(fields["space"]),
            int(fields["pid"]),  # type: ignore[arg-type]
            int(fields["started"]),  # type: ignore[arg-type]
        )
        return cls(str(fields["user"]), process, float(fields["since"]), str(fields["job"]))  # type: ignore[arg-type]


def user_name() -> str:
    """Who runs this process; `unknown` where the machine has no name for them."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container's user number without an entry in its password file
