"""Messages that are consumed again later, buried, and moved back, while workers and brokers die."""

from __future__ import annotations

import pytest

from pulsarish.sim.workloads.letters import run_letters


@pytest.mark.parametrize("seed", range(3))
def test_every_job_is_done_at_last_and_no_copy_comes_too_early(seed: int) -> None:
    run_letters(seed)
