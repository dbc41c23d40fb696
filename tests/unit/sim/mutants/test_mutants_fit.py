"""Every mutant's patch fits the code as it is.

Whether anybody notices it is asked in ``tests/simulation/test_mutants.py``.
"""

from __future__ import annotations

import pytest

from pulsarish.sim.mutants.catalogue import MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_what_it_replaces_is_there(name: str) -> None:
    with MUTANTS[name].patch():
        assert 0 <= MUTANTS[name].first < MUTANTS[name].seeds
