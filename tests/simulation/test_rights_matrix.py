"""Every row of the table of permissions for every kind of caller."""

from __future__ import annotations

from pulsarish.sim.workloads.rights_matrix import run_rights_matrix


def test_every_row_for_every_kind_of_caller() -> None:
    matrix = run_rights_matrix()
    assert not matrix.anomalies, "\n".join(matrix.anomalies[:20])
    assert matrix.cases_count > 10_000
