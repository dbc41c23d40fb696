"""Which tests stay together when several workers run them: those that share a cluster, a Spark
session or a compiled program. And that no property test fails because the machine is busy.
"""

from __future__ import annotations

import logging
import os
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A third of what a ZooKeeper of a test costs would be to translate well what it runs for seconds.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

_TOGETHER: Final = ("tests/containers/", "tests/spark/", "tests/clients/")
"""Directories with fixtures for all of their tests."""
_LONGEST_FIRST: Final = (
    *_TOGETHER,
    "tests/integration/test_chaos.py",
    "tests/simulation/test_mutants.py",
    "tests/simulation/test_cluster_seeds.py",
    "tests/power/",
    "tests/integration/",
    "tests/simulation/",
    "tests/",
)
"""Workers take files in this order, so that none of them has a long one left at the end."""


def _rank(item: pytest.Item) -> int:
    return next(rank for rank, start in enumerate(_LONGEST_FIRST) if item.nodeid.startswith(start))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.nodeid.partition("::")[0]
        item.add_marker(
            pytest.mark.xdist_group(
                next((each for each in _TOGETHER if path.startswith(each)), path)
            )
        )
    items.sort(key=_rank)


@pytest.fixture(autouse=True)
def _logs_as_imported() -> None:
    """Undo what an earlier test configured, so that ``caplog`` sees the lines of every
    component.
    """
    root = logging.getLogger("pulsarish")
    root.handlers.clear()
    root.propagate = True
    root.setLevel(logging.NOTSET)
