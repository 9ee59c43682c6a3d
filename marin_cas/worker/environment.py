"""The tool's environment: what is declared and nothing else; and the check that this machine is the one asked for."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from marin_cas.action import secret_name
from marin_cas.errors import EnvironmentProblem
from marin_cas.recipe import Recipe
from marin_cas.worker.request import Request

# The interpreter or the C library reads these once, when a process starts: a fork of a warm one would not see them.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "OPENSSL_", "TZ")

# `network` of an action's settings: True lets its tool ask the Hub's library for what is not cached; FETCH says that it
# does nothing but fetch what its key names, so it may also see by which ways this machine reaches the network.
FETCH = "fetch"
_FETCHES_BY = (
    "HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG", "STORAGE_EMULATOR_HOST",
)  # fmt: skip
# Where their libraries look by themselves below a home that a tool does not have.
_IN_HOME = {
    "AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials",
    "AWS_CONFIG_FILE": ".aws/config",
    "CLOUDSDK_CONFIG": ".config/gcloud",
}


def base_environment() -> dict[str, str]:
    """What every tool sees on every machine."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        # It could not write them: a library's folder is outside of the tool's.
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def tool_environment(
    request: Request, recipe: Recipe, *, home: Path, tmp: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of one tool, secrets included. Raises EnvironmentProblem for a secret that is not set."""
    env = base_environment()
    env["HOME"], env["TMPDIR"] = str(home), str(tmp)
    if not request.settings.get("network"):
        env["HF_HUB_OFFLINE"] = "1"
    if "nproc" in recipe.params and request.resources.device == "cpu":
        env["NPROC"] = str(recipe.params["nproc"])
    if request.settings.get("network") == FETCH:
        env |= _network(environ)
    env |= {name: environ[name] for name in request.pass_env if name in environ}
    env |= request.machine_env
    env |= recipe.env
    return env | secret_values(request, environ)


def _network(environ: Mapping[str, str]) -> dict[str, str]:
    names = (spelling for name in _FETCHES_BY for spelling in (name, name.lower()))
    found = {name: environ[name] for name in names if name in environ}
    home = Path(environ.get("HOME", "/nonexistent"))
    for name, path in _IN_HOME.items():
        if name not in found and (home / path).exists():
            found[name] = str(home / path)
    return found


def secret_values(request: Request, environ: Mapping[str, str]) -> dict[str, str]:
    """The values that may be in no output, log or message. Raises EnvironmentProblem for one that is not set."""
    missing = [name for name in request.secrets if name == secret_name(name) and name not in environ]
    if missing:
        raise EnvironmentProblem(
            f"`{request.label}` needs the secret `{missing[0]}`, which is not in the environment",
            hint=f"set it for this command: `{missing[0]}=... marin build {request.label}`",
        )
    names = [secret_name(name) for name in request.secrets]
    if request.settings.get("network") == FETCH:
        names += [name for name, value in _network(environ).items() if "://" in value and "@" in value]  # a proxy's
    return {name: environ[name] for name in names if name in environ}


def needs_fresh_process(request: Request, recipe: Recipe) -> bool:
    names = (*recipe.env, *request.pass_env, *request.machine_env, *request.secrets)
    return request.heavy or any(name.startswith(_READ_AT_START) for name in names)


@functools.cache
def installed_version(distribution: str) -> str | None:
    """The version here of a distribution, or of `python`; None when it is not installed."""
    if distribution == "python":
        return platform.python_version()
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_toolchain(toolchain: Mapping[str, str]) -> None:
    """Raises EnvironmentProblem when a version that is in the key is not the one installed here."""
    wrong = [(name, due, installed_version(name)) for name, due in sorted(toolchain.items())]
    wrong = [(name, due, here) for name, due, here in wrong if due != here]
    if not wrong:
        return
    name, due, here = wrong[0]
    state = f"is {here}" if here else "is not installed"
    raise EnvironmentProblem(
        f"`{name}` {state} here, but `marin.lock` says {due}",
        notes=[f"`{n}`: {h or 'not installed'} here, {d} in `marin.lock`" for n, d, h in wrong[1:]],
        hint=f"install `{name}=={due}`, or take the new versions on purpose with `marin lock`"
        if name != "python"
        else f"run with Python {due}, or lock another with `marin lock`",
    )
