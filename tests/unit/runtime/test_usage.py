"""How many cores a process may use."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest

from pulsarish.runtime import usage
from pulsarish.runtime.usage import cores
from tests.support.modules import changed


@pytest.mark.parametrize(
    ("limit", "count"),
    [
        ("max 100000", 6),
        ("200000 100000", 2),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("900000 100000", 6),
        ("", 6),
        (None, 6),
    ],
)
def test_cores_are_those_of_the_affinity_within_the_quota(
    monkeypatch: pytest.MonkeyPatch, limit: str | None, count: int
) -> None:
    def opened(path: Any) -> io.StringIO:
        assert path == "/sys/fs/cgroup/cpu.max"
        if limit is None:
            raise FileNotFoundError(path)
        return io.StringIO(limit)

    with monkeypatch.context() as patched:
        patched.setattr(usage, "os", changed(os, sched_getaffinity=lambda _: set(range(6))))
        patched.setattr(usage, "open", opened, raising=False)
        found = cores()
    assert found == count
