"""What each caller may do, asked at the ports."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pulsarish.sim.workloads.binary_rights import run_binary_rights
from pulsarish.sim.workloads.bookie_rights import run_bookie_rights
from pulsarish.sim.workloads.http_rights import run_checks_of_handlers, run_http_rights
from pulsarish.sim.workloads.metadata_rights import run_metadata_rights
from pulsarish.sim.workloads.proxy_rights import run_proxy_rights
from pulsarish.sim.workloads.rights_cases import Matrix
from pulsarish.sim.workloads.stream_rights import run_stream_rights


@pytest.mark.parametrize(
    ("run", "cases_min"),
    [
        (run_http_rights, 15_000),
        (run_checks_of_handlers, 150),
        (run_binary_rights, 1_200),
        (run_stream_rights, 300),
        (run_proxy_rights, 350),
        (run_bookie_rights, 400),
        (run_metadata_rights, 1_000),
    ],
)
def test_every_request_of_every_caller(run: Callable[[], Matrix], cases_min: int) -> None:
    matrix = run()
    assert not matrix.anomalies, "\n".join(matrix.anomalies[:20])
    assert matrix.cases_count > cases_min
