"""Seeds that several processes run reach what they reach one after another."""

from __future__ import annotations

from click.testing import CliRunner

from pulsarish.cli.sim import sim


def test_side_by_side_they_reach_what_they_reach_one_after_another() -> None:
    one, two = (
        CliRunner().invoke(sim, ["run", "--seeds", "1-2", "--jobs", jobs]) for jobs in ("1", "2")
    )
    assert (one.exit_code, two.exit_code) == (0, 0), one.output + two.output
    assert one.output.splitlines()[1:] == two.output.splitlines()[1:]
    assert one.output.startswith("2 seeds, 0 failed")
