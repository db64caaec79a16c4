"""The fixtures of the tests of the scripted model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testing.model.apis import APIS, Api

from ralphtool.testing import (
    ModelServer,
    script,
)


@pytest.fixture(params=APIS, ids=lambda each: each.name)
def api(request: pytest.FixtureRequest) -> Api:
    found: Api = request.param
    return found


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def running() -> Iterator[ModelServer]:
    with ModelServer(script()) as model:
        yield model


@pytest.fixture
def model(running: ModelServer) -> ModelServer:
    """A server that is reset to look new: starting and stopping one is slow, and most tests are not about that."""
    running.scenario, running.root, running.headers = script(), "", {}
    for record in (running.requests, running.errors, running.began):
        record.clear()
    return running
