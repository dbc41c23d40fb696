"""Reads and writes of a node while the metadata come back older again and again, over seeds."""

from __future__ import annotations

import pytest

from pulsarish.sim.workloads.older_tree import check_answers


@pytest.mark.parametrize("seed", range(5))
def test_what_was_answered_is_true_of_the_newer_tree(seed: int) -> None:
    check_answers(seed)
