"""`--locked`: what is installed here must be what marin.lock says, for every library that the build's keys name."""

from __future__ import annotations

from marin_cas.analysis.analysis import Analysis
from marin_cas.analysis.lock import LOCK_FILE, Lock
from marin_cas.errors import EnvironmentProblem, RequestError
from marin_cas.ui.machine import installed


def check_locked(analysis: Analysis, lock: Lock) -> None:
    """Raises when an action's library has another version here, or when there is no lock. An open `python` is fine."""
    if not lock.present:
        raise RequestError(f"`--locked`: there is no {LOCK_FILE}", hint="run `marin lock` and commit it")
    wanted = {name: version for action in analysis.actions.values() for name, version in action.toolchain.items()}
    here = installed(wanted)
    differing = [
        f"`{name}`: locked {version}, {f'here {here[name]}' if here[name] else 'not installed here'}"
        for name, version in sorted(wanted.items())
        if here[name] != version
    ]
    if differing:
        raise EnvironmentProblem(
            f"`--locked`: the environment is not the one of {LOCK_FILE}",
            notes=differing,
            hint="install the locked versions, or run `marin lock` to take these",
        )
