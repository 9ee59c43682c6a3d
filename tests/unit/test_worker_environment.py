"""What a tool sees of the driver's environment: what is declared, and for what fetches the ways to the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marin_cas.digest import Digest
from marin_cas.errors import EnvironmentProblem, RequestError
from marin_cas.recipe import TREE, UNRESOLVED, Recipe
from marin_cas.worker.attempt import Status
from marin_cas.worker.environment import FETCH, base_environment, secret_values, tool_environment
from marin_cas.worker.request import Request
from tests.unit.test_worker_execute import WRITES, Bench

ENVIRON = {"HF_ENDPOINT": "http://hub", "https_proxy": "http://me:mine@proxy", "AWS_REGION": "mars", "EDITOR": "vi"}


def request(**fields: Any) -> Request:
    return Request(key=Digest.of(b""), label="//x:x", fence="f", **fields)


def seen(tmp_path: Path, network: object, **fields: Any) -> dict[str, str]:
    """What is there besides what every tool sees."""
    (tmp_path / "me/.config/gcloud").mkdir(parents=True, exist_ok=True)
    environ = {**ENVIRON, "HOME": str(tmp_path / "me"), "TOKEN": "abcdefgh"}
    given = tool_environment(
        request(settings={"network": network} if network else {}, **fields),
        Recipe("t", 1),
        home=tmp_path,
        tmp=tmp_path,
        environ=environ,
    )
    return {name: value for name, value in given.items() if name not in (*base_environment(), "HOME", "TMPDIR")}


def test_only_what_fetches_sees_how_this_machine_reaches_the_network(tmp_path: Path) -> None:
    assert seen(tmp_path, None) == {"HF_HUB_OFFLINE": "1"}
    assert seen(tmp_path, True) == {}
    gcloud = str(tmp_path / "me/.config/gcloud")
    ways = {name: value for name, value in ENVIRON.items() if name != "EDITOR"}
    assert seen(tmp_path, FETCH) == {**ways, "CLOUDSDK_CONFIG": gcloud}


def test_a_secret_may_be_one_that_is_not_there(tmp_path: Path) -> None:
    assert seen(tmp_path, True, secrets=("TOKEN?", "UNSET?")) == {"TOKEN": "abcdefgh"}
    with pytest.raises(EnvironmentProblem, match="needs the secret `UNSET`"):
        seen(tmp_path, True, secrets=("TOKEN?", "UNSET"))


def test_a_password_for_a_proxy_is_a_secret() -> None:
    assert secret_values(request(settings={"network": FETCH}), ENVIRON) == {"https_proxy": "http://me:mine@proxy"}
    assert secret_values(request(settings={"network": True}), ENVIRON) == {}


def test_what_the_lock_does_not_say_does_not_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    try:
        recipe = {"params": {UNRESOLVED: ["hub dataset a/b@main"]}, "outputs": {"files": TREE}}
        _, error = bench.fails(WRITES, Status.INFRA, RequestError, recipe=recipe)
        assert "what marin.lock does not say" in error.message and error.hint
    finally:
        bench.executor.close()
