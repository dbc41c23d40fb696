"""Each conformance test runs its scenario in every world."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.worlds import STREAM_WORLDS, WORLDS, Scenario


@pytest.fixture(params=list(WORLDS))
def run_world(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return WORLDS[request.param]


@pytest.fixture(params=list(STREAM_WORLDS))
def run_stream_world(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return STREAM_WORLDS[request.param]
