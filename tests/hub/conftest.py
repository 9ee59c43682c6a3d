"""Mini workspaces beside a Hub of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Mini, mini
from tests.hub.server import Hub

__all__ = ["hub", "mini"]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as running:
        yield running


@pytest.fixture
def beside(mini: Mini, hub: Hub) -> Beside:
    return Beside(mini, hub)


class Beside:
    """A workspace whose commands ask `hub`."""

    def __init__(self, mini: Mini, hub: Hub) -> None:
        self.mini, self.hub = mini, hub

    def declare(self, text: str) -> None:
        load = 'load("@marin//rules:data.bzl", "hf_download")\n'
        self.mini.write({"exp/BUILD.marin": load + text})

    def run(self, *args: str, code: int | None = None, **env: str):
        return self.mini.run(*args, code=code, env=self.hub.environ(**env))

    def ok(self, *args: str, **env: str):
        return self.run(*args, code=0, **env)
