"""Clients that publish under one name."""

from __future__ import annotations

import pytest

from pulsarish.sim.workloads.namesakes import run_namesakes


@pytest.mark.parametrize("seed", range(3))
def test_what_clients_of_one_name_publish_is_stored_once(seed: int) -> None:
    run_namesakes(seed)
