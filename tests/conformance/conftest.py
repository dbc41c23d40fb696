"""Each conformance test runs its scenario in every world."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.worlds import WORLDS, Scenario


@pytest.fixture(params=list(WORLDS))
def run_world(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return WORLDS[request.param]
